"""Whom request_percentage delays less than it charges, or not at all, and which of two delays counts."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from sluice.protocol.apis import CLASSES, FLEXIBLE_WHEN_REMOVED, ApiClass, ApiKey
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from testkit.frames.frames import (
    FETCH,
    HEARTBEAT,
    METADATA,
    SASL_HANDSHAKE,
    TOPIC_ID,
    answer,
    fetch,
    fetch_answer_of,
    legacy_set,
    produce,
    produce_answer,
    record_batch,
    request,
    sized,
    throttle_of,
)
from testkit.proxy.playbook import Shell
from testkit.proxy.request_time_session import (
    ANYBODY,
    UPSTREAM_MS,
    exchange,
    limits_of,
    metadata,
    metadata_answer,
    muted_ms,
    policy_of,
    shared_of,
    shell_of,
    spend,
)

WRITE_TXN_MARKERS = 27
CLUSTER_AUTHORIZATION_FAILED = 31
ILLEGAL_SASL_STATE = 34


def both() -> Shell:
    return shell_of(shared_of(limits_of({"request_percentage": 10.0, "consumer_byte_rate": 1_000})))


@pytest.mark.parametrize(
    ("owed_ms", "answer_bytes", "muted", "quotas"),
    [(60.0, 1_500, 650.0, ["fetch", "request"]), (5.0, 1_750, 750.0, ["fetch"])],
)
def test_of_two_delays_the_larger_counts(
    owed_ms: float, answer_bytes: int, muted: float, quotas: list[str]
) -> None:
    """Of request time 600 or 50 ms' worth was owed; 50 ms pass until the answer, which adds 100."""
    shell = both()
    spend(shell, owed_ms)
    got = exchange(shell, fetch(), fetch_answer_of(answer_bytes))
    assert muted_ms(shell) == pytest.approx(muted)
    assert throttle_of(FETCH, 12, got) == muted
    assert [event.quota for event in shell.events] == quotas


def test_a_limit_in_shadow_mode_is_measured_and_delays_nobody() -> None:
    shell = shell_of(shared_of(limits_of(shadow={ANYBODY: {"request_percentage"}})))
    spend(shell, 0.0)
    for _ in range(5):
        assert exchange(shell, metadata(), metadata_answer(), 50.0) == metadata_answer()
    assert shell.state is State.READING
    assert {event.kind for event in shell.events} == {EventKind.SHADOW}
    assert [event.delay_ms for event in shell.events] == [pytest.approx(50.0)] * 5


@pytest.mark.parametrize(
    "limits",
    [limits_of(shadow={ANYBODY: {"request_percentage"}}), limits_of(exempt=[ExemptRule(user="ANONYMOUS")])],
    ids=["in shadow mode", "exempt"],
)
def test_who_is_only_measured_may_send_as_far_ahead_as_without_a_limit(limits: QuotaLimits) -> None:
    shell = shell_of(shared_of(limits))
    sent = b"".join(metadata(number) for number in range(1, 101))
    shell.client_sends(sent)
    assert shell.to_broker == sent
    assert shell.state is State.READING
    shell.advance(UPSTREAM_MS)
    for number in range(1, 101):
        shell.broker_sends(metadata_answer(number))
        assert shell.session.pace.max_in_flight == MAX_IN_FLIGHT


def test_an_exempt_client_is_measured_and_never_delayed() -> None:
    shell = shell_of(shared_of(limits_of(exempt=[ExemptRule(user="ANONYMOUS")])))
    for _ in range(50):
        assert exchange(shell, metadata(), metadata_answer()) == metadata_answer()
    assert shell.state is State.READING
    assert shell.shared.recorder.exempt_request_ms["rule"] == 500.0


def test_an_exempt_rule_measures_no_request_time_where_there_is_no_limit_on_it() -> None:
    limits = limits_of({"producer_byte_rate": 1_000}, exempt=[ExemptRule(user="ANONYMOUS")])
    shell = shell_of(shared_of(limits))
    exchange(shell, metadata(), metadata_answer())
    assert shell.shared.recorder.exempt_request_ms["rule"] == 0.0


