"""The pump and Python take turns at any byte, and what the pump can take Python does not see."""

from __future__ import annotations

import gc
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.request_time import IN_FLIGHT_WITHIN_QUOTA
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import PairKeys
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import (
    METADATA,
    answer,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
    sized,
)
from testkit.proxy.data_paths import path_of
from testkit.proxy.playbook import Shell
from testkit.pump import traffic
from testkit.pump.snapshot import flow_key, snapshot
from testkit.pump.worlds import COSTS
from testkit.thorough import some

NOT_YET = -5
EVERYTHING = {
    "producer_byte_rate": 10**12,
    "consumer_byte_rate": 10**12,
    "request_percentage": 10**6,
    "producer_ids_rate": 1_000,
}

MOST = {key: rate for key, rate in EVERYTHING.items() if key != "request_percentage"}
"""without the limit under which six requests are in flight at most"""
TIME = {"producer_byte_rate": 10**12, "request_percentage": 10**6}


def session_of(name: str, limits: Mapping[str, float] | None = None, *, has_log: bool = True) -> Session:
    shared = SharedState(
        QuotaManager(QuotaLimits([(QuotaEntity(DEFAULT, None), EVERYTHING if limits is None else limits)])),
        Recorder(),
        topic_names=TopicNames() if has_log else None,
    )
    shared.producer_ids.quota.pair_keys = PairKeys(bytes(16))
    return path_of(name).session(shared, SessionPolicy(), "10.0.0.1")


def numbered(frames: list[bytes], at: int) -> list[bytes]:
    made = []
    for number, frame in enumerate(frames):
        whole = bytearray(frame)
        struct.pack_into(">i", whole, at, number)
        made.append(bytes(whole))
    return made


KNOWN = produce_of(140, producer_id=7)
REQUESTS = numbered(
    [
        *[KNOWN] * 4, request(METADATA, 12), KNOWN, produce_of(142, client_id="other"), KNOWN, KNOWN,
        produce_of(141, acks=0), produce_of(150, version=8), KNOWN, produce(), KNOWN,
    ],
    8,
)  # fmt: skip
ANSWERS = numbered(
    [
        answer(METADATA, 12) if number == 4 else produce_answer(version=8 if number == 10 else 9)
        for number in range(len(REQUESTS))
    ],
    4,
)
ASKED = b"".join(REQUESTS)
ANSWERED = b"".join(frame for number, frame in enumerate(ANSWERS) if number != 9)  # acks = 0 has none


def outcome(name: str, asked: tuple[bytes, ...], answered: tuple[bytes, ...]) -> tuple[object, ...]:
    shell = Shell(session_of(name, MOST))
    for part in asked:
        shell.client_sends(part)
    flight = [(*entry[:3], flow_key(entry[3]), *entry[4:8]) for entry in shell.session._in_flight]
    for part in answered:
        shell.broker_sends(part)
        shell.now_ms += 0.25
    records = [(flow_key(flow), *fields) for flow, *fields, _ in shell.shared.recorder.requests]
    told = (bytes(shell.to_broker), bytes(shell.to_client), flight, records)
    return (*told, snapshot(shell.session) if len(asked[0]) % 8 == len(answered[0]) % 8 else None)


@pytest.mark.thorough
def test_requests_are_handed_over_at_every_byte() -> None:
    for cut in some(range(1, len(ASKED))):
        parts = ((ASKED[:cut], ASKED[cut:]), (ANSWERED,))
        assert outcome(PUMP, *parts) == outcome(PURE.name, *parts), cut
    assert outcome(PUMP, (ASKED,), (ANSWERED,))[0] == ASKED


@pytest.mark.thorough
def test_answers_are_handed_over_at_every_byte() -> None:
    for cut in some(range(1, len(ANSWERED))):
        parts = ((ASKED,), (ANSWERED[:cut], ANSWERED[cut:]))
        assert outcome(PUMP, *parts) == outcome(PURE.name, *parts), cut
    assert outcome(PUMP, (ASKED,), (ANSWERED,))[1] == ANSWERED


