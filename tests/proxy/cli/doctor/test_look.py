"""What `sluice doctor` finds at a broker that does not speak as it is configured, and in the resolver."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest

from sluice.proxy.calibration.rig import BrokerLink, CalibrationError
from sluice.proxy.cli.doctor import look
from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.client_properties import ClientSettings
from sluice.proxy.cli.quotas.kafka_server import KafkaServer
from testkit.frames.frames import SASL_HANDSHAKE, answer
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.tls_broker import TlsBroker
from testkit.processes.ports import LOOPBACK

Answers = Callable[[socket.socket], None]
CLOSED = "the broker closed the connection during the TLS handshake; is there TLS on this port?"
NOT_TLS = "the broker does not speak TLS on this port: wrong version number"


@contextmanager
def serving(answers: Answers) -> Iterator[int]:
    """The port of a server that does this with one connection."""
    with socket.create_server((LOOPBACK, 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.settimeout(10.0)
                client.recv(65_536)
                answers(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
        thread.join(10.0)


def closes(_: socket.socket) -> None:
    """As Kafka in plain text does with a ClientHello."""


def speaks_http(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


TLS_FAULTS = pytest.mark.parametrize(("answers", "told"), [(closes, CLOSED), (speaks_http, NOT_TLS)])


@TLS_FAULTS
def test_no_tls_where_it_is_configured_is_told_in_the_words_of_readyz(answers: Answers, told: str) -> None:
    tls = ssl.create_default_context()
    with (
        serving(answers) as port,
        pytest.raises(look.NoAnswer) as caught,
        look.connected(LOOPBACK, port, tls, LOOPBACK),
    ):
        pass
    assert str(caught.value) == told


@TLS_FAULTS
def test_commands_that_ask_a_broker_say_so_too(answers: Answers, told: str) -> None:
    settings = ClientSettings(tls=ssl.create_default_context())
    with serving(answers) as port:
        server = KafkaServer(f"{LOOPBACK}:{port}", settings)
        with pytest.raises(CommandFailed) as caught:
            server.ask(MetadataRequest(topics=[]), 8)
    assert str(caught.value) == f"cannot connect to {LOOPBACK}:{port}: {told}"


@TLS_FAULTS
def test_so_does_calibrate_cost(answers: Answers, told: str) -> None:
    with serving(answers) as port, pytest.raises(CalibrationError, match=re.escape(told)):
        BrokerLink(LOOPBACK, port, ssl.create_default_context())


def test_a_refusal_behind_the_handshake_is_told_in_words(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    tls = ssl.create_default_context(cafile=authority.write(tmp_path))
    with TlsBroker(authority, tmp_path) as broker:
        broker.demand_certificate(True)
        with (
            look.connected(LOOPBACK, broker.port, tls, LOOPBACK) as line,
            pytest.raises(look.NoAnswer) as caught,
        ):
            line.newest_produce()
    assert str(caught.value) == "the broker refused the TLS connection with the alert: certificate required"


def to_a_handshake(error_code: int) -> Answers:
    return lambda client: client.sendall(
        answer(SASL_HANDSHAKE, 1, {"errorCode": error_code, "mechanisms": []}, correlation_id=3)
    )


@pytest.mark.parametrize(
    ("answers", "has_sasl"),
    [
        (to_a_handshake(0), True),
        (to_a_handshake(33), True),
        (to_a_handshake(34), False),
        (to_a_handshake(-1), None),
        (closes, None),
        (speaks_http, None),
        (lambda client: client.sendall(b"\0\0\0\x05\0\0\0\x03\0"), None),
    ],
    ids=["takes it", "another mechanism", "no SASL", "odd", "closes", "HTTP", "too short"],
)
def test_whether_a_listener_speaks_sasl(answers: Answers, has_sasl: bool | None) -> None:
    with serving(answers) as port, look.connected(LOOPBACK, port, None, "") as line:
        assert line.has_sasl("PLAIN") is has_sasl


def test_names_that_lead_nowhere_are_left_out() -> None:
    found = look.resolved([LOOPBACK, "localhost", "no-such-host.invalid", "a..b"])
    assert found[LOOPBACK] == {LOOPBACK}
    assert LOOPBACK in found["localhost"]
    assert found.keys() == {LOOPBACK, "localhost"}


def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def of(host: str) -> list[str]:
        if host == "silent":
            ended.wait(30.0)
        return [LOOPBACK]

    monkeypatch.setattr(look, "addresses_of", of)
    assert look.resolved(["silent", "localhost"], within_s=0.2) == {"localhost": {LOOPBACK}}
    ended.set()