def test_in_kafkas_pacing_the_delay_is_x_of_kip_124_and_at_most_one_window() -> None:
    """T = 100 ms/s. N − 1 windows count at least, and what of the current one is over: W."""
    shell = shell_of(shared_of(pacing="kafka"))
    begun_ms = shell.now_ms
    for _ in range(100):
        exchange(shell, metadata(), metadata_answer(), 10.0)
        assert not muted_ms(shell)
    got = exchange(shell, metadata(), metadata_answer(), 10.0)
    window_ms = 10_000 + (shell.now_ms - begun_ms) % 1_000
    observed = 101 * 10.0 / (window_ms / 1_000)
    assert throttle_of(METADATA, 9, got) == round((observed - 100) / 100 * window_ms)
    shell.sensor(QuotaKind.REQUEST).charge(100_000.0, shell.now_ms)
    shell.advance(5_000.0)
    assert throttle_of(METADATA, 9, exchange(shell, metadata(), metadata_answer(), 10.0)) == 1_000


# Groups, cluster actions, logins --------------------------------------------------------------------------


def test_a_heartbeat_is_throttled_for_at_most_a_window_and_its_connection_for_two_seconds_in_all() -> None:
    shell = shell_of()
    spend(shell, 5_000.0)
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1))
    shell.advance(UPSTREAM_MS)
    shell.broker_sends(answer(HEARTBEAT, 4))
    assert muted_ms(shell) == pytest.approx(1_000.0)
    assert throttle_of(HEARTBEAT, 4, bytes(shell.to_client)) == 1_000


def test_delays_that_follow_each_other_on_a_groups_connection_end_after_two_seconds() -> None:
    """Answers that come while it is muted lengthen the mute, up to group_max_ms."""
    policy = policy_of(delays=DelayLimits(request_max_ms=1_500.0))
    shell = shell_of(policy=policy)
    frames = b"".join(request(HEARTBEAT, 4, correlation_id=number) for number in range(1, 5))
    shell.client_sends(frames)
    sensor = shell.sensor(QuotaKind.REQUEST)
    sensor.charge(5_000.0, shell.now_ms)
    begun_ms = shell.now_ms + UPSTREAM_MS
    for number in range(1, 5):
        shell.advance(UPSTREAM_MS if number == 1 else 400.0)
        shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=number))
    assert shell.session.pace.wake_at_ms == pytest.approx(begun_ms + 2_000.0)


def txn_markers_answer(error: int) -> bytes:
    partitions: list[Any] = [{"partitionIndex": 0, "errorCode": error}]
    topics: list[Any] = [{"name": "t", "partitions": partitions}]
    return answer(WRITE_TXN_MARKERS, 1, {"markers": [{"producerId": 1, "topics": topics}]})


