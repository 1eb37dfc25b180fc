"""Which requests between brokers are exempt from request_percentage: of whom, and by which answers; and what
it costs to tell."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.codec.wire import Value
from sluice.proxy.session import request_time
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.request_time import CLUSTER_ACTION_MAX_BYTES
from sluice.quotas.kinds import QuotaKind
from testkit.frames.frames import METADATA, answer, request
from testkit.proxy.playbook import Shell
from testkit.proxy.request_time_session import (
    exchange,
    limits_of,
    muted_ms,
    policy_of,
    shared_of,
    shell_of,
    spend,
)

WRITE_TXN_MARKERS = 27
CLUSTER_AUTHORIZATION_FAILED = 31
KIB = 1_024
BRAKE_MS_PER_KIB = 2.0
NAMED = InterBroker(users=frozenset({"ANONYMOUS"}))
DECLARED = [NAMED, InterBroker(is_listener=True)]
ASKED = request(WRITE_TXN_MARKERS, 1)
BEHIND = request(METADATA, 9, correlation_id=2)


def markers(*errors: int, without_topics: int = 0) -> bytes:
    """An answer to WriteTxnMarkers: markers without topics, 10 bytes each, before one with a partition for
    each error."""
    partitions: list[Value] = [{"partitionIndex": at, "errorCode": error} for at, error in enumerate(errors)]
    told: list[Value] = [{"producerId": 0, "topics": []}] * without_topics
    if errors:
        told.append({"producerId": 1, "topics": [{"name": "t", "partitions": partitions}]})
    return answer(WRITE_TXN_MARKERS, 1, {"markers": told})


def long_answer(size_bytes: int, error: int) -> bytes:
    """With the code at its end, some bytes shorter than that."""
    found = markers(error, without_topics=(size_bytes - len(markers(error))) // 10 - 1)
    assert size_bytes - 30 < len(found) <= size_bytes
    return found


def unlimited(**options: Any) -> Shell:
    """Nobody has a limit on request time."""
    return shell_of(shared_of(limits_of({"producer_byte_rate": 1_000})), policy_of(**options))


def exempt_ms(shell: Shell) -> float:
    return shell.shared.recorder.exempt_request_ms["cluster_action"]


def test_a_refusal_without_any_error_code_is_charged() -> None:
    """Kafka tells error 31 by partition, so a request of markers without topics is refused without a code."""
    shell = shell_of()
    spend(shell, 500.0)
    exchange(shell, ASKED, markers(without_topics=3))
    assert muted_ms(shell) == pytest.approx(1_000.0)
    assert exempt_ms(shell) == 0.0


@pytest.mark.parametrize("size_bytes", [CLUSTER_ACTION_MAX_BYTES, CLUSTER_ACTION_MAX_BYTES + 20, 600 * KIB])
@pytest.mark.parametrize("piece_bytes", [10_000, 2**20])
def test_a_long_answer_is_charged_whatever_it_says_and_however_it_arrives(
    size_bytes: int, piece_bytes: int
) -> None:
    shell = shell_of()
    spend(shell, 500.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    answered = long_answer(size_bytes, 0)
    shell.client_sends(ASKED)
    shell.advance(50.0)
    for start in range(0, len(answered), piece_bytes):
        shell.broker_sends(answered[start : start + piece_bytes])
    assert len(shell.to_client) == len(answered)
    is_short = size_bytes <= CLUSTER_ACTION_MAX_BYTES
    assert exempt_ms(shell) == (10.0 if is_short else 0.0)
    assert shell.sensor(QuotaKind.REQUEST).charged == before + (0.0 if is_short else 10.0)


def test_one_refused_part_of_many_is_a_refusal() -> None:
    shell = shell_of()
    spend(shell, 500.0)
    exchange(shell, ASKED, markers(0, 0, CLUSTER_AUTHORIZATION_FAILED, 0))
    assert muted_ms(shell) == pytest.approx(1_000.0)
    assert exempt_ms(shell) == 0.0


@pytest.fixture
def decoded_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of each answer that was decoded."""
    lengths: list[int] = []

    def noted(kind: Any, api_key: int, version: int, data: bytes) -> Any:
        lengths.append(len(data))
        return decode_frame(kind, api_key, version, data)

    monkeypatch.setattr(request_time, "decode_frame", noted)
    return lengths


