"""One connection's requests at the door: the verdict of a wake counts once, and how long each was held."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sluice.protocol.apis import PRODUCE, ApiKey
from sluice.protocol.headers import request_body
from sluice.protocol.transactions.requests import Addition
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.proxy.session.producer_ids.byte_refusal import ByteReason, ByteRefusal
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.sensors.smooth import SmoothSensor
from sluice.usage.records import Flow
from testkit.frames.frames import produce, record_batch

BUDGET_MS = 8_000.0
MINUTE_MS = 60_000.0
SETTINGS = replace(ProducerIdSettings(), forced_after_ms=1e9, transactional_ids_per_hour=60.0)
SENSOR = SmoothSensor(QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 0.0)


class Connection:
    """One of alice; requests are judged as produce/requests.py does it."""

    def __init__(self, ids_per_hour: float = 60.0, tokens: float = 0.0) -> None:
        self.shared = ProducerIds(SETTINGS)
        self.ids = ProduceIds(self.shared, None)
        self.ids.use("alice", (ids_per_hour, True, "user"))
        self.principal.main.restore(tokens, 0.0)

    @property
    def principal(self):  # type: ignore[no-untyped-def]
        return self.shared.quota.principal("alice", 60.0, 0.0)

    def judges(
        self, *producer_ids: int, now_ms: float = 0.0, acks: int = -1, arrived: float = 1.0, sequence: int = 0
    ) -> Verdict | None:
        """A Produce with a batch of each id, of which so much has arrived."""
        batches = [
            (number, record_batch(b"x", producer_id=producer_id, epoch=0, sequence=sequence))
            for number, producer_id in enumerate(producer_ids)
        ]
        frame = bytearray(produce({"orders": batches}, acks=acks, version=9))
        body = request_body(frame, 14 + frame[13], len(frame), PRODUCE, 9)
        end = int(len(frame) * arrived)
        return self.ids.judge(frame, 0, body, end, len(frame), 9, acks, now_ms, now_ms + BUDGET_MS)

    def adds(self, producer_id: int = 7, *, now_ms: float = 0.0, **options: object) -> Verdict:
        self.ids.gate.hand_out(producer_id, now_ms)
        addition = Addition(b"t", producer_id, 0, [(b"orders", (3,))])
        addition = replace(addition, **options)  # type: ignore[arg-type]
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        return self.ids.judge_transaction([addition], key, 99, now_ms, now_ms + BUDGET_MS)

    def names(self, name: bytes = b"t", now_ms: float = 0.0) -> Verdict:
        key = ApiKey.INIT_PRODUCER_ID
        return self.ids.judge_transactional_id(name, key, 77, now_ms, now_ms + BUDGET_MS)


def test_a_held_request_is_woken_once_and_its_wait_told_once() -> None:
    connection = Connection()
    ids = connection.ids
    assert connection.judges(1, acks=1) is Verdict.HOLD
    assert (ids.wake_at_ms, ids.acks, ids.api_key) == (BUDGET_MS, 1, PRODUCE)
    assert not ids.woken(BUDGET_MS - 1.0)
    assert ids.woken(BUDGET_MS)
    assert ids.take_held_ms(BUDGET_MS) == BUDGET_MS
    assert ids.take_held_ms(BUDGET_MS) == 0.0
    assert (connection.principal.holds, connection.principal.held_ms) == (1, BUDGET_MS)
    assert connection.judges(1, acks=1, now_ms=BUDGET_MS) is Verdict.REFUSE
    assert connection.judges(2, now_ms=BUDGET_MS) is Verdict.HOLD, "the next is judged by itself"


def test_what_was_not_held_has_no_wait() -> None:
    connection = Connection(tokens=5.0)
    assert connection.judges(1) is Verdict.ADMIT
    assert connection.ids.take_held_ms(100.0) == 0.0
    assert connection.principal.holds == 0


def test_a_request_is_judged_when_all_heads_of_its_batches_have_come() -> None:
    connection = Connection(tokens=5.0)
    assert connection.judges(1, 2, arrived=0.5) is None
    assert connection.judges(1, 2) is Verdict.ADMIT


def test_what_it_brought_is_told_by_its_kind() -> None:
    connection = Connection(tokens=5.0)
    flow = Flow()
    for producer_id, sequence, column in ((1, 0, "producer_ids_new"), (2, 5, "producer_ids_resumed")):
        assert connection.judges(producer_id, sequence=sequence) is Verdict.ADMIT
        brought = connection.ids.forwarded(flow, 10.0)
        found = {amount[1]: amount[2] for amount in brought}
        assert found[column] == 1
        assert all(amount[0] is flow and amount[3] == 10.0 for amount in brought)
    assert connection.judges(1, sequence=10) is Verdict.PASS
    assert connection.ids.forwarded(flow, 20.0) == []


def test_what_is_known_and_looked_at_for_anothers_gates_lifts_them_when_it_goes() -> None:
    connection = Connection(tokens=1.0)
    assert connection.judges(1) is Verdict.ADMIT
    connection.ids.forwarded(Flow(), 0.0)
    table = connection.shared.tables.table("alice", 0.0)
    table.refused({(1, b"orders", 0): (0, 5)}, 0.0)
    assert connection.judges(1, sequence=5) is Verdict.ADMIT
    assert connection.ids.forwarded(Flow(), 0.0) == []
    assert len(table) == 0


def test_a_request_of_one_known_id_is_remembered_and_not_judged_again() -> None:
    connection = Connection(tokens=9.0)
    assert connection.judges(1) is Verdict.ADMIT
    connection.ids.forwarded(Flow(), 0.0)
    assert connection.judges(1, sequence=1) is Verdict.PASS


def test_a_transaction_that_adds_nothing_passes() -> None:
    connection = Connection()
    assert connection.adds(verify_only=True) is Verdict.PASS
    assert connection.adds(topics=[(b"orders", ())]) is Verdict.PASS
    group = [Addition(b"t", 7, 0, [], group=b"g")]
    connection.ids.gate.hand_out(7, 0.0)
    judge = connection.ids.judge_transaction
    assert judge(group, ApiKey.ADD_OFFSETS_TO_TXN, 99, 0.0, BUDGET_MS) is Verdict.HOLD


def test_a_transaction_that_is_held_is_told_of_as_itself_and_woken_once() -> None:
    connection = Connection()
    ids = connection.ids
    assert connection.adds() is Verdict.HOLD
    assert (ids.api_key, ids.acks, ids.request_bytes) == (ApiKey.ADD_PARTITIONS_TO_TXN, -1, 99)
    assert ids.woken(BUDGET_MS)
    assert connection.adds(now_ms=BUDGET_MS) is Verdict.REFUSE
    assert ids.take_held_ms(BUDGET_MS) == BUDGET_MS
    assert connection.adds(8, now_ms=BUDGET_MS) is Verdict.HOLD


def test_a_new_transactional_id_waits_for_its_token_and_is_never_refused() -> None:
    """60 an hour, and so many at once."""
    connection = Connection()
    ids = connection.ids
    for number in range(60):
        assert connection.names(b"%d" % number, 1.0) is Verdict.ADMIT
    assert connection.names(b"new", 1.0) is Verdict.HOLD
    assert ids.wake_at_ms == 1.0 + BUDGET_MS
    assert (ids.api_key, ids.acks, ids.request_bytes) == (ApiKey.INIT_PRODUCER_ID, -1, 77)
    assert not ids.woken(BUDGET_MS)
    assert ids.woken(BUDGET_MS + 0.5), "half a ms early is in time"
    assert connection.names(b"new", 1.0 + BUDGET_MS) is Verdict.ADMIT
    assert ids.take_held_ms(1.0 + BUDGET_MS) == BUDGET_MS
    assert ids.take_held_ms(1.0 + BUDGET_MS) == 0.0
    assert (ids.wake_at_ms, connection.principal.holds) == (inf, 0)
    names = connection.principal.transactional_ids
    assert (names.new, names.over) == (61, 1)
    assert connection.names(b"new", 2.0 + BUDGET_MS) is Verdict.ADMIT, "it is known now"
    assert connection.judges(9, now_ms=3.0 + BUDGET_MS) is Verdict.HOLD


def test_a_token_that_comes_before_the_budget_is_over_is_waited_for() -> None:
    connection = Connection()
    for number in range(60):
        connection.names(b"%d" % number)
    connection.names(b"first", 0.0)
    assert connection.ids.wake_at_ms == BUDGET_MS
    connection.ids.dropped(55_000.0)
    assert connection.names(b"second", 55_000.0) is Verdict.HOLD
    assert connection.ids.wake_at_ms == pytest.approx(MINUTE_MS)


def test_who_leaves_while_its_name_waits_gives_its_token_back() -> None:
    connection = Connection()
    for number in range(60):
        connection.names(b"%d" % number)
    assert connection.names(b"gone") is Verdict.HOLD
    connection.ids.dropped(0.0)
    assert (connection.ids.wake_at_ms, connection.ids.take_held_ms(5.0)) == (inf, 0.0)
    names = connection.principal.transactional_ids
    assert names.ask(123, 0.0)[0] == pytest.approx(MINUTE_MS), "one, and not two"
    connection.ids.dropped(0.0)
    assert names.ask(124, 0.0)[0] == pytest.approx(2 * MINUTE_MS), "nothing came back"


def test_what_was_woken_and_dropped_is_forgotten() -> None:
    connection = Connection()
    ids = connection.ids
    connection.judges(1)
    assert ids.woken(BUDGET_MS)
    ids.dropped(BUDGET_MS)
    assert connection.judges(2, now_ms=BUDGET_MS) is Verdict.HOLD
    ids.refuse(ByteRefusal(SENSOR, ByteReason.OVER_BUDGET, 1.0, 2.0))
    ids.dropped(BUDGET_MS)
    assert ids.take_refusal(SENSOR) is None


def test_a_request_that_is_refused_for_its_bytes_is_a_gate_and_its_reason_taken_once() -> None:
    connection = Connection(tokens=5.0)
    refusal = ByteRefusal(SENSOR, ByteReason.OVER_BUDGET, 1.0, 2.0)
    connection.ids.refuse(refusal)
    assert connection.judges(1) is Verdict.REFUSE
    assert connection.ids.take_refusal(SENSOR) is refusal
    assert connection.ids.take_refusal(SENSOR) is None
    assert len(connection.shared.tables.table("alice", 0.0)) == 1
    assert connection.judges(1, sequence=10) is Verdict.REFUSE
    assert connection.principal.main.tokens(0.0) == 5.0


def test_where_ids_have_no_limit_what_a_gate_refuses_is_refused_for_its_bytes() -> None:
    connection = Connection()
    ids = connection.ids
    ids.use_gates("alice")
    assert (ids.gates_only, ids.limit, ids.rule) == (True, 0.0, "")
    assert connection.judges(1) is Verdict.PASS
    connection.shared.tables.table("alice", 0.0).refused({(1, b"orders", 0): (0, 5)}, 0.0)
    assert connection.judges(1, sequence=9) is Verdict.REFUSE
    found = ids.take_refusal(SENSOR)
    assert found is not None
    assert (found.reason, found.sensor) == (ByteReason.GATE, SENSOR)
    assert ids.take_refusal(None) is None
    ids.use("alice", (60.0, True, "user"))
    assert (ids.gates_only, ids.limit, ids.rule) == (False, 60.0, "user")
    assert ids.take_refusal(SENSOR) is None
    assert connection.judges(3) is Verdict.HOLD
