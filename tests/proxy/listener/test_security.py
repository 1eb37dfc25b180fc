"""The files of a listener's security: loaded whole, or not at all; followed, told of in the log, counted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.listener.security import CERTIFICATES, CREDENTIALS, ListenerSecurity, load_security
from sluice.proxy.runtime.watched_file import ReloadOutcome
from sluice.quotas.files.config_error import ConfigError
from testkit.peers.certificates import PASSWORD, CertificateAuthority
from testkit.proxy.local_proxy import until

OLD_S = 30.0
"""Files as old as this have settled: nobody is still writing them."""


class Files:
    """What a listener with everything names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.ca_file = self.authority.write(folder)
        self.server = self.authority.server().write(folder, "server")
        self.ours = self.authority.client("CN=sluice").write(folder, "ours")
        self.logins = folder / "logins.yaml"
        self.logins.write_text("users: {alice: {password_file: alice.password}}")
        (folder / "alice.password").write_text("secret")

    def options(self, **changes: Any) -> ListenerOptions:
        listener = {
            "name": "clients",
            "bind_port": 0,
            "upstream_host": "kafka",
            "upstream_port": 9092,
            "security_protocol": "SSL",
            "tls": {
                "certificate_file": self.server.certificate,
                "key_file": self.server.encrypted_key,
                "key_password_file": self.server.key_password,
                "client_ca_file": self.ca_file,
                "client_auth": "required",
                "reload_interval_s": 0.05,
            },
            "upstream_security_protocol": "SASL_SSL",
            "upstream_tls": {
                "ca_file": self.ca_file,
                "certificate_file": self.ours.certificate,
                "key_file": self.ours.key,
            },
            "upstream_sasl": {"mechanism": "PLAIN", "credentials_file": self.logins},
        }
        return ListenerOptions.model_validate({**listener, **changes})

    def age(self) -> None:
        """Let what was written settle, as if it had been long ago."""
        then_s = time.time() - OLD_S
        for file in self.folder.iterdir():
            os.utime(file, (then_s, then_s))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with capture_logs() as caught:
        yield caught


# At the start -----------------------------------------------------------------------------------------------


def test_everything_that_is_named_is_loaded(files: Files) -> None:
    security = load_security(files.options())
    assert security.tls is not None
    assert security.upstream_tls is not None
    assert security.credentials is not None
    assert [what for what, _ in security.followed()] == [CERTIFICATES, CERTIFICATES, CREDENTIALS]
    assert security.look_interval_s == 0.05


def test_a_listener_without_security_has_nothing_to_follow() -> None:
    plain = ListenerOptions(name="plain", bind_port=0, upstream_host="kafka", upstream_port=9092)
    assert list(load_security(plain).followed()) == []


