"""What real clients call themselves in ApiVersions, held against the table of their patience."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.clients.cases import CLIENTS, PRODUCE, Client
from bench.clients.drivers.told import Work
from bench.clients.programs import NoProgramError, Programs
from sluice.protocol.api_versions import FIRST_WITH_SOFTWARE, client_software
from sluice.protocol.apis import API_VERSIONS
from sluice.protocol.codec.wire import Struct
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, SIZE_BYTES, request_body
from sluice.proxy.session.delays import PATIENCE_S
from testkit.frames.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, answer
from testkit.processes.guarded_process import GuardedProcess
from testkit.processes.ports import LOOPBACK

NAMES = {
    "java": "apache-kafka-java",
    "librdkafka": "confluent-kafka-python",
    "aiokafka": None,
    "kafka-python": "kafka-python",
    "franz-go": "kgo",
    "sarama": "sarama",
    "kafka-go": None,
    "kafkajs": None,
    "platformatic": "platformatic-kafka",
}
"""None: it tells no name"""
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(tmp_path_factory.mktemp("programs"))


APIS: Struct = {
    "apiKeys": [
        {"apiKey": key, "minVersion": 0, "maxVersion": newest}
        for key, newest in ((API_VERSIONS, 4), (SASL_HANDSHAKE, 1), (SASL_AUTHENTICATE, 2))
    ]
}


def telling_frame(listener: socket.socket) -> bytes:
    """Of the first connection: its first request that is no part of the login; that one gets no answer.

    Java and platformatic tell their name behind the login only. Empty: the client wanted APIs that are not
    offered here, and closed the connection; a name would have come before.
    """
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as stream:
        connection.settimeout(WITHIN_S)
        while True:
            size = stream.read(SIZE_BYTES)
            if not size:
                return b""
            frame: bytes = size + stream.read(int.from_bytes(size, "big"))
            _, api_key, version, correlation_id, _ = REQUEST_HEAD.unpack_from(frame)
            body: Struct = {}
            if api_key == API_VERSIONS and version < FIRST_WITH_SOFTWARE:
                body = APIS
            elif api_key == SASL_HANDSHAKE:
                body = {"mechanisms": ["PLAIN"]}
            elif api_key != SASL_AUTHENTICATE:
                return frame
            connection.sendall(answer(api_key, version, body, correlation_id=correlation_id))


def name_in(frame: bytes) -> str | None:
    if not frame:
        return None
    buf = bytearray(frame)
    _, api_key, version, _, id_length = REQUEST_HEAD.unpack_from(buf)
    if api_key != API_VERSIONS or version < FIRST_WITH_SOFTWARE:
        return None
    client_id_end = REQUEST_HEAD_BYTES + max(id_length, 0)
    body = request_body(buf, client_id_end, len(buf), api_key, version)
    return client_software(buf, body, len(buf))[0]


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.name in NAMES], ids=lambda client: client.name
)
def test_a_client_calls_itself_what_the_table_has(client: Client, programs: Programs, tmp_path: Path) -> None:
    try:
        command = programs.command(client)
    except NoProgramError as error:
        pytest.skip(str(error))
    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(WITHIN_S)
        port = listener.getsockname()[1]
        work = Work(
            client.name, PRODUCE, f"{LOOPBACK}:{port}", "alice", "secret", "app", "topic", 1, 1, 1, 100, 1,
            "group", "", 30.0,
        )  # fmt: skip
        job = tmp_path / "work.json"
        job.write_text(json.dumps(asdict(work)), encoding="utf-8")
        with GuardedProcess([*command, str(job)], output=tmp_path / "out"):
            name = name_in(telling_frame(listener))
    assert name == NAMES[client.name]
    assert name is None or name in PATIENCE_S
