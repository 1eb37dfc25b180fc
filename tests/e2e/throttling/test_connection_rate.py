"""connection_creation_rate: how many connections of one address a real broker serves, and how many Sluice."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from sluice.protocol.codec.wire import Struct
from testkit.frames.frames import API_VERSIONS, decoded, request
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

KEY = "connection_creation_rate"
ALTER_CLIENT_QUOTAS = 49
OURS = "127.0.0.2"
"""Where these clients come from: one that another test left behind may look for a broker at the same port,
and is not to be counted."""
ASK = request(API_VERSIONS, 3, {"clientSoftwareName": "test", "clientSoftwareVersion": "1"})


def address_of(bootstrap: str) -> tuple[str, int]:
    host, port = bootstrap.split(":")
    return host, int(port)


def exchange(connection: socket.socket, frame: bytes) -> bytes | None:
    """The answer; None: the connection was closed without one."""
    try:
        connection.sendall(frame)
        size = connection.recv(4, socket.MSG_WAITALL)
        return size + connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if size else None
    except (ConnectionResetError, BrokenPipeError):
        return None


def served(address: tuple[str, int], connections: int) -> tuple[int, float, float]:
    """Of so many that connect at once, how many are served; how long they were about it, in which more become
    due; and when the last of the others has ended."""
    begun_s = served_s = time.monotonic()
    clients = [
        socket.create_connection(address, timeout=30, source_address=(OURS, 0)) for _ in range(connections)
    ]
    try:
        count = 0
        for client in clients:
            if exchange(client, ASK) is not None:
                count, served_s = count + 1, time.monotonic()
    finally:
        for client in clients:
            client.close()
    return count, served_s - begun_s, time.monotonic() - begun_s


@contextmanager
def broker_quota(kafka: KafkaNode, rate: float) -> Iterator[None]:
    """For connections from there, at the broker itself."""
    with socket.create_connection(address_of(kafka.bootstrap), timeout=30) as connection:

        def alter(*, remove: bool) -> None:
            op: Struct = {"key": KEY, "value": rate, "remove": remove}
            entry: Struct = {"entity": [{"entityType": "ip", "entityName": OURS}], "ops": [op]}
            frame = exchange(connection, request(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry]}))
            assert frame is not None
            (told,) = cast("list[Struct]", decoded("response", ALTER_CLIENT_QUOTAS, 1, frame).body["entries"])
            assert told["errorCode"] == 0
            time.sleep(1.0)

        alter(remove=False)
        try:
            yield
        finally:
            alter(remove=True)


def test_in_kafkas_pacing_as_many_are_served_as_by_the_brokers_own_quota(kafka: KafkaNode) -> None:
    """5 a second: some fifty at once (of 11 windows, missing ones count as idle), and the rest is not."""
    with broker_quota(kafka, 5):
        native, native_served_s, native_s = served(address_of(kafka.bootstrap), 100)
    quota = {"ip": OURS, KEY: 5}
    with SluiceProcess(doors_of(kafka), quotas=[quota], pacing={"mode": "kafka"}) as sluice:
        ours, ours_served_s, ours_s = served(address_of(sluice.bootstrap()), 100)
        assert sluice.disconnects("connection_creation_rate") == 100 - ours
        assert sluice.metric("sluice_connections_over_rate_total", rule="ip", shadow="false") == 100 - ours
    due = 5 * max(native_served_s, ours_served_s)  # on a busy machine they come one after the other
    assert ours == pytest.approx(native, abs=5 + due), "the burst takes its time, in which more become due"
    assert 45 <= ours <= 55 + due
    assert max(native_s, ours_s) < 20
