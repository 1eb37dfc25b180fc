"""A question on the connection that is kept: how that ends tells nothing of new connections."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest

from sluice.protocol.api_versions import api_versions_request
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.dial_outcome import Dialled
from sluice.proxy.listener.tls.error import TlsError, TlsFailure
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_probe import Heard, UpstreamProbe
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK

pytestmark = pytest.mark.asyncio
ALERT = TlsError(TlsFailure.REFUSED, "the broker refused the TLS connection with the alert: internal error")


class Ends:
    """A stream that takes a question, and fails in the place of an answer."""

    def __init__(self, error: OSError) -> None:
        self.error = error
        self.is_closed = False

    def send(self, data: bytes) -> int:
        return len(data)

    def recv_into(self, _view: memoryview) -> int:
        raise self.error

    def close(self) -> None:
        self.is_closed = True


def a_probe() -> UpstreamProbe:
    loop = asyncio.get_running_loop()
    upstream = Upstream(loop, ListenerOptions(name="a", bind_port=0), Circuits(), dial_timeout_s=WITHIN_S)
    return UpstreamProbe(loop, upstream, answer_s=WITHIN_S)


async def asked_with_a_kept_one_that(error: OSError, probe: UpstreamProbe, broker: FaultBroker) -> Heard:
    address = (LOOPBACK, broker.port)
    assert await probe.ask(address) is Heard.ANSWER
    kept = probe._lines[address]
    kept.stream.close()
    kept.stream = ends = Ends(error)  # type: ignore[assignment]
    found = await probe.ask(address)
    assert ends.is_closed
    return found


@pytest.mark.parametrize(
    "error",
    [
        ALERT,
        ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)),
        OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)),  # by the kernel's keep-alive
        OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)),
    ],
    ids=["alert", "reset", "kept alive in vain", "no route"],
)
async def test_however_the_kept_connection_ends_the_question_is_asked_on_a_new_one(error: OSError) -> None:
    probe = a_probe()
    try:
        async with FaultBroker(answers) as broker:
            assert await asked_with_a_kept_one_that(error, probe, broker) is Heard.ANSWER
            assert len(broker.clients) == 2
            assert not probe.why
    finally:
        probe.close()


class Says(Ends):
    """A stream that gives the same bytes, whatever is asked."""

    def __init__(self, said: bytes) -> None:
        super().__init__(ConnectionResetError())
        self.said = said

    def recv_into(self, view: memoryview) -> int:
        count = min(len(view), len(self.said))
        view[:count], self.said = self.said[:count], self.said[count:]
        return count


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"\0\0\0\x06" + bytes(4) + b"\0\x23", Heard.ANSWER),
        (b"\0\0\0\x04" + bytes(4), Heard.ANSWER),
        (b"\0\0\0\x06\0\0\0\1\0\x23", Heard.CLOSED),
        (api_versions_request(0, "sluice"), Heard.CLOSED),
        (b"\0\0\0\x03" + bytes(3), Heard.CLOSED),
        (b"\xff\xff\xff\xff" + bytes(4), Heard.CLOSED),
    ],
    ids=[
        "an answer",
        "the shortest",
        "of another id",
        "the question",
        "too short for an id",
        "a negative size",
    ],
)
async def test_only_an_answer_with_the_questions_id_is_one(
    said: bytes, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dials(_self: Upstream, *_: Any) -> Any:
        return Dialled(Says(said), None)  # type: ignore[arg-type]

    monkeypatch.setattr(Upstream, "dial", dials)
    probe = a_probe()
    assert await probe.ask((LOOPBACK, 1)) is heard
    assert bool(probe._lines) == (heard is Heard.ANSWER)


async def test_on_a_new_connection_an_alert_is_what_all_clients_get(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dials(_self: Upstream, *_: Any) -> Any:
        return Dialled(Ends(ALERT), None)  # type: ignore[arg-type]

    monkeypatch.setattr(Upstream, "dial", dials)
    probe = a_probe()
    assert await probe.ask((LOOPBACK, 1)) is Heard.REFUSED
    assert probe.why[Heard.REFUSED] == str(ALERT)
