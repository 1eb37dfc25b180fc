"""request_percentage at a session: charged when answered, told in the answer, muted for at most a window.

A request costs 10 ms of broker threads here unless said otherwise. A limit of 10 % is 100 ms a second, so a
full bucket is ten requests, and each one more takes 100 ms to be paid.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from sluice.protocol._tables import THROTTLE
from sluice.protocol.apis import CLUSTER_ACTIONS, OFFERED
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.gateway.broker_map import BrokerMap
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT
from sluice.proxy.session.policy import SharedState
from sluice.proxy.session.request_time import IN_FLIGHT_WITHIN_QUOTA
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import EventKind
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    TOPIC_ID,
    answer,
    decoded,
    fetch,
    fetch_answer_of,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
    throttle_of,
)
from testkit.proxy.request_time_session import (
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

# What is charged ------------------------------------------------------------------------------------------


def test_a_finished_request_is_charged_its_model_cost() -> None:
    shell = shell_of(policy=policy_of(RequestCosts([CostRow(Coefficients(2.0, 0.01, 0.02))])))
    sent, answered = metadata(), metadata_answer()
    exchange(shell, sent, answered)
    charged = shell.sensor(QuotaKind.REQUEST).charged
    assert charged == pytest.approx(2.0 + 0.01 * len(sent) + 0.02 * len(answered))


def test_a_request_costs_no_more_than_the_broker_took_to_answer_it() -> None:
    shell = shell_of()
    exchange(shell, metadata(), metadata_answer(), upstream_ms=3.0)
    assert shell.sensor(QuotaKind.REQUEST).charged == pytest.approx(3.0)


def test_a_produce_is_charged_by_compression_batches_and_records() -> None:
    costs = RequestCosts([
        CostRow(Coefficients(1.0, batch_ms=0.5, record_ms=0.125), PRODUCE, codec=1, acks_all=True),
        CostRow(Coefficients(0.0)),
    ])  # fmt: skip
    gzip = bytearray(record_batch(count=8))
    gzip[22] = 1
    for version in (8, 9, 13):
        shell = shell_of(policy=policy_of(costs))
        topics = {TOPIC_ID if version == 13 else "orders": [(0, bytes(gzip)), (1, bytes(gzip))]}
        exchange(shell, produce(topics, version=version, acks=-1), produce_answer(version=version))
        assert shell.sensor(QuotaKind.REQUEST).charged == pytest.approx(1.0 + 2 * 0.5 + 16 * 0.125), version


def test_produce_requests_ahead_of_their_answers_keep_their_own_costs() -> None:
    shell = shell_of(policy=policy_of(RequestCosts([CostRow(Coefficients(record_ms=1.0))])))
    for number, count in enumerate((3, 5), start=1):
        shell.client_sends(produce({"t": [(0, record_batch(count=count))]}, correlation_id=number))
    shell.client_sends(produce({"t": [(0, record_batch(count=70))]}, correlation_id=3, acks=0))
    shell.advance(UPSTREAM_MS)
    shell.broker_sends(produce_answer(correlation_id=1))
    assert shell.sensor(QuotaKind.REQUEST).charged == 3.0
    shell.broker_sends(produce_answer(correlation_id=2))
    assert shell.sensor(QuotaKind.REQUEST).charged == 8.0


def test_a_limit_that_comes_while_requests_are_under_way_counts_them_as_small_and_the_next_as_they_are() -> (
    None
):
    costs = RequestCosts([CostRow(Coefficients(record_ms=1.0))])
    shell = shell_of(shared_of(limits_of({"producer_byte_rate": 10**9})), policy_of(costs))
    shell.client_sends(produce({"t": [(0, record_batch(count=30))]}, correlation_id=1))
    shell.shared.quotas.reload(limits_of(), shell.now_ms)
    shell.client_sends(produce({"t": [(0, record_batch(count=7))]}, correlation_id=2))
    shell.advance(UPSTREAM_MS)
    shell.broker_sends(produce_answer(correlation_id=1) + produce_answer(correlation_id=2))
    assert shell.sensor(QuotaKind.REQUEST).charged == 1.0 + 7.0


def test_a_produce_without_an_answer_is_never_charged() -> None:
    shell = shell_of()
    spend(shell, 500.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    shell.client_sends(produce_of(5_000, acks=0))
    assert shell.sensor(QuotaKind.REQUEST).charged == before
    assert shell.state is State.READING


def test_a_fetch_that_claims_to_be_a_replicas_is_charged_like_any_other() -> None:
    shell = shell_of()
    body: Struct = {"replicaId": 1, "maxWaitMs": 500, "maxBytes": 1_000_000}
    exchange(shell, request(FETCH, 12, body), fetch_answer_of(1_000))
    assert shell.sensor(QuotaKind.REQUEST).charged == 10.0


def test_a_client_without_the_limit_charges_nothing() -> None:
    shell = shell_of(shared_of(limits_of({"producer_byte_rate": 1_000})))
    exchange(shell, metadata(), metadata_answer())
    assert not [one for one in shell.shared.quotas.sensors() if one.kind is QuotaKind.REQUEST]
    assert shell.session.pace.max_in_flight == MAX_IN_FLIGHT


def test_a_request_is_charged_to_the_client_id_that_sent_it() -> None:
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"request_percentage": 10.0})])
    shell = shell_of(shared_of(limits))
    shell.client_sends(metadata(1, "one") + metadata(2, "two"))
    shell.advance(UPSTREAM_MS)
    shell.broker_sends(metadata_answer(1))
    charged = {one.entity.client_id: one.charged for one in shell.shared.quotas.sensors()}
    assert charged == {"one": 10.0, "two": 0}


def test_a_limit_that_is_taken_away_leaves_nothing_behind() -> None:
    shell = shell_of()
    spend(shell, 300.0)
    shell.shared.quotas.reload(limits_of({"producer_byte_rate": 1_000_000}), shell.now_ms)
    exchange(shell, metadata(), metadata_answer())
    assert shell.state is State.READING
    assert shell.session.pace.max_in_flight == MAX_IN_FLIGHT


# What an answer tells, and the mute -----------------------------------------------------------------------


def test_within_the_quota_nothing_is_told_and_nobody_waits() -> None:
    shell = shell_of()
    for _ in range(10):
        assert exchange(shell, metadata(), metadata_answer(), 20.0) == metadata_answer()
    assert shell.state is State.READING
    assert not shell.events


def test_over_the_quota_the_answer_tells_the_delay_and_the_connection_is_muted_for_it() -> None:
    shell = shell_of()
    spend(shell, 0.0)
    got = exchange(shell, metadata(), metadata_answer())  # 50 ms pay 5 ms of the 10
    assert throttle_of(METADATA, 9, got) == 50
    assert muted_ms(shell) == pytest.approx(50.0)
    (event,) = shell.events
    assert (event.kind, event.quota, event.api_key, event.charged_bytes) == (
        EventKind.MUTE,
        "request",
        METADATA,
        0,
    )
    assert event.delay_ms == pytest.approx(50.0)


def test_the_delay_is_at_most_one_window() -> None:
    shell = shell_of()
    spend(shell, 5_000.0)
    got = exchange(shell, metadata(), metadata_answer())
    assert throttle_of(METADATA, 9, got) == 1_000
    assert muted_ms(shell) == pytest.approx(1_000.0)


def test_the_brokers_own_throttle_time_is_never_lowered() -> None:
    shell = shell_of()
    spend(shell, 10.0)
    got = exchange(shell, metadata(), metadata_answer(body={"throttleTimeMs": 30_000}))
    assert throttle_of(METADATA, 9, got) == 30_000


@pytest.mark.parametrize("api_key", sorted(set(OFFERED) - CLUSTER_ACTIONS - {SASL_HANDSHAKE, 36}))
def test_every_answer_that_has_the_field_tells_its_delay_and_every_one_is_followed_by_it(
    api_key: int,
) -> None:
    with_field = {
        version for first, last, *_ in THROTTLE.get(api_key, ()) for version in range(first, last + 1)
    }
    first, last = OFFERED[api_key]
    first = max(first, 4 if api_key == FETCH else 3 if api_key == PRODUCE else first)
    for version in range(first, last + 1):
        shell = shell_of()
        spend(shell, 200.0)
        body: Struct = {"acks": 1} if api_key == PRODUCE else {}
        if api_key in {FETCH, SHARE_FETCH}:
            body = {"maxBytes": 1}
        got = exchange(shell, request(api_key, version, body), answer(api_key, version))
        assert muted_ms(shell) == pytest.approx(1_000.0), version
        shown = decoded("response", api_key, version, got).body
        assert ("throttleTimeMs" in shown) == (version in with_field)
        if version in with_field:
            assert shown["throttleTimeMs"] == 1_000, version
        shown["throttleTimeMs"] = 0
        plain = decoded("response", api_key, version, answer(api_key, version)).body
        plain["throttleTimeMs"] = 0
        assert shown == plain


def test_a_client_that_ignores_what_it_is_told_is_held_by_the_mute() -> None:
    shell = shell_of()
    spend(shell, 30.0)
    exchange(shell, metadata(), metadata_answer())
    shell.to_broker.clear()
    shell.client_sends(metadata(2))
    shell.advance(349.0)
    assert not shell.to_broker
    shell.advance(2.0)
    assert shell.to_broker == metadata(2)


def test_a_large_answer_tells_its_delay_before_its_end_has_arrived() -> None:
    shell = shell_of()
    spend(shell, 200.0)
    answered = fetch_answer_of(3_000_000)
    shell.client_sends(fetch())
    shell.advance(UPSTREAM_MS)
    shell.broker_sends(answered[:500_000])
    assert len(shell.to_client) == 500_000
    assert muted_ms(shell) == pytest.approx(1_000.0)
    shell.broker_sends(answered[500_000:])
    assert throttle_of(FETCH, 12, bytes(shell.to_client)) == 1_000
    assert bytes(shell.to_client[30:]) == answered[30:]


@pytest.mark.parametrize("cut", [3, 9, 20, 1_500])
def test_an_answer_in_two_pieces_is_told_and_charged_once(cut: int) -> None:
    shell = shell_of()
    spend(shell, 200.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    topics: list[Any] = [{"name": "t" * 100} for _ in range(30)]
    answered = metadata_answer(body={"topics": topics})
    shell.client_sends(metadata())
    shell.advance(UPSTREAM_MS)
    shell.broker_sends(answered[:cut])
    shell.broker_sends(answered[cut:])
    assert throttle_of(METADATA, 9, bytes(shell.to_client)) == 1_000
    assert shell.sensor(QuotaKind.REQUEST).charged - before == 10.0


# Requests ahead of their answers, and the bound -----------------------------------------------------------


def test_while_its_entity_owes_a_connection_has_one_request_under_way() -> None:
    shell = shell_of()
    spend(shell, 30.0)
    exchange(shell, metadata(), metadata_answer())
    shell.advance(350.0)
    shell.to_broker.clear()
    shell.client_sends(b"".join(metadata(number) for number in range(2, 12)))
    assert shell.to_broker == metadata(2)
    shell.advance(10.0)
    shell.broker_sends(metadata_answer(2))
    assert shell.to_broker == metadata(2)
    assert shell.state is State.MUTED
    shell.advance(100.0)
    assert shell.to_broker == metadata(2) + metadata(3)


def test_a_new_connection_of_an_entity_in_debt_waits_and_begins_with_one_request_under_way() -> None:
    """For a window at most: to connect anew clears no debt."""
    shared = shared_of()
    spend(shell_of(shared), 500.0)
    shell = shell_of(shared)
    shell.client_sends(b"".join(metadata(number) for number in range(1, 9)))
    assert (shell.state, shell.session.pace.wake_at_ms - shell.now_ms) == (State.MUTED, 1_000)
    assert not shell.to_broker
    shell.advance(1_000)
    assert shell.to_broker == metadata(1)


def test_who_has_come_waits_no_second_time_when_its_limits_are_looked_up_again() -> None:
    """What its user owes by then is waited for behind its answers."""
    shell = shell_of()
    exchange(shell, metadata(), metadata_answer())
    shell.sensor(QuotaKind.REQUEST).charge(1_000.0, shell.now_ms)
    shell.shared.quotas.reload(limits_of(), shell.now_ms)
    shell.to_broker.clear()
    shell.client_sends(metadata(2))
    assert shell.to_broker == metadata(2)


def test_within_the_quota_a_connection_has_a_few_requests_under_way() -> None:
    shell = shell_of()
    shell.client_sends(b"".join(metadata(number) for number in range(1, 21)))
    assert shell.session.in_flight == IN_FLIGHT_WITHIN_QUOTA
    for number in range(1, 21):
        shell.advance(1.0)
        shell.broker_sends(metadata_answer(number))
    assert shell.session.in_flight == 0
    assert shell.to_broker.endswith(metadata(20))


class Flood:
    """A client that sends ahead whatever is read; the broker works on one request of it at a time."""

    def __init__(self, shared: SharedState, request_ms: float) -> None:
        self.shell = shell_of(shared, policy_of(RequestCosts([CostRow(Coefficients(request_ms))])))
        self.request_ms = request_ms
        self.ready_ms = inf
        self.worked: list[float] = []
        self.shell.client_sends(b"".join(metadata() for _ in range(2_000)))

    def step(self, now_ms: float) -> None:
        shell = self.shell
        shell.advance(now_ms - shell.now_ms)
        if self.ready_ms <= now_ms:
            self.ready_ms = inf
            self.worked.append(now_ms)
            shell.broker_sends(metadata_answer())
        if self.ready_ms == inf and shell.session.in_flight:
            self.ready_ms = now_ms + self.request_ms


@pytest.mark.parametrize(
    ("connections", "request_ms", "bound_ms"),
    [(3, 20.0, 100.0), (5, 20.0, 100.0), (20, 20.0, 400.0), (1, 200.0, 200.0)],
)
def test_the_most_that_passes_is_the_quota_or_one_request_of_each_connection_a_window(
    connections: int, request_ms: float, bound_ms: float
) -> None:
    """KIP-124: max(quota, C · R). Here the quota is 100 ms of a thread in each second."""
    shared = shared_of()
    floods = [Flood(shared, request_ms) for _ in range(connections)]
    start_ms = floods[0].shell.now_ms
    for step in range(1, 6_001):
        for flood in floods:
            flood.step(start_ms + step * 5.0)
    worked = sorted(at_ms - start_ms for flood in floods for at_ms in flood.worked)
    settled = [at_ms for at_ms in worked if at_ms >= 10_000.0]
    per_window_ms = len(settled) * request_ms / 20.0
    assert per_window_ms <= bound_ms * 1.02
    assert per_window_ms >= bound_ms * 0.7
    for begin_ms in range(10_000, 29_000, 250):
        within = sum(begin_ms <= at_ms < begin_ms + 1_000 for at_ms in settled)
        assert within * request_ms <= bound_ms + connections * request_ms


def test_an_answer_to_api_versions_of_error_35_is_charged_and_left_as_it_is() -> None:
    shell = shell_of()
    spend(shell, 500.0)
    body: Struct = {"errorCode": 35, "apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}]}
    answered = answer(API_VERSIONS, 0, body)
    assert exchange(shell, request(API_VERSIONS, 4), answered) == answered
    assert muted_ms(shell) == pytest.approx(1_000.0)


def test_a_gateway_tells_the_delay_in_an_answer_whose_addresses_it_rewrites() -> None:
    brokers = BrokerMap("gateway.example", 9100, 0, 8, bind_port=9092)
    shell = shell_of(policy=policy_of(broker_map=brokers))
    spend(shell, 500.0)
    nodes: list[Any] = [{"nodeId": 3, "host": "kafka-3", "port": 9092}]
    got = exchange(shell, metadata(), metadata_answer(body={"brokers": nodes}))
    body = decoded("response", METADATA, 9, got).body
    assert body["throttleTimeMs"] == 1_000
    assert body["brokers"] == [{"nodeId": 3, "host": "gateway.example", "port": 9103, "rack": None}]