@pytest.mark.parametrize("inter_broker", DECLARED)
@pytest.mark.parametrize("size_bytes", [100, 600 * KIB])
@pytest.mark.parametrize("error", [0, CLUSTER_AUTHORIZATION_FAILED])
def test_a_declared_brokers_is_exempt_and_its_answer_goes_on_unread(
    inter_broker: InterBroker, size_bytes: int, error: int, decoded_bytes: list[int]
) -> None:
    shell = shell_of(policy=policy_of(inter_broker=inter_broker))
    spend(shell, 500.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    answered = long_answer(size_bytes, error)
    shell.to_client.clear()
    shell.client_sends(ASKED)
    shell.advance(50.0)
    shell.broker_sends(answered[:-1])
    shell.broker_sends(answered[-1:])
    assert shell.to_client == answered
    assert exempt_ms(shell) == 10.0
    assert shell.sensor(QuotaKind.REQUEST).charged == before
    assert decoded_bytes == []


def test_where_nobody_has_a_limit_no_long_answer_is_decoded(decoded_bytes: list[int]) -> None:
    """One of half a MiB, which any client can bring about, took a third of a second."""
    shell = unlimited()
    for size_bytes in (100, CLUSTER_ACTION_MAX_BYTES, CLUSTER_ACTION_MAX_BYTES + 20, 500 * KIB, 600 * KIB):
        answered = long_answer(size_bytes, CLUSTER_AUTHORIZATION_FAILED)
        assert exchange(shell, ASKED, answered) == answered
        shell.advance(60_000.0)
    assert len(decoded_bytes) == 2
    assert max(decoded_bytes) <= CLUSTER_ACTION_MAX_BYTES
    assert exempt_ms(shell) == 0.0


def test_where_nobody_has_a_limit_either_nothing_of_a_declared_brokers_answer_is_kept() -> None:
    shell = unlimited(inter_broker=NAMED)
    answered = markers(0)
    shell.client_sends(ASKED + BEHIND)
    assert shell.to_broker == ASKED + BEHIND
    shell.broker_sends(answered[:-1])
    assert shell.to_client == answered[:-1]
    assert exempt_ms(shell) == 0.0  # it was answered at once


def test_nothing_is_begun_behind_one_before_its_answer() -> None:
    """No broker sends more than one at a time."""
    shell = unlimited()
    shell.client_sends(ASKED + ASKED + BEHIND)
    assert shell.to_broker == ASKED
    shell.broker_sends(markers(0))
    assert shell.to_broker == ASKED * 2
    shell.broker_sends(markers(0))
    assert shell.to_broker == ASKED * 2 + BEHIND
    assert shell.state is State.READING


def test_who_has_many_answers_decoded_waits_by_their_size() -> None:
    """0.65 ms are taken for each KiB: so a connection has a quarter of the time."""
    shell = unlimited()
    answered = long_answer(CLUSTER_ACTION_MAX_BYTES, CLUSTER_AUTHORIZATION_FAILED)
    brake_ms = len(answered) / KIB * BRAKE_MS_PER_KIB
    shell.client_sends(ASKED * 3 + BEHIND)
    shell.broker_sends(answered)
    assert shell.to_broker == ASKED * 2, "50 ms are free"
    shell.broker_sends(answered)
    shell.advance(2 * brake_ms - 1)
    assert shell.to_broker == ASKED * 2
    shell.advance(2)
    assert shell.to_broker == ASKED * 3


def test_an_undeclared_brokers_usual_ones_wait_for_nothing() -> None:
    shell = unlimited()
    for _ in range(1_000):
        exchange(shell, ASKED, markers(0, 0, 0), upstream_ms=1.0)
        assert shell.state is State.READING
    assert exempt_ms(shell) == 1_000.0
