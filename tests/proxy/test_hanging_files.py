"""A followed file whose read hangs: told once, nobody waits for it, and what it says then is taken."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import pytest
from structlog.testing import capture_logs

from sluice.proxy.admin.status import routes, token
from sluice.proxy.admin.status.routes import StatusRoutes
from sluice.proxy.admin.status.token import TokenFile
from sluice.proxy.config import watch
from sluice.proxy.config.admin import StatusOptions
from sluice.proxy.config.file import load_config
from sluice.proxy.config.watch import ConfigWatch
from sluice.proxy.listener import security
from sluice.proxy.listener.login import credentials
from sluice.proxy.listener.login.credentials import CredentialsFile
from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.listener.tls import context
from sluice.proxy.listener.tls.context import ClientTls, ServerTls
from sluice.proxy.runtime.file_work import FileWork
from sluice.proxy.runtime.tasks import spawn
from testkit.peers.certificates import CertificateAuthority
from testkit.proxy.local_proxy import until

AUTHORITY = CertificateAuthority()
CONFIGURATION = """
listeners: [{name: clients, bind_port: 9092, upstream_host: kafka, upstream_port: 9092}]
quotas: {file: q.yaml}
limits: {max_connections: %d}
"""
CREDENTIALS = "service: {username: sluice, password: %s}\n"
_Found = TypeVar("_Found")
TOKEN = "a-token-of-the-tests-%04d"


@dataclass
class Case:
    """A file that is followed."""

    follow: Callable[[], Any]
    """a coroutine that looks for changes until cancelled"""
    change: Callable[[], object]
    looks_in: ModuleType
    """whose `identify` asks the file system"""
    told: str
    taken: str


def configuration(folder: Path, _: pytest.MonkeyPatch) -> Case:
    path = folder / "sluice.yaml"
    path.write_text(CONFIGURATION % 5)
    followed = ConfigWatch(path, {}, load_config(path, {}))
    followed._work = FileWork(0.05)
    return Case(
        lambda: followed.watch(lambda _: None),
        lambda: path.write_text(CONFIGURATION % 6),
        watch,
        "configuration_not_applied",
        "configuration_applied",
    )


def certificates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    files = AUTHORITY.server().write(folder)
    tls = ServerTls(certificate_file=files.certificate, key_file=files.key)
    tls.load(time.time())
    return of_listener(
        ListenerSecurity("test", tls=tls),
        lambda: AUTHORITY.server().write(folder),
        context,
        "certificates",
        monkeypatch,
    )


def broker_ca(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    tls = ClientTls(ca_file=AUTHORITY.write(folder))
    tls.load(time.time())
    return of_listener(
        ListenerSecurity("test", upstream_tls=tls),
        lambda: CertificateAuthority().write(folder),
        context,
        "certificates",
        monkeypatch,
    )


def logins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    path = folder / "logins.yaml"
    path.write_text(CREDENTIALS % "one")
    file = CredentialsFile(path, "PLAIN", share_service=True)
    file.load(0.0)
    return of_listener(
        ListenerSecurity("test", credentials=file),
        lambda: path.write_text(CREDENTIALS % "another"),
        credentials,
        "credentials",
        monkeypatch,
    )


def of_listener(
    listener: ListenerSecurity,
    change: Callable[[], object],
    looks_in: ModuleType,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Case:
    listener.look_interval_s = 0.01
    monkeypatch.setattr(security, "FileWork", ImpatientWork)
    return Case(listener.follow, change, looks_in, f"{what}_not_applied", f"{what}_applied")


class ImpatientWork(FileWork[_Found], Generic[_Found]):
    """FileWork that is not patient."""

    def __init__(self) -> None:
        super().__init__(0.05)


def status_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    path = folder / "token"
    path.write_text(TOKEN % 1)
    monkeypatch.setattr(routes, "_TOKEN_LOOK_S", 0.01)
    page = StatusRoutes(StatusOptions(token_file=path), None, TokenFile(path))
    page._token_work = FileWork(0.05)

    async def ask() -> None:
        while True:
            await page._follow_token()
            await asyncio.sleep(0.02)

    return Case(
        ask, lambda: path.write_text(TOKEN % 2), token, "status_token_not_applied", "status_token_changed"
    )


CASES = (configuration, certificates, broker_ca, logins, status_token)


@pytest.fixture
def goes_on() -> Iterator[threading.Event]:
    """Set at the end, so that no thread outlives the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.asyncio
@pytest.mark.parametrize("make", CASES)
async def test_a_look_that_hangs_is_told_once_and_what_it_finds_then_is_taken(
    make: Callable[[Path, pytest.MonkeyPatch], Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    goes_on: threading.Event,
) -> None:
    case = make(tmp_path, monkeypatch)
    looks: list[int] = []
    real = case.looks_in.__dict__["identify"]

    def hangs(paths: Any) -> Any:
        looks.append(1)
        assert goes_on.wait(30.0)
        return real(paths)

    monkeypatch.setattr(case.looks_in, "identify", hangs)
    monkeypatch.setattr(watch, "LOOK_INTERVAL_S", 0.01)
    case.change()
    with capture_logs() as lines:

        def count(event: str) -> int:
            return sum(line["event"] == event for line in lines)

        following = spawn(case.follow(), "follows")
        await until(lambda: count(case.told) > 0)
        await asyncio.sleep(0.1)  # some looks more
        assert (count(case.told), len(looks), count(case.taken)) == (1, 1, 0)
        goes_on.set()
        await until(lambda: count(case.taken) > 0)
        assert count("task_failed") == 0
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