def test_a_cluster_action_is_exempt_and_its_time_counted() -> None:
    shell = shell_of()
    spend(shell, 500.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    exchange(shell, request(WRITE_TXN_MARKERS, 1), txn_markers_answer(0))
    assert shell.state is State.READING
    assert shell.sensor(QuotaKind.REQUEST).charged == before
    assert shell.shared.recorder.exempt_request_ms["cluster_action"] == 10.0


def test_a_cluster_action_is_counted_where_nobody_has_a_limit() -> None:
    shell = shell_of(shared_of(limits_of({"producer_byte_rate": 1_000})))
    exchange(shell, request(WRITE_TXN_MARKERS, 1), txn_markers_answer(0))
    assert shell.shared.recorder.exempt_request_ms["cluster_action"] == 10.0


def test_a_cluster_action_that_the_broker_refuses_its_sender_is_throttled() -> None:
    shell = shell_of()
    spend(shell, 500.0)
    exchange(shell, request(WRITE_TXN_MARKERS, 1), txn_markers_answer(CLUSTER_AUTHORIZATION_FAILED))
    assert muted_ms(shell) == pytest.approx(1_000.0)
    assert shell.shared.recorder.exempt_request_ms["cluster_action"] == 0.0


def removed_api(api_key: int, version: int) -> bytes:
    """Of an API that Kafka 4 has no schema of: its body is not looked at."""
    head = struct.pack(">hhih", api_key, version, 1, 3) + b"app"
    return sized(head + b"\0" * 12)


def removed_api_answer(api_key: int, version: int, error: int) -> bytes:
    tags = b"\0" if version >= FLEXIBLE_WHEN_REMOVED[api_key] else b""
    return sized(struct.pack(">i", 1) + tags + struct.pack(">h", error) + b"\0" * 8)


REMOVED = [
    (api_key, version)
    for api_key, flexible in FLEXIBLE_WHEN_REMOVED.items()
    for version in (flexible - 1, flexible)
]


def test_what_kip_124_names_is_exempt() -> None:
    names = {"LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN"}
    assert {ApiKey(key).name for key in FLEXIBLE_WHEN_REMOVED} == names
    assert CLASSES[ApiClass.KIP_124_EXEMPT] == FLEXIBLE_WHEN_REMOVED.keys()
    assert CLASSES[ApiClass.KIP_124_EXEMPT] < CLASSES[ApiClass.CLUSTER_ACTION]


@pytest.mark.parametrize("pass_unknown_apis", [True, False])
@pytest.mark.parametrize(("api_key", "version"), REMOVED)
def test_an_api_that_kip_124_names_is_exempt_though_kafka_4_has_it_no_more(
    api_key: int, version: int, pass_unknown_apis: bool
) -> None:
    shell = shell_of(policy=policy_of(pass_unknown_apis=pass_unknown_apis))
    spend(shell, 500.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    exchange(shell, removed_api(api_key, version), removed_api_answer(api_key, version, 0))
    assert shell.state is State.READING
    assert shell.sensor(QuotaKind.REQUEST).charged == before
    assert shell.shared.recorder.exempt_request_ms["cluster_action"] == 10.0


@pytest.mark.parametrize(("api_key", "version"), REMOVED)
def test_an_api_that_kip_124_names_is_throttled_if_the_broker_refuses_it(api_key: int, version: int) -> None:
    shell = shell_of()
    spend(shell, 500.0)
    refused = removed_api_answer(api_key, version, CLUSTER_AUTHORIZATION_FAILED)
    exchange(shell, removed_api(api_key, version), refused)
    assert muted_ms(shell) == pytest.approx(1_000.0)
    assert shell.shared.recorder.exempt_request_ms["cluster_action"] == 0.0


def test_a_handshake_outside_of_a_login_is_throttled() -> None:
    shell = shell_of()
    spend(shell, 500.0)
    refused = answer(SASL_HANDSHAKE, 1, {"errorCode": ILLEGAL_SASL_STATE})
    exchange(shell, request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}), refused)
    assert muted_ms(shell) == pytest.approx(1_000.0)


def test_a_login_is_exempt() -> None:
    shared = shared_of()
    shell = shell_of(shared, policy_of(authentication_required=True))
    exchange(shell, request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}), answer(SASL_HANDSHAKE, 1))
    token: Struct = {"authBytes": b"\0alice\0secret".hex()}
    exchange(shell, request(36, 2, token), answer(36, 2))
    assert shell.session.user == "alice"
    assert not list(shared.quotas.sensors())
    exchange(shell, metadata(), metadata_answer())
    assert shell.sensor(QuotaKind.REQUEST).charged == 10.0
    exchange(shell, request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}), answer(SASL_HANDSHAKE, 1))
    exchange(shell, request(36, 2, token), answer(36, 2))  # KIP-368
    assert shell.sensor(QuotaKind.REQUEST).charged == 10.0


