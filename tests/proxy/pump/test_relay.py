"""The pump between two streams: Produces pass without Python, and a fault in it costs one connection."""

from __future__ import annotations

import _ssl
import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.proxy.connection.relay import Relay
from sluice.proxy.listener.tls.stream import TlsStream
from sluice.proxy.pump.choice import PUMP
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.read_gate import Pace
from testkit.frames.frames import produce_of
from testkit.frames.wire import WITHIN_S
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK
from testkit.proxy.data_paths import over
from testkit.proxy.local_proxy import LocalProxy
from testkit.proxy.playbook import limits_of
from testkit.proxy.secured_proxy import SecuredProxy

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def over_pump() -> Iterator[None]:
    """All that is assembled here is the pump's."""
    with over(PUMP):
        yield


async def test_a_produce_passes_the_relay_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is given to Relay's own functions, nor to the session's."""
    seen: list[str] = []
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(10**9)) as proxy:
        with await proxy.client() as client:
            for number in range(5):
                if number == 1:  # the first has the broker dialled
                    monkeypatch.setattr(Relay, "_take_from_client", lambda *_: seen.append("client"))
                    monkeypatch.setattr(Relay, "_answers", lambda *_: seen.append("broker"))
                await client.send(produce_of(300, correlation_id=number))
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")
            (connection,) = proxy.connections
            connection.session._requests._start = -5
            await client.send(produce_of(300, correlation_id=9))
            await client.frame()
            assert connection.session._requests._start == -5
    assert seen == []


async def test_a_produce_passes_in_tls_without_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But for the stream's own calls."""
    seen: list[str] = []
    authority = CertificateAuthority()
    server = authority.server().write(tmp_path, "server")
    tls = {"certificate_file": str(server.certificate), "key_file": str(server.key)}
    listener = {"security_protocol": "SSL", "tls": tls, "accept_shared_upstream_identity": True}
    context = ssl.create_default_context(cafile=str(authority.write(tmp_path)))
    async with (
        FaultBroker(answers) as broker,
        SecuredProxy(broker.port, limits_of(10**9), listener=listener) as proxy,
        asyncio.timeout(WITHIN_S),
    ):
        reader, writer = await asyncio.open_connection(
            LOOPBACK, proxy.listener.port, ssl=context, server_hostname=LOOPBACK
        )
        for number in (*range(5), 9):
            if number == 1:  # the first has the broker dialled
                monkeypatch.setattr(Relay, "_take_from_client", lambda *_: seen.append("client"))
                monkeypatch.setattr(Relay, "_answers", lambda *_: seen.append("broker"))
                if getattr(_ssl, "__file__", None):  # of one that is linked in no functions can be had
                    monkeypatch.setattr(TlsStream, "recv_into", lambda *_: seen.append("read"))
                    monkeypatch.setattr(TlsStream, "send", lambda *_: seen.append("sent"))
            if number == 9:
                (connection,) = proxy.connections
                connection.session._requests._start = -5
            writer.write(produce_of(300, correlation_id=number))
            head = await reader.readexactly(8)
            assert head[4:] == number.to_bytes(4, "big")
            await reader.readexactly(int.from_bytes(head[:4], "big") - 4)
        assert connection.session._requests._start == -5
        monkeypatch.undo()
        writer.close()
        await writer.wait_closed()
        await proxy.end()
    assert seen == []


async def test_a_fault_in_the_pump_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Pace) -> None:
        raise ZeroDivisionError("of ours")

    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as bystander, capture_logs() as lines:
            await bystander.send(produce_of(300))
            await bystander.frame()
            others = set(proxy.connections)
            with await proxy.client() as client, monkeypatch.context() as patched:
                for _ in range(3):
                    await client.send(produce_of(300))
                    await client.frame()
                patched.setattr(Pace, "fill", fails)
                (connection,) = proxy.connections - others
                connection.session.pace.max_in_flight = 1
                await client.send(produce_of(300))
                assert await client.rest() in {(b"", "closed"), (b"", "reset")}
            assert (await proxy.end()).cause == DisconnectCause.INTERNAL_ERROR
            (line,) = lines
            assert line["event"] == "internal_error"
            assert line["exc_info"]
            await bystander.send(produce_of(300))
            await bystander.frame()