def test_bytes_that_come_one_by_one() -> None:
    parts = (tuple(bytes([byte]) for byte in ASKED), tuple(bytes([byte]) for byte in ANSWERED))
    assert outcome(PUMP, *parts) == outcome(PURE.name, *parts)


def almost(frame: bytes) -> Iterator[bytes]:
    """The frame with one byte another, where its head or its end is; and longer and shorter ones."""
    for at in (*range(8), *range(12, min(len(frame), 150)), *range(len(frame) - 4, len(frame))):
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, frame[at] - 1 & 0xFF, frame[at] + 1 & 0xFF} - {frame[at]}:
            damaged = bytearray(frame)
            damaged[at] = value
            yield bytes(damaged)
    for by in (-3, -1, 1, 2, 3):
        body = frame[4:by] if by < 0 else frame[4:] + bytes(by)
        yield sized(body)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "limits", [{}, MOST, TIME, EVERYTHING], ids=["nothing", "most", "time", "everything"]
)
@pytest.mark.parametrize(("version", "frame_bytes"), [(3, 200), (9, 140), (9, 300), (12, 17_000), (13, 150)])
def test_a_request_that_is_almost_like_the_last_ones(
    limits: Mapping[str, float], version: int, frame_bytes: int
) -> None:
    like = produce_of(frame_bytes, version=version, producer_id=7)
    told = produce_answer(version=version)

    def seen(name: str, frame: bytes) -> object:
        shell = Shell(session_of(name, limits), stale=b"")  # a sanitizer sees what is read behind it
        for _ in range(3):
            shell.client_sends(like)
            shell.broker_sends(told)
        shell.client_sends(frame + like)
        pace = shell.session.pace
        flight = [(*entry[:3], flow_key(entry[3]), *entry[4:8]) for entry in shell.session._in_flight]
        request_time = shell.session._throttling.request_time
        marks = None if request_time is None else list(request_time.marks)
        return (bytes(shell.to_broker), bytes(shell.to_client), flight, marks, pace.state, pace.close_detail)

    for frame in some([*almost(like)]):
        assert seen(PUMP, frame) == seen(PURE.name, frame), frame[:160].hex()


@pytest.mark.parametrize(
    ("limits", "has_log", "version"),
    [
        ({}, False, 9), ({}, True, 9), (EVERYTHING, True, 9), (EVERYTHING, False, 12), (EVERYTHING, True, 13),
        ({"producer_byte_rate": 10**12}, True, 3), ({"producer_ids_rate": 1_000}, True, 8),
    ],
)  # fmt: skip
def test_a_request_like_the_last_ones_is_the_pumps(
    limits: dict[str, float], has_log: bool, version: int
) -> None:
    """`_start` is what Python's `data` writes first."""
    session = session_of(PUMP, limits, has_log=has_log)
    shell = Shell(session)
    frame = produce_of(400, producer_id=7, version=version)
    for number in range(10):
        if number >= 4:
            session._requests._start = NOT_YET
        shell.client_sends(numbered([frame], 8)[0])
        shell.broker_sends(numbered([produce_answer(version=version)], 4)[0])
        assert session._requests._start == (NOT_YET if number >= 4 else 3)
    assert len(shell.shared.recorder.requests) == 10
    assert bytes(shell.to_broker) == numbered([frame], 8)[0] * 10


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("known", "gates", (1,)), ("known", "until_ms", 0.0), ("known", "version", 8),
        ("known", "heads", None), ("pace", "gate_ms", inf), ("identity", "authenticated", False),
        ("throttling", "generation", -1),
        ("throttling", "produce_sensor", object()), ("throttling", "request_time", object()),
        ("side", "client_left", True), ("side", "raw_tokens", True), ("side", "_guard", object()),
        ("side", "_skip", 1), ("side", "_frame_limit", 20), ("side", "_client_id_length", 4),
        ("sensor", "tat_ms", 10**9 * 1.0), ("sensor", "_ms_per_unit", 1000.0), ("sensor", "tat_ms", None),
    ],
)  # fmt: skip
def test_what_makes_a_request_pythons(part: str, name: str, value: object) -> None:
    session = session_of(PUMP, EVERYTHING)
    shell = Shell(session)
    for request_frame in numbered([KNOWN] * 4, 8):
        shell.client_sends(request_frame)
    side, throttling = session._requests, session._throttling
    parts: dict[str, object] = {
        "side": side, "throttling": throttling, "known": throttling.known, "pace": session.pace,
        "identity": session.identity, "sensor": throttling.produce_sensor,
    }  # fmt: skip
    if name == "heads":
        throttling.known.head = b""
        throttling.known.heads = frozenset()
    else:
        setattr(parts[part], name, value)
    side._start = NOT_YET
    with suppress(Exception):  # some of these cannot be
        session.client_data(bytearray(KNOWN), 0, len(KNOWN), shell.now_ms)
    assert side._start == 0