def test_a_produce_whose_batches_cannot_be_read_ends_its_connection_as_under_a_limit_on_producer_ids() -> (
    None
):
    """It would go uncharged, and what Sluice cannot read a broker may."""
    shell = shell_of()
    broken = bytearray(produce({"orders": [(0, record_batch(bytes(30)))]}))
    at = bytes(broken).index(b"orders") + len(b"orders")
    broken[at] = 0x7F  # 126 partitions, where there is one
    shell.client_sends(bytes(broken))
    assert (shell.cause, bytes(shell.to_broker)) == (DisconnectCause.MALFORMED_FRAME, b"")


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("first_bytes", [60, 5_000])
def test_a_produce_in_two_pieces_costs_as_much_as_a_whole_one(first_bytes: int, version: int) -> None:
    """100 batches of two records, 1 ms each."""
    topic = TOPIC_ID if version >= 13 else "orders"
    frame = produce({topic: [(0, record_batch(bytes(60), count=2))] * 100}, version=version)
    costs = RequestCosts([CostRow(Coefficients(10.0, batch_ms=1.0, record_ms=1.0))])
    shell = shell_of(policy=policy_of(costs))
    shell.client_sends(frame[:first_bytes])
    assert not shell.to_broker
    shell.client_sends(frame[first_bytes:])
    assert bytes(shell.to_broker) == frame
    shell.advance(1_000.0)
    shell.broker_sends(produce_answer(version=version))
    assert shell.sensor(QuotaKind.REQUEST).charged == 10.0 + 100.0 + 200.0


def test_batches_that_count_no_records_and_a_produce_without_records_are_charged_as_requests() -> None:
    shell = shell_of()
    frames = [
        produce({"orders": [(0, record_batch(bytes(30), count=0))]}),
        produce({"orders": [(0, None)]}),
    ]
    for frame in frames:
        exchange(shell, frame, produce_answer())
    assert shell.to_broker == b"".join(frames)
    assert shell.sensor(QuotaKind.REQUEST).charged == 20.0


def test_the_codec_of_a_message_that_has_not_arrived_so_far_is_not_looked_for_behind_the_bytes() -> None:
    """A message set of magic 1, cut at every byte; what lies behind would be another codec."""
    frame = produce({"orders": [(0, legacy_set(bytes(3_000)))]}, version=3)
    begin = frame.index(b"orders") + 6 + 4 + 4 + 4
    for cut in range(begin, begin + 40):
        shell = shell_of()
        shell.stale = b"\x07"
        shell.client_sends(frame[:cut])
        shell.client_sends(frame[cut:])
        shell.advance(UPSTREAM_MS)
        shell.broker_sends(produce_answer(version=3))
        assert shell.to_broker == frame
        assert shell.sensor(QuotaKind.REQUEST).charged == 10.0


def test_who_has_sat_out_all_that_a_connection_may_be_delayed_is_told_of_nothing_more() -> None:
    """Two answers of an entity that owes 5 s, the second when the delay that the first began is over."""
    shell = shell_of(policy=policy_of(delays=DelayLimits(answer_budget_ms=500)))
    spend(shell, 5_000.0)
    shell.client_sends(metadata(2) + metadata(3))
    shell.broker_sends(metadata_answer(2))
    assert muted_ms(shell) == 500.0
    shell.to_client.clear()
    shell.now_ms += 500.0
    shell.broker_sends(metadata_answer(3))
    assert throttle_of(METADATA, 9, shell.to_client) == 0


def test_a_cluster_action_that_the_broker_refuses_costs_nothing_where_nobody_has_a_limit() -> None:
    shell = shell_of(shared_of(limits_of({"producer_byte_rate": 1_000})))
    refused = txn_markers_answer(CLUSTER_AUTHORIZATION_FAILED)
    assert exchange(shell, request(WRITE_TXN_MARKERS, 1), refused) == refused
    assert shell.state is State.READING
    assert shell.shared.recorder.exempt_request_ms["cluster_action"] == 0.0
