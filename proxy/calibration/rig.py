"""A calibration's connections to the broker: what it makes there and removes again, and the loads themselves.

Blocking sockets, one thread a connection: what is measured is the broker's time, not the client's.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from sluice.protocol.apis import JOIN_GROUP, METADATA, ApiKey, ErrorCode
from sluice.protocol.codec.wire import Struct, Value
from sluice.proxy.calibration.fit import Measured
from sluice.proxy.calibration.frames import (
    answered,
    error_in,
    produce,
    record_batch,
    request,
    set_request_percentage,
)
from sluice.proxy.calibration.plan import (
    FETCHED_BYTES,
    FETCHED_IN_MIXES,
    MANY_TOPICS,
    PARTITIONS,
    Load,
    Names,
    values,
)
from sluice.proxy.listener.tls.blocking import shaken_hands
from sluice.proxy.runtime.error_words import words_of

ADMIN: Final = "sluice-calibration"
_TIMEOUT_S: Final = 30.0
_IN_HASTE_S: Final = 1.0
_MAX_BYTES: Final = 32 * 1024 * 1024
"""of one load: what is written stays on the broker's disk until the topic is removed"""
_COORDINATOR_LOADS: Final = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: soon after it was found"""
_HIGH_PERCENTAGE: Final = 1e6
_COORDINATOR_TRIES: Final = 100


class CalibrationError(Exception):
    """The broker cannot be calibrated; the message says why."""


class BrokerLink:
    """One connection. Raises CalibrationError, which names the broker."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        """`timeout_s`: without a word of the broker."""
        self._host, self._port, self._tls = host, port, tls
        with self._failures():
            self._sock = socket.create_connection((host, port), timeout=timeout_s)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._sock = shaken_hands(self._sock, tls, host)
        self._buf = bytearray(2 * 1024 * 1024)
        self._view = memoryview(self._buf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def again(self, timeout_s: float) -> BrokerLink:
        """Another to the same broker, with no answer under way."""
        return BrokerLink(self._host, self._port, self._tls, timeout_s)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CalibrationError(f"{self._host}:{self._port}: {words_of(error)}") from None

    def exchange(self, frame: bytes) -> memoryview:
        """Send a request; its answer without its size, valid until the next."""
        with self._failures():
            return self._exchange(frame)

    def _exchange(self, frame: bytes) -> memoryview:
        self._sock.sendall(frame)
        got = 0
        wanted = 4
        while got < wanted:
            count = self._sock.recv_into(self._view[got:])
            if not count:
                raise CalibrationError("the broker closed the connection")
            got += count
            if wanted == 4 and got >= 4:
                (size,) = struct.unpack_from(">i", self._buf)
                wanted = 4 + size
                if wanted > len(self._buf):
                    raise CalibrationError(f"an answer of {size} bytes")
        return self._view[4:wanted]

    def ask(self, api_key: int, body: Struct) -> Struct:
        """One request from plain values."""
        return answered(api_key, bytes(self.exchange(request(api_key, ADMIN, body))))


@dataclass(frozen=True, slots=True)
class Driven:
    """What one connection did."""

    load: Load
    requests: int
    request_bytes: int
    response_bytes: int
    upstream_ms: tuple[float, ...]
    paced: bool = False

    def measured(self, cost_ms: float) -> Measured:
        """`cost_ms`: of all requests together."""
        return Measured(
            self.load.kind,
            self.load.name,
            self.request_bytes // self.requests,
            self.response_bytes / self.requests,
            self.load.batches,
            self.load.records,
            cost_ms / self.requests,
            sum(self.upstream_ms) / self.requests,
            self.paced,
        )


def drive(link: BrokerLink, load: Load, client_id: str, for_s: float, pause_s: float = 0.0) -> Driven:
    """Send one request after the other. Raises CalibrationError if the first is answered with an error."""
    frame = load.frame_of(client_id)
    deadline_s = time.monotonic() + _TIMEOUT_S
    while True:
        first = link.exchange(frame)
        error = error_in(answered(_api_key(frame), bytes(first)))
        if not error:
            break
        if error not in _COORDINATOR_LOADS or time.monotonic() > deadline_s:
            raise CalibrationError(f"{load.name}: the broker answered with error {error}")
        time.sleep(0.2)
    response_bytes = len(first) + 4
    upstream_ms = []
    until_s = time.monotonic() + for_s
    requests = 1
    upstream_ms.append(0.0)
    most = max(10, _MAX_BYTES // len(frame))
    while requests < most:
        sent_s = time.monotonic()
        if sent_s >= until_s:
            break
        response_bytes += len(link.exchange(frame)) + 4
        upstream_ms.append((time.monotonic() - sent_s) * 1000.0)
        requests += 1
        if pause_s:
            time.sleep(pause_s)
    upstream_ms[0] = max(upstream_ms)
    return Driven(load, requests, requests * len(frame), response_bytes, tuple(upstream_ms), pause_s > 0.0)


def drive_together(
    dial: Callable[[], BrokerLink], loads: Sequence[Load], client_id: str, for_s: float, pause_s: float
) -> list[Driven]:
    """All at the same time, a connection and a thread each."""
    done: list[Driven] = []
    failed: list[BaseException] = []

    def run(load: Load) -> None:
        try:
            with dial() as link:
                done.append(drive(link, load, client_id, for_s, pause_s))
        except CalibrationError as error:
            failed.append(error)

    # Daemons: at Ctrl-C the process does not wait for a broker that is silent.
    threads = [threading.Thread(target=run, args=(load,), daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise CalibrationError(str(failed[0])) from failed[0]
    return done


class Rig:
    """Topics, a group with one member, and quotas so high that they only measure; removed at the end."""

    def __init__(self, link: BrokerLink, host: str, port: int, run: str) -> None:
        """`run`: makes the names unlike those of others."""
        self._link = link
        self._host, self._port = host, port
        self._client_ids: list[str] = []
        self.run = run
        topic = f"sluice-calibration-{run}"
        self.names = Names(topic, tuple(f"{topic}-{number}" for number in range(MANY_TOPICS)), "", "", -1)

    def __enter__(self) -> Self:
        try:
            node_id = self._node_id()
            self._create_topics(node_id)
            self._join_group(node_id)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, why: type[BaseException] | None = None, *_: object) -> None:
        if why is None:
            self._remove_all(self._link)
            return
        # On a connection of its own, for an answer may be under way on the other; and not for long: the
        # broker may be silent, and who has pressed Ctrl-C waits.
        try:
            with self._link.again(_IN_HASTE_S) as link:
                self._remove_all(link)
        except CalibrationError as error:
            left = f"topics and quotas of the name {self.names.written}… may be left at the broker"
            print(f"calibrate-cost: {left}: {error}", file=sys.stderr, flush=True)

    def _remove_all(self, link: BrokerLink) -> None:
        if self.names.member:
            members: list[Value] = [{"memberId": self.names.member}]
            link.ask(ApiKey.LEAVE_GROUP, {"groupId": self.names.group, "members": members})
        topics: list[Value] = [{"name": name} for name in self._topics()]
        link.ask(ApiKey.DELETE_TOPICS, {"topics": topics, "timeoutMs": 30_000})
        if self._client_ids:
            link.exchange(set_request_percentage(self._client_ids, None))

    def client_ids(self, count: int) -> list[str]:
        """New client ids, each with a native request_percentage that it will never reach: so the broker
        measures each for itself."""
        first = len(self._client_ids)
        found = [f"sluice-calibration-{self.run}-{first + number}" for number in range(count)]
        frame = set_request_percentage(found, _HIGH_PERCENTAGE)
        error = error_in(answered(_api_key(frame), bytes(self._link.exchange(frame))))
        if error:
            raise CalibrationError(f"the broker refused a quota with error {error}")
        self._client_ids += found
        return found

    def _topics(self) -> list[str]:
        sizes = (*FETCHED_BYTES, *FETCHED_IN_MIXES)
        return [self.names.written, *map(self.names.read, sizes), *self.names.many]

    def _node_id(self) -> int:
        brokers = self._link.ask(METADATA, {"topics": []})["brokers"]
        assert isinstance(brokers, list)
        ids = {}
        for broker in brokers:
            assert isinstance(broker, dict)
            ids[broker["host"], broker["port"]] = broker["nodeId"]
        found = next(iter(ids.values())) if len(ids) == 1 else ids.get((self._host, self._port))
        if not isinstance(found, int):
            raise CalibrationError(
                f"no broker of the cluster is {self._host}:{self._port}; name one as it is advertised"
            )
        return found

    def _create_topics(self, node_id: int) -> None:
        asked: list[Value] = []
        for name in self._topics():
            count = PARTITIONS if name == self.names.written else 1
            assignments: list[Value] = [
                {"partitionIndex": index, "brokerIds": [node_id]} for index in range(count)
            ]
            asked.append({
                "name": name,
                "numPartitions": -1,
                "replicationFactor": -1,
                "assignments": assignments,
                "configs": [
                    {"name": "retention.ms", "value": "-1"},
                    {"name": "retention.bytes", "value": str(64 * 1024 * 1024)},
                    {"name": "max.message.bytes", "value": str(2 * 1024 * 1024)},
                    {"name": "min.insync.replicas", "value": "1"},
                ],
            })  # fmt: skip
        made = self._link.ask(ApiKey.CREATE_TOPICS, {"topics": asked, "timeoutMs": 30_000})
        if error_in(made):
            raise CalibrationError(f"topics cannot be created: error {error_in(made)}")
        for size in (*FETCHED_BYTES, *FETCHED_IN_MIXES):
            batch = record_batch(values(1, size - 80))
            self._until_fine(produce(ADMIN, self.names.read(size), {0: batch}, 1))
        empty = record_batch(values(1, 10))
        self._until_fine(produce(ADMIN, self.names.written, dict.fromkeys(range(PARTITIONS), empty), 1))

    def _until_fine(self, frame: bytes) -> None:
        """A topic that was just made has no leader for a moment."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while error := error_in(answered(_api_key(frame), bytes(self._link.exchange(frame)))):
            if time.monotonic() > deadline_s:
                raise CalibrationError(f"the broker goes on answering with error {error}")
            time.sleep(0.1)

    def _join_group(self, node_id: int) -> None:
        group = self._group_of(node_id)
        body: Struct = {
            "groupId": group,
            "sessionTimeoutMs": 300_000,
            "rebalanceTimeoutMs": 300_000,
            "memberId": "",
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": ""}],
        }
        joined = self._link.ask(JOIN_GROUP, body)
        deadline_s = time.monotonic() + _TIMEOUT_S
        while joined["errorCode"] in _COORDINATOR_LOADS and time.monotonic() < deadline_s:
            time.sleep(0.2)
            joined = self._link.ask(JOIN_GROUP, body)
        if joined["errorCode"] == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self._link.ask(JOIN_GROUP, {**body, "memberId": joined["memberId"]})
        if joined["errorCode"]:
            raise CalibrationError(f"no group can be joined: error {joined['errorCode']}")
        member, generation = joined["memberId"], joined["generationId"]
        assert isinstance(member, str)
        assert isinstance(generation, int)
        sync: Struct = {
            "groupId": group,
            "generationId": generation,
            "memberId": member,
            "protocolType": "consumer",
            "protocolName": "range",
            "assignments": [{"memberId": member, "assignment": ""}],
        }
        error = self._link.ask(ApiKey.SYNC_GROUP, sync)["errorCode"]
        if error:
            raise CalibrationError(f"no group can be joined: error {error}")
        self.names = Names(self.names.written, self.names.many, group, member, generation)

    def _group_of(self, node_id: int) -> str:
        """A group that this broker coordinates."""
        for number in range(_COORDINATOR_TRIES):
            group = f"{self.names.written}-{number}"
            if self._coordinator_of(group) == node_id:
                return group
        raise CalibrationError("the broker coordinates no group")

    def _coordinator_of(self, group: str) -> Value:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while True:
            found = self._link.ask(ApiKey.FIND_COORDINATOR, {"keyType": 0, "coordinatorKeys": [group]})
            coordinators = found["coordinators"]
            assert isinstance(coordinators, list)
            coordinator = coordinators[0]
            assert isinstance(coordinator, dict)
            if coordinator["errorCode"] == 0 or time.monotonic() > deadline_s:
                return coordinator["nodeId"]
            time.sleep(0.2)  # the topic of offsets is being made


def _api_key(frame: bytes) -> int:
    return int.from_bytes(frame[4:6], "big")
