"""What passes through a session, below every quota: frames, answers, records."""

from __future__ import annotations

import struct

import pytest

from sluice.protocol.apis import OFFERED, ApiKey, readable_versions
from sluice.protocol.codec.wire import Value
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    PRODUCE,
    SHARE_FETCH,
    answer,
    decoded,
    fetch,
    fetch_answer_of,
    max_bytes_of,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
    sized,
)
from testkit.proxy.playbook import (
    START_MS,
    Broker,
    Client,
    Drain,
    Ending,
    Playbook,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    limits_of,
    session_of,
    shared_of,
)

KIB = 1024
MIB = 1024 * KIB


@pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))
def test_a_produce_within_its_quota_goes_on_at_once_and_its_answer_is_not_touched(version: int) -> None:
    (
        Playbook(session_of(produce_rate=1_000))
        >> Client(produce_of(1_000, version=version))
        << ToBroker(produce_of(1_000, version=version))
        >> Broker(produce_answer(version=version, throttle_ms=3))
        << ToClient(produce_answer(version=version, throttle_ms=3))
    ).done()


def test_pipelined_requests_go_on_together_and_their_answers_come_back_in_order() -> None:
    requests = (
        produce_of(400, correlation_id=1)
        + request(METADATA, 12, correlation_id=2)
        + fetch(correlation_id=3)
        + produce_of(500, version=3, correlation_id=4)
    )
    answers = (
        produce_answer(correlation_id=1)
        + answer(METADATA, 12, correlation_id=2)
        + fetch_answer_of(900, correlation_id=3)
        + produce_answer(version=3, correlation_id=4)
    )
    shell = (
        Playbook(session_of())
        >> Client(requests)
        << ToBroker(requests)
        >> Broker(answers)
        << ToClient(answers)
    ).done()
    assert [record.api_key for record in shell.records] == [PRODUCE, METADATA, FETCH, PRODUCE]
    assert shell.session.in_flight == 0


def test_a_produce_without_acks_has_no_entry_in_flight_so_that_the_next_answer_is_the_next_requests() -> None:
    fire_and_forget = produce_of(300, acks=0, correlation_id=1)
    heartbeat = request(HEARTBEAT, 4, correlation_id=2)
    shell = (
        Playbook(session_of())
        >> Client(fire_and_forget + heartbeat)
        << ToBroker(fire_and_forget + heartbeat)
        >> Broker(answer(HEARTBEAT, 4, correlation_id=2))
        << ToClient(answer(HEARTBEAT, 4, correlation_id=2))
    ).done()
    assert [record.api_key for record in shell.records] == [PRODUCE, HEARTBEAT]


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_every_other_acks_has_an_answer(version: int, transactional_id: str | None) -> None:
    """The broker refuses what is not −1, 0 or 1, by an answer."""
    for acks in (-1, 0, 1, 2, 255, 256, -256, 2**15 - 1, -(2**15)):
        shell = Shell(session_of())
        shell.client_sends(produce(version=version, acks=acks, transactional_id=transactional_id))
        assert shell.session.in_flight == (acks != 0)


def test_each_finished_request_leaves_one_record_with_its_bytes_and_times() -> None:
    """Read at 10,000 ms and answered at 10,040: 40 ms upstream, none held, no throttle."""
    session = session_of(produce_rate=1_000)
    shell = (
        Playbook(session)
        >> Client(produce_of(600))
        << ToBroker(produce_of(600))
        >> Wait(40)
        >> Broker(produce_answer())
        << ToClient(produce_answer())
    ).done()
    sensor = shell.sensor()
    size = len(produce_answer())
    (record,) = shell.records
    assert record[1:] == (600, size, 40.0, 0.0, 0.0, START_MS + 40, PRODUCE, 9, "ANONYMOUS", sensor)
    assert record.client_id == "app"
    assert (session.requests, session.bytes_from_client, session.bytes_to_client) == (1, 600, size)
    assert shell.events == []