def test_what_looks_like_a_request_within_one_is_none() -> None:
    """The rest of a request that goes on already has requests in its records, like the last ones."""
    outer = produce({"t": [(0, record_batch(KNOWN * 3, producer_id=7))]})
    cut = outer.index(KNOWN)
    for name in (PURE.name, PUMP):
        shell = Shell(session_of(name))
        for _ in range(4):
            shell.client_sends(KNOWN)
        assert shell.session.in_flight == 4
        shell.client_sends(outer[:cut])
        assert shell.session.in_flight == 5
        assert not shell.session.at_boundary
        shell.client_sends(outer[cut:])
        assert shell.session.in_flight == 5
        assert bytes(shell.to_broker) == KNOWN * 4 + outer


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1])
def test_a_size_that_no_request_has_ends_the_connection_at_once(size: int) -> None:
    for name in (PURE.name, PUMP):
        shell = Shell(session_of(name))
        for _ in range(3):
            shell.client_sends(KNOWN)
        shell.client_sends(KNOWN + size.to_bytes(4, "big", signed=True))
        assert shell.session.in_flight == 4
        assert shell.cause is not None


def test_what_looks_like_an_answer_within_one_is_none() -> None:
    inner = numbered([produce_answer(), produce_answer()], 4)[1]
    outer = sized(bytes(14) + inner + bytes(5))
    cut = outer.index(inner)
    for name in (PURE.name, PUMP):
        shell = Shell(session_of(name, MOST))
        for request_frame in numbered([KNOWN] * 3, 8):
            shell.client_sends(request_frame)
        shell.broker_sends(outer[:cut])
        shell.broker_sends(outer[cut:])
        assert shell.session.in_flight == 2
        assert bytes(shell.to_client) == outer


def test_what_a_client_left_behind_is_not_the_pumps() -> None:
    """With acks ≠ 0 it ends the connection: its client will send it again."""
    for name in (PURE.name, PUMP):
        shell = Shell(session_of(name, {"producer_byte_rate": 1_000}))
        for _ in range(8):
            shell.client_sends(KNOWN)
        assert shell.is_delayed
        passed = bytes(shell.to_broker)
        assert len(passed) == 8 * len(KNOWN)
        shell.client_sends(KNOWN * 3)
        shell.client_leaves()
        shell.now_ms += 5_000
        shell.wake()
        assert shell.cause is DisconnectCause.LEFT_WHILE_HELD
        assert bytes(shell.to_broker) == passed


def test_a_debt_of_request_time_that_is_paid_lets_more_be_under_way() -> None:
    for name in (PURE.name, PUMP):
        shell = Shell(session_of(name, EVERYTHING))
        for request_frame in numbered([KNOWN] * 3, 8):
            shell.client_sends(request_frame)
        shell.session.pace.max_in_flight = 1
        shell.broker_sends(numbered([produce_answer()], 4)[0])
        assert shell.session.pace.max_in_flight == IN_FLIGHT_WITHIN_QUOTA