@pytest.mark.parametrize(
    ("broken", "content", "said"),
    [
        ("server.crt", "nonsense", "server.crt: certificate_file: holds no certificate"),
        ("server.encrypted.key", "nonsense", "server.encrypted.key: key_file: holds no private key"),
        ("server.password", "another", "server.encrypted.key: key_file: cannot be decrypted"),
        ("ca.crt", "nonsense", "ca.crt: client_ca_file: holds no CA certificates"),
        ("ours.key", None, "ours.key: key_file: cannot be read: no such file"),
        ("logins.yaml", "users: {alice: {}}", "give password or password_file"),
        ("alice.password", None, "alice.password cannot be read: no such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    files: Files, broken: str, content: str | None, said: str
) -> None:
    if content is None:
        (files.folder / broken).unlink()
    else:
        (files.folder / broken).write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_security(files.options())
    assert said in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_one_login_for_all_must_be_accepted(files: Files) -> None:
    files.logins.write_text("service: {username: sluice, password: secret}")
    with pytest.raises(ConfigError, match="accept_shared_upstream_identity"):
        load_security(files.options())
    security = load_security(files.options(accept_shared_upstream_identity=True))
    assert security.credentials is not None
    assert security.credentials.for_user("anybody") is not None


def test_where_clients_log_in_themselves_the_proxys_login_is_for_its_own_questions(files: Files) -> None:
    files.logins.write_text("service: {username: sluice, password: secret}")
    section = {"bootstrap_upstreams": ["kafka:9092"], "sni_domain": "kafka.test"}
    options = files.options(security_protocol="SASL_SSL", gateway=section)
    assert load_security(options).credentials is not None


# While it runs ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def followed(files: Files) -> AsyncIterator[ListenerSecurity]:
    files.age()
    security = load_security(files.options())
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(security.follow())
        yield security
        following.cancel()


def events(lines: list[Any]) -> list[str]:
    return [line["event"] for line in lines]


@pytest.mark.asyncio
async def test_new_files_are_applied_and_said(files: Files, lines: list[Any]) -> None:
    async with followed(files) as security:
        assert security.tls is not None
        assert security.credentials is not None
        context, before = security.tls.context, security.credentials.for_user("alice")
        files.authority.server().write(files.folder, "server")
        (files.folder / "alice.password").write_text("another")
        await until(lambda: {"certificates_applied", "credentials_applied"} <= {*events(lines)})
        assert security.tls.context is not context
        assert security.credentials.for_user("alice") != before
        assert all(line["listener"] == "clients" for line in lines)
        assert security.tls.status.outcomes[ReloadOutcome.SUCCESS] == 2
    assert "another" not in str(lines)


@pytest.mark.asyncio
async def test_bad_files_are_said_once_and_the_good_ones_stay(files: Files, lines: list[Any]) -> None:
    async with followed(files) as security:
        assert security.tls is not None
        assert security.credentials is not None
        context, before = security.tls.context, security.credentials.for_user("alice")
        (files.folder / "server.crt").write_text("nonsense")
        files.logins.write_text("users: {alice: {pasword: hush}}")
        files.age()
        await until(lambda: {"certificates_not_applied", "credentials_not_applied"} <= {*events(lines)})
        await asyncio.sleep(0.3)
        assert len(lines) == 2
        assert {line["outcome"] for line in lines} == {"invalid"}
        assert security.tls.context is context
        assert security.credentials.for_user("alice") == before
    assert "hush" not in str(lines)


@pytest.mark.asyncio
async def test_a_certificate_that_ends_in_force_is_said_once(files: Files, lines: list[Any]) -> None:
    files.authority.server(ends_in_days=1.5 / 86_400.0).write(files.folder, "server")
    async with followed(files):
        await until(lambda: bool(lines))
        await asyncio.sleep(0.3)
    assert [(line["event"], line["listener"], line["towards"]) for line in lines] == [
        ("certificate_ended", "clients", "clients")
    ]


@pytest.mark.asyncio
async def test_files_that_are_gone_are_said_and_come_back(files: Files, lines: list[Any]) -> None:
    async with followed(files) as security:
        assert security.tls is not None
        content = files.server.certificate.read_bytes()
        files.server.certificate.unlink()
        await until(lambda: "certificates_not_applied" in events(lines))
        assert lines[-1]["outcome"] == "unreadable"
        files.server.certificate.write_bytes(content)
        await until(lambda: len(lines) > 1)
        assert security.tls.status.outcomes[ReloadOutcome.UNCHANGED] == 1
    assert events(lines) == ["certificates_not_applied", "certificates_in_force_again"]


@pytest.mark.asyncio
async def test_a_certificate_and_its_key_may_come_one_after_the_other(files: Files, lines: list[Any]) -> None:
    """Between the two writes they do not fit, which is nobody's fault."""
    new = files.authority.server()
    async with followed(files) as security:
        assert security.tls is not None
        files.server.certificate.write_bytes(new.certificate_pem)
        await asyncio.sleep(0.3)
        files.server.encrypted_key.write_bytes(new.key_pem(PASSWORD))
        await until(lambda: "certificates_applied" in events(lines))
    assert events(lines) == ["certificates_applied"]