def test_the_record_of_a_produce_without_acks_is_written_when_it_goes_on() -> None:
    session = session_of()
    playbook = Playbook(session) >> Client(produce_of(300, acks=0)) << ToBroker(produce_of(300, acks=0))
    shell = playbook.done()
    (record,) = shell.records
    assert record[1:] == (300, 0, 0.0, 0.0, 0.0, START_MS, PRODUCE, 9, "ANONYMOUS", None)
    assert record.client_id == "app"


def test_a_large_produce_goes_on_while_it_arrives() -> None:
    """Three times the receive buffer. What has been judged is never kept: it goes as it comes."""
    batch = record_batch(bytes(3 * MIB))
    frame = produce({"orders": [(0, batch)]}) + produce_of(200, correlation_id=2)
    shell = Shell(session_of())
    for start in range(0, len(frame), 64 * KIB):
        shell.client_sends(frame[start : start + 64 * KIB])
        assert shell.kept == b""
    assert shell.to_broker == frame
    assert shell.session.requests == 2


def test_a_large_fetch_answer_goes_on_while_it_arrives_with_its_throttle_written() -> None:
    """10 MiB at 1 MiB/s with 1 s of burst: 9 s owed; at most 3 s (no session timeout seen), 2 s written."""
    size = 10 * MIB
    received = fetch_answer_of(size)
    shell = Shell(session_of(fetch_rate=MIB))
    shell.client_sends(fetch())
    for start in range(0, size, 64 * KIB):
        shell.broker_sends(received[start : start + 64 * KIB])
        assert len(shell.to_client) == min(start + 64 * KIB, size)
    assert shell.to_client == fetch_answer_of(size, throttle_ms=2_000)
    assert shell.records[0].response_bytes == size
    assert shell.state is State.MUTED


def test_a_large_answer_counts_once_however_it_arrives() -> None:
    shell = Shell(session_of(fetch_rate=MIB))
    for correlation_id, size in ((1, 900 * KIB), (2, 100 * KIB)):
        shell.client_sends(fetch(correlation_id=correlation_id))
        large = fetch_answer_of(size, correlation_id=correlation_id)
        for start in range(0, len(large), 10_000):
            shell.broker_sends(large[start : start + 10_000])
    sensor = shell.sensor(QuotaKind.FETCH)
    assert sensor.charged == 1_000 * KIB
    assert [record.response_bytes for record in shell.records] == [900 * KIB, 100 * KIB]


# What a Fetch may ask for -------------------------------------------------------------------------------


def test_a_fetch_may_ask_for_what_its_bucket_holds() -> None:
    """1,000 B/s and a full bucket: 1,000 of the 50,000,000 asked for; less than that is left as it is."""
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(max_bytes=50_000_000))
        << ToBroker(fetch(max_bytes=1_000))
    ).done()
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(max_bytes=999))
        << ToBroker(fetch(max_bytes=999))
    ).done()


@pytest.mark.parametrize("version", readable_versions(ApiKey.FETCH))
def test_max_bytes_of_every_fetch_version_is_lowered(version: int) -> None:
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(version=version))
        << ToBroker(fetch(version=version, max_bytes=1_000))
    ).done()


@pytest.mark.parametrize("version", readable_versions(ApiKey.SHARE_FETCH))
def test_max_bytes_of_a_share_fetch_is_lowered(version: int) -> None:
    shell = Shell(session_of(fetch_rate=1_000))
    shell.client_sends(
        request(SHARE_FETCH, version, {"groupId": "g", "memberId": "m", "maxBytes": 2**31 - 1})
    )
    assert max_bytes_of(SHARE_FETCH, version, shell.to_broker) == 1_000