def test_a_limit_on_request_time_that_comes_while_requests_are_under_way() -> None:
    """The first answers have nothing noted; what is noted is of later ones."""

    def charged(name: str) -> list[float]:
        shared = SharedState(QuotaManager(QuotaLimits([])), Recorder())
        shell = Shell(path_of(name).session(shared, SessionPolicy(request_costs=COSTS), "10.0.0.1"))
        three_records = traffic.produce(9, 1, "app", 0, 0, 40, 7)  # what is noted is not what is assumed
        sent = numbered([three_records] * 4, 8)
        for request_frame in sent[:2]:
            shell.client_sends(request_frame)
        shared.quotas.reload(QuotaLimits([(QuotaEntity(DEFAULT, None), TIME)]), shell.now_ms)
        for request_frame in sent[2:]:
            shell.client_sends(request_frame)
        found = []
        for answer_frame in numbered([produce_answer()] * 4, 4):
            shell.now_ms += 50
            shell.broker_sends(answer_frame)
            found.append(sum(sensor.charged for sensor in shared.quotas.sensors()))
        request_time = shell.session._throttling.request_time
        assert request_time is not None
        assert not request_time.marks
        return found

    assert charged(PUMP) == charged(PURE.name)


def test_an_answer_to_another_client_id_is_charged_to_that() -> None:
    by_client = QuotaLimits([(QuotaEntity(None, DEFAULT), TIME)])

    def charged(name: str) -> list[tuple[str, float]]:
        shared = SharedState(QuotaManager(by_client), Recorder())
        shell = Shell(path_of(name).session(shared, SessionPolicy(), "10.0.0.1"))
        for client_id in ("one", "two", "one", "two"):
            shell.client_sends(produce_of(200, client_id=client_id))
        for _ in range(4):
            shell.now_ms += 0.25
            shell.broker_sends(produce_answer())
        return [(str(sensor.entity), sensor.charged) for sensor in shared.quotas.sensors()]

    assert charged(PUMP) == charged(PURE.name)
    assert len({entity for entity, _ in charged(PUMP)}) > 1


def test_before_a_login_nothing_is_the_pumps() -> None:
    shared = SharedState(QuotaManager(QuotaLimits([])), Recorder())
    policy = SessionPolicy(authentication_required=True)
    shell = Shell(path_of(PUMP).session(shared, policy, "10.0.0.1"))
    shell.session._requests._start = NOT_YET
    shell.client_sends(KNOWN)
    assert shell.session._requests._start == 3
    assert not shell.to_broker


def test_nothing_is_kept_that_should_go() -> None:
    """As many objects are alive after thousands of requests as before, and no reference is counted twice."""
    shell = Shell(session_of(PUMP, MOST))
    sensors = shell.shared.quotas.sensors

    def traffic(count: int) -> None:
        for _ in range(count):
            shell.client_sends(ASKED)
            shell.broker_sends(ANSWERED)
            shell.to_broker.clear()
            shell.to_client.clear()
            shell.shared.recorder.clear()

    def counted() -> list[int]:
        gc.collect()
        identity = shell.session.identity
        return [*map(sys.getrefcount, sensors()), sys.getrefcount(identity.user), len(gc.get_objects())]

    traffic(50)
    before = counted()
    blocks = sys.getallocatedblocks()
    traffic(300)
    after = counted()
    # A few may come from elsewhere in the process: names are shared. A fault would count 300 and more.
    assert all(abs(now - then) < 50 for now, then in zip(after, before, strict=True))
    assert abs(sys.getallocatedblocks() - blocks) < 200


def test_what_is_no_side_or_relay_is_refused() -> None:
    path_of(PUMP)
    from sluice.proxy.pump import core

    with pytest.raises(TypeError):
        core.client_data(object(), bytearray(), 0, 0, 0.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        core.broker_data(object(), bytearray(), 0, 0, 0.0)  # type: ignore[arg-type]
    for readable in (core.client_readable, core.broker_readable):
        with pytest.raises(TypeError):
            readable(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        core.belong(int, int)  # type: ignore[arg-type]
