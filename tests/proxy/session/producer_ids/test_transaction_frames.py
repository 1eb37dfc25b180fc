"""Requests of transactions in parts, too large or of other versions, and what their answers tell."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.flow import AccessFlow, TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import HEARTBEAT, answer, request
from testkit.proxy.playbook import Shell
from testkit.proxy.transaction_session import HOUR_MS, RETRIED, adding, admitted, shells

NAMED = [ApiKey.INIT_PRODUCER_ID, *RETRIED, ApiKey.END_TXN]


@pytest.mark.parametrize("api_key", NAMED)
def test_a_version_that_cannot_be_read_ends_the_connection_for_it_would_go_uncounted(api_key: int) -> None:
    (shell,) = shells(1)
    frame = bytearray(request(api_key, readable_versions(api_key)[-1]))
    frame[6:8] = (99).to_bytes(2, "big")
    shell.client_sends(bytes(frame))
    assert shell.cause is DisconnectCause.UNMETERED_VERSION
    assert not shell.to_broker


def test_a_request_that_cannot_be_kept_whole_ends_the_connection() -> None:
    (shell,) = shells(1)
    frame = request(ApiKey.INIT_PRODUCER_ID, 4, {"transactionalId": "x" * (WHOLE_MAX_BYTES + 1)})
    shell.client_sends(frame)
    assert shell.cause is DisconnectCause.FRAME_TOO_LARGE
    assert not shell.to_broker


def test_a_request_of_more_partitions_than_anybody_sends_ends_the_connection_where_it_is_looked_into() -> (
    None
):
    frame = adding(1, partitions=20_000)
    (shell,) = shells(1)
    shell.client_sends(frame)
    assert shell.cause is DisconnectCause.MALFORMED_FRAME
    assert not shell.to_broker
    (unlimited,) = shells(1, None)
    unlimited.client_sends(frame)
    assert unlimited.to_broker == frame


def test_behind_many_partitions_of_a_known_id_its_connection_waits_and_no_other() -> None:
    """Each is looked up, in 1.7 µs: in one read of a megabyte twelve such requests followed one another, and
    nobody else was served for half a second. 19,000 are 95 ms, of which all are waited."""
    shell, neighbour = shells(2)
    shell.client_sends(adding(1))
    assert admitted(shell) == 1
    shell.to_broker.clear()
    frame = adding(1, partitions=19_000)
    shell.client_sends(frame * 12)
    assert shell.to_broker == frame
    assert shell.session.pace.throttled_by is None, "no quota of the client's"
    neighbour.client_sends(request(HEARTBEAT, 4))
    assert neighbour.to_broker
    shell.advance(94)
    assert len(shell.to_broker) == len(frame)
    shell.advance(5)
    assert shell.to_broker == frame * 2


def test_behind_what_clients_ask_for_it_does_not_wait() -> None:
    """Kafka Streams: a commit interval of 100 ms, 1,000 partitions in each transaction, metadata with
    each offset. However many bytes name them, partitions count."""
    (shell,) = shells(1)
    shell.client_sends(adding(1))
    names = [f"topic-with-a-long-name-{number:06}" for number in range(1_000)]
    added = adding(1, names=names)
    committed = adding(1, ApiKey.TXN_OFFSET_COMMIT, names=names, metadata="m" * 50)
    for _ in range(20):
        shell.to_broker.clear()
        shell.client_sends(added + committed)
        assert shell.to_broker == added + committed
        shell.advance(100)


@pytest.mark.parametrize("api_key", NAMED)
def test_a_request_that_arrives_in_parts_is_judged_once_it_is_whole(api_key: int) -> None:
    (shell,) = shells(1, 3_600.0)
    version = min(readable_versions(api_key)[-1], 3)
    frame = adding(1, api_key, version) if api_key in RETRIED else request(api_key, version)
    for at in range(len(frame) - 1):
        shell.client_sends(frame[at : at + 1])
        assert not shell.to_broker
    shell.client_sends(frame[-1:])
    assert shell.to_broker == frame
    assert admitted(shell) == (1 if api_key in RETRIED else 0)


@pytest.mark.parametrize("successor", [-1, 1])
def test_an_end_of_a_transaction_without_a_new_id_makes_none_known(successor: int) -> None:
    """−1: an error's answer; 1: the same id with the next epoch."""
    (shell,) = shells(1, 3_600.0)
    shell.client_sends(adding(1))
    shell.client_sends(request(ApiKey.END_TXN, 5, {"producerId": 1}, correlation_id=2))
    shell.broker_sends(answer(ApiKey.ADD_PARTITIONS_TO_TXN, 3))
    shell.broker_sends(answer(ApiKey.END_TXN, 5, {"producerId": successor}, correlation_id=2))
    (principal,) = shell.shared.producer_ids.quota.principals()
    assert len(principal.store) == 1
    assert not principal.store.seen(-1, shell.now_ms)


def test_an_answer_to_the_end_of_a_transaction_that_is_too_large_to_keep_goes_on_unread() -> None:
    (shell,) = shells(1, 3_600.0)
    shell.client_sends(adding(1))
    shell.client_sends(request(ApiKey.END_TXN, 5, {"producerId": 1}, correlation_id=2))
    shell.broker_sends(answer(ApiKey.ADD_PARTITIONS_TO_TXN, 3))
    told = answer(ApiKey.END_TXN, 5, {"producerId": 2}, correlation_id=2)[4:] + bytes(WHOLE_MAX_BYTES)
    shell.to_client.clear()
    for at in range(0, len(told), 60_000):
        shell.broker_sends((len(told).to_bytes(4, "big") if not at else b"") + told[at : at + 60_000])
    assert shell.to_client[4:] == told
    (principal,) = shell.shared.producer_ids.quota.principals()
    assert not principal.store.seen(2, shell.now_ms)


def test_the_successor_of_an_id_is_not_learnt_once_there_is_no_limit_any_more() -> None:
    (shell,) = shells(1, 3_600.0)
    shell.client_sends(adding(1))
    shell.client_sends(request(ApiKey.END_TXN, 5, {"producerId": 1}, correlation_id=2))
    quotas = shell.shared.quotas
    quotas.reload(QuotaLimits([]), shell.now_ms)
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=3))  # the quotas are looked up anew
    shell.broker_sends(answer(ApiKey.ADD_PARTITIONS_TO_TXN, 3))
    shell.broker_sends(answer(ApiKey.END_TXN, 5, {"producerId": 2}, correlation_id=2))
    (principal,) = shell.shared.producer_ids.quota.principals()
    assert not principal.store.seen(2, shell.now_ms)


def test_what_brings_an_id_has_a_row_of_its_own_in_the_access_log() -> None:
    settings = ProducerIdSettings(forced_after_ms=HOUR_MS)
    quotas = QuotaManager(QuotaLimits([(QuotaEntity(DEFAULT, None), {"producer_ids_rate": 1.0})]))
    shared = SharedState(quotas, Recorder(), producer_ids=ProducerIds(settings), topic_names=TopicNames())
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(adding(1))
    shell.broker_sends(answer(ApiKey.ADD_PARTITIONS_TO_TXN, 3))
    shell.client_sends(adding(1))
    shell.broker_sends(answer(ApiKey.ADD_PARTITIONS_TO_TXN, 3))
    first, second = (record[0] for record in shared.recorder.requests)
    assert isinstance(first, AccessFlow)
    assert isinstance(second, AccessFlow)
    assert (first.why, second.why) == ("producer_id", "")