def test_connections_that_fetch_share_what_the_bucket_holds() -> None:
    """Batches of 100 B are known. Alone 1,000 B, less than ten of them: nine whole ones and the rest is left.
    With two connections, of 1,000 B: 500."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    first, second = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    first.client_sends(fetch())
    next(iter(shared.quotas.sensors())).fetch_queue().batches.saw([100], first.now_ms)
    first.broker_sends(answer(FETCH, 12))
    for shell in (first, second):
        shell.to_broker.clear()
    second.client_sends(fetch())
    first.client_sends(fetch(correlation_id=2))
    asked = [max_bytes_of(FETCH, 12, shell.to_broker) for shell in (second, first)]
    assert asked == [400, 200]


def test_changing_its_client_id_does_not_make_two_fetchers_of_one_connection() -> None:
    """All client ids of the user share one bucket here."""
    shell = Shell(session_of(fetch_rate=1_000))
    for i in range(10):
        shell.client_sends(fetch(client_id=f"app-{i % 2}", correlation_id=i))
        shell.broker_sends(answer(FETCH, 12, correlation_id=i))
    assert shell.sensor(QuotaKind.FETCH).fetch_queue().connections == 1


def test_a_connection_counts_in_each_bucket_that_it_fetches_from_while_it_does() -> None:
    """Each client id has its own."""
    shared = shared_of(QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": 1_000})]))
    other, shell = (Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(2))
    other.client_sends(fetch(client_id="b"))
    other.broker_sends(answer(FETCH, 12))
    for correlation_id, client_id in ((1, "a"), (2, "b")):
        shell.client_sends(fetch(client_id=client_id, correlation_id=correlation_id))
        shell.broker_sends(answer(FETCH, 12, correlation_id=correlation_id))
    queues = {sensor.entity.client_id: sensor.fetch_queue() for sensor in shared.quotas.sensors()}
    assert {client_id: queue.connections for client_id, queue in queues.items()} == {"a": 0, "b": 2}
    for closing in (other, shell):
        closing.session.closed(closing.now_ms)
    assert [queue.connections for queue in queues.values()] == [0, 0]


# Who asks -----------------------------------------------------------------------------------------------


def test_each_client_id_on_a_connection_has_its_own_bucket_and_its_own_records() -> None:
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"producer_byte_rate": 1_000})])
    shared = shared_of(limits)
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(
        produce_of(300, client_id="a", correlation_id=1) + produce_of(400, client_id="b", correlation_id=2)
    )
    shell.broker_sends(produce_answer(correlation_id=1) + produce_answer(correlation_id=2))
    charged = {sensor.entity.client_id: sensor.charged for sensor in shared.quotas.sensors()}
    assert charged == {"a": 300, "b": 400}
    assert [(record.client_id, record.request_bytes) for record in shell.records] == [("a", 300), ("b", 400)]


@pytest.mark.parametrize("length", [b"\xff\xff", b"\x00\x00", b"\xff\xfe", b"\x80\x00"])
def test_a_null_or_empty_client_id_has_the_default_clients_limit(length: bytes) -> None:
    """−1 and, as Kafka reads it, any other negative length is null; null and empty share a bucket."""
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"producer_byte_rate": 1_000})])
    shared = shared_of(limits)
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(produce_of(300, client_id=""))
    frame = bytearray(produce_of(400, client_id=None))
    frame[12:14] = length
    shell.client_sends(bytes(frame))
    assert [(sensor.entity.client_id, sensor.charged) for sensor in shared.quotas.sensors()] == [("", 700)]
    assert shell.session.client_id == ""


def test_quotas_that_were_reloaded_apply_from_the_next_request_on() -> None:
    shared = shared_of(limits_of(produce_rate=1_000))
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(produce_of(300))
    shared.quotas.reload(QuotaLimits([]), shell.now_ms)
    shell.client_sends(produce_of(300_000))
    assert not shell.is_delayed
    shared.quotas.reload(limits_of(produce_rate=1_000), shell.now_ms)
    shell.client_sends(produce_of(1_001))
    assert shell.state is State.MUTED


# Other requests -----------------------------------------------------------------------------------------


def test_a_request_of_an_unknown_api_passes_and_so_does_its_answer() -> None:
    unknown = bytearray(request(HEARTBEAT, 0))
    unknown[4:8] = b"\x7f\x01\x00\x63"
    (
        Playbook(session_of())
        >> Client(bytes(unknown))
        << ToBroker(bytes(unknown))
        >> Broker(sized(struct.pack(">i", 1)))
        << ToClient(sized(struct.pack(">i", 1)))
    ).done()


def test_a_version_of_an_unmetered_api_that_nobody_knows_passes() -> None:
    """Even of JoinGroup, whose layout would then be a guess: a session timeout is no reason to close."""
    for api_key in (METADATA, HEARTBEAT, JOIN_GROUP):
        frame = sized(struct.pack(">hhih", api_key, 99, 1, 0))
        (Playbook(session_of()) >> Client(frame) << ToBroker(frame)).done()


def test_an_api_versions_answer_offers_no_version_beyond_our_tables() -> None:
    keys: list[Value] = [
        {"apiKey": PRODUCE, "minVersion": 3, "maxVersion": 99},
        {"apiKey": FETCH, "minVersion": 4, "maxVersion": 5},
    ]
    shell = Shell(session_of())
    shell.client_sends(request(API_VERSIONS, 3))
    shell.broker_sends(answer(API_VERSIONS, 3, {"apiKeys": keys}))
    keys[0] = {"apiKey": PRODUCE, "minVersion": 3, "maxVersion": OFFERED[PRODUCE][1]}
    assert decoded("response", API_VERSIONS, 3, shell.to_client).body["apiKeys"] == keys


# Ends ---------------------------------------------------------------------------------------------------


def test_a_client_that_closed_is_finished_when_its_last_answer_has_gone() -> None:
    shell = Shell(session_of())
    shell.client_sends(request(METADATA, 12) + fetch(correlation_id=2))
    shell.client_leaves()
    assert shell.state is State.ENDING
    assert shell.cause is DisconnectCause.CLIENT_CLOSED
    shell.broker_sends(answer(METADATA, 12))
    received = fetch_answer_of(5_000, correlation_id=2)
    shell.broker_sends(received[:4_999])
    assert not shell.session.finished
    shell.broker_sends(received[4_999:])
    assert shell.session.finished


def test_drain_lets_what_is_in_flight_be_answered_and_begins_nothing() -> None:
    (
        Playbook(session_of())
        >> Client(request(METADATA, 12))
        << ToBroker(request(METADATA, 12))
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
        >> Client(request(METADATA, 12, correlation_id=2))
        >> Broker(answer(METADATA, 12))
        << ToClient(answer(METADATA, 12))
    ).done()


def test_drain_reads_on_a_frame_that_is_half_read_and_nothing_behind_it() -> None:
    frame = produce_of(5_000)
    playbook = (
        Playbook(session_of())
        >> Client(frame[:3_000])
        << ToBroker(frame[:3_000])
        >> Drain()
        >> Client(frame[3_000:] + produce_of(100, correlation_id=2))
        << ToBroker(frame[3_000:])
        << Ending(DisconnectCause.DRAINED)
    )
    shell = playbook.done()
    assert not shell.session.finished
    shell.broker_sends(produce_answer())
    assert shell.session.finished


def test_drain_forgets_a_frame_of_which_nothing_has_gone_on() -> None:
    """Its first ten bytes were kept to be judged: the broker has seen none of it."""
    (
        Playbook(session_of())
        >> Client(produce_of(500)[:10])
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
        >> Client(produce_of(500)[10:])
    ).done()


def test_its_repr_tells_who_it_is_and_what_it_waits_for() -> None:
    shell = Shell(session_of(produce_rate=1_000))
    shell.client_sends(produce_of(1_500))
    assert repr(shell.session) == "<Session ANONYMOUS/app MUTED, 1 in flight>"
