"""A connection's transactions at the door of the producer-id quota: judged where they first make state.

A partition of a transaction gets its producer's entry in the broker's heap whether anything is produced or
not. So what adds the first partition is judged as a Produce is: it goes, is held, or is refused with an error
that its client takes for the broker's own. Only the first request of a new id can be: one that has been
admitted is known, and nothing is held inside its transactions, whose timers run. InitProducerId and EndTxn
always go on; a transactional id that is new has a rate of its own (transactional_ids.py).

Between other_requests.py, which knows APIs, and admission.py, which knows the verdict. Pure.
Source: wire-semantics 3.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluice.protocol.apis import OFFERED, STATE_MAKERS, ApiKey
from sluice.protocol.errors import FrameTooLarge, UnsupportedVersion
from sluice.protocol.headers import RESPONSE_HEAD_BYTES, request_body
from sluice.protocol.transactions.refusals import refuse_additions
from sluice.protocol.transactions.requests import (
    FIRST_WITH_SUCCESSOR,
    Addition,
    is_flexible,
    read_additions,
    read_ended_producer,
    read_handed_out,
    read_transaction_timeout_ms,
    read_transactional_id,
)
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import HANDED_OUT, LOCAL, NONE, AnswerWork, InFlight
from sluice.proxy.session.local_responses import LocalAnswers
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.proxy.session.read_gate import Brake, Pace
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.throttling import Throttling
from sluice.usage.flow import REFUSED, AccessFlow
from sluice.usage.records import RequestRecord

_MOST_MS: Final = 8_000.0
"""franz-go gives such a request up after 10 s"""
_BRAKE_MS_PER_PARTITION: Final = 0.005
"""The brake behind what adds partitions, each of which is looked up, known or not, in 1.7 µs"""


class TransactionRequests:
    """Judges the transactions of one connection whose user has, or had, a limit."""

    __slots__ = (
        "_brake", "_bring_ids", "_drop", "_identity", "_in_flight", "_inter_broker", "_local", "_records",
        "_throttling",
    )  # fmt: skip

    def __init__(
        self,
        identity: Identity,
        throttling: Throttling,
        in_flight: list[InFlight],
        local: LocalAnswers,
        records: list[RequestRecord],
        drop: Callable[[int, int], None],
        bring_ids: Callable[[float], None],
        inter_broker: InterBroker,
        pace: Pace,
    ) -> None:
        """`records`: of what has been answered. `drop`: told which bytes do not go on. `bring_ids`: the
        request goes whose producer ids were admitted. `inter_broker`: who speaks of others' transactions."""
        self._identity = identity
        self._throttling = throttling
        self._in_flight = in_flight
        self._local = local
        self._records = records
        self._drop = drop
        self._bring_ids = bring_ids
        self._inter_broker = inter_broker
        self._brake = Brake(pace)

    def judge(
        self, buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int,
        correlation_id: int, client_id_end: int, now_ms: float,
    ) -> bool:  # fmt: skip
        """Forward, hold or refuse one of TRANSACTION_APIS. False: it is held, or has not arrived.

        Raises UnsupportedVersion, MalformedFrame, and FrameTooLarge for one that cannot be kept whole.
        """
        ids, request_bytes = self._throttling.ids, frame_end - pos
        if ids is None or ids.gates_only or self._inter_broker.covers(self._identity.user):
            self._goes(correlation_id, api_key, version, request_bytes, now_ms)
            return True
        first, last = OFFERED[api_key]
        if not first <= version <= last:
            raise UnsupportedVersion("this version would go uncounted")
        if request_bytes > WHOLE_MAX_BYTES:
            raise FrameTooLarge(
                f"{request_bytes} bytes of a transaction's request, the limit is {WHOLE_MAX_BYTES}"
            )
        if frame_end > end:
            return False
        body = request_body(buf, client_id_end, frame_end, api_key, version)
        work: AnswerWork = NONE
        held_ms, noted = 0.0, 0
        if api_key in STATE_MAKERS:
            additions = read_additions(buf, body, frame_end, api_key, version)
            ids.gate.saw_member(0, now_ms)
            verdict = self._verdict(additions, api_key, request_bytes, now_ms, ids)
            if verdict is Verdict.HOLD:
                self._throttling.hold_for_ids(ids, request_bytes, now_ms)
                return False
            partitions = sum(len(each) for addition in additions for _, each in addition.topics)
            self._brake.add(partitions * _BRAKE_MS_PER_PARTITION, now_ms)
            held_ms = ids.take_held_ms(now_ms)
            if verdict is Verdict.REFUSE:
                answer = refuse_additions(additions, api_key, version, correlation_id, ids.gate.throttle_ms)
                self._refuse(answer, pos, frame_end, api_key, version, correlation_id, now_ms, held_ms, ids)
                return True
            if verdict is Verdict.ADMIT:
                self._mark("producer_id")
                self._bring_ids(now_ms)
        elif api_key == ApiKey.INIT_PRODUCER_ID:
            name = read_transactional_id(buf, body, frame_end, version)
            if name is not None:
                work = HANDED_OUT
                ids.gate.saw_member(read_transaction_timeout_ms(buf, body, frame_end, version), now_ms)
            if self._is_named_too_soon(name, request_bytes, now_ms, ids):
                return False
            held_ms = ids.take_held_ms(now_ms)
        elif api_key == ApiKey.END_TXN and version >= FIRST_WITH_SUCCESSOR:
            work, noted = HANDED_OUT, read_ended_producer(buf, body, frame_end, version)
        self._goes(correlation_id, api_key, version, request_bytes, now_ms, held_ms, noted, work)
        return True

    def learn_handed_out(
        self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int,
        ended_id: int, now_ms: float,
    ) -> None:  # fmt: skip
        """The broker's answer at `pos`: an id that it hands out with epoch 0 has no earlier life. To an
        EndTxn of producer `ended_id`: one in its place is as known as that."""
        ids = self._throttling.ids
        if ids is not None and not ids.gates_only:
            body = pos + RESPONSE_HEAD_BYTES + is_flexible(api_key, version)
            producer_id, epoch = read_handed_out(buf, body, frame_end)
            if producer_id < 0:
                return
            if epoch == 0:
                ids.gate.hand_out(producer_id, now_ms)
            if api_key == ApiKey.END_TXN and producer_id != ended_id:
                ids.gate.succeed(ended_id, producer_id, now_ms)

    def _goes(
        self, correlation_id: int, api_key: int, version: int, request_bytes: int, now_ms: float,
        held_ms: float = 0.0, noted: int = 0, work: AnswerWork = NONE,
    ) -> None:  # fmt: skip
        self._in_flight.append((
            correlation_id, api_key, version, self._identity.flow, request_bytes,
            now_ms, held_ms, noted, None, work,
        ))  # fmt: skip

    def _is_named_too_soon(
        self, name: bytes | None, request_bytes: int, now_ms: float, ids: ProduceIds
    ) -> bool:
        """An InitProducerId with a transactional id that is new, above the rate of these: it waits."""
        if name is None:
            return False
        deadline_ms = now_ms + self._limit_ms()
        verdict = ids.judge_transactional_id(
            name, ApiKey.INIT_PRODUCER_ID, request_bytes, now_ms, deadline_ms
        )
        if verdict is not Verdict.HOLD:
            return False
        self._throttling.hold_for_ids(ids, request_bytes, now_ms)
        return True

    def _limit_ms(self) -> float:
        return min(self._throttling.id_limit_ms, _MOST_MS)

    def _verdict(
        self, additions: list[Addition], api_key: int, request_bytes: int, now_ms: float, ids: ProduceIds
    ) -> Verdict:
        deadline_ms = now_ms + self._limit_ms()
        return ids.judge_transaction(additions, api_key, request_bytes, now_ms, deadline_ms)

    def _refuse(
        self, answer: bytes, pos: int, frame_end: int, api_key: int, version: int, correlation_id: int,
        now_ms: float, held_ms: float, ids: ProduceIds,
    ) -> None:  # fmt: skip
        """In the broker's place: nothing of it is to be done."""
        self._mark(REFUSED)
        identity, request_bytes = self._identity, frame_end - pos
        self._throttling.refused_ids(ids, request_bytes, now_ms)
        self._local.add(answer, self._in_flight, (
            correlation_id, api_key, version, identity.flow, request_bytes,
            now_ms, held_ms, 0.0, None, LOCAL,
        ))  # fmt: skip
        self._records.append((
            identity.flow, request_bytes, len(answer), 0.0, held_ms, held_ms, now_ms,
            api_key, version, identity.user, None,
        ))  # fmt: skip
        self._drop(pos, frame_end)

    def _mark(self, why: str) -> None:
        """The request at hand gets a row of its own in the access log."""
        flow = self._identity.flow
        if isinstance(flow, AccessFlow):
            self._identity.flow = flow.marked(why)
