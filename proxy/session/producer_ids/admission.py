"""A connection's requests at the door of the producer-id quota: ids read, judged, the verdict kept.

Between produce/requests.py and transactions.py, which know frames, and gate.py, which knows ids. A request
that was held is given again when it is woken; then the verdict of its wake counts. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from sluice.protocol.apis import PRODUCE, ApiKey
from sluice.protocol.produce import ProduceUsage
from sluice.protocol.transactions.requests import Addition
from sluice.proxy.session.in_flight import Held
from sluice.proxy.session.produce.header_prediction import KnownProduce
from sluice.proxy.session.producer_ids.byte_refusal import ByteReason, ByteRefusal
from sluice.proxy.session.producer_ids.gate import ProducerGate
from sluice.proxy.session.producer_ids.large_turns import FREE_BATCHES, LargeTurn, LargeTurns
from sluice.proxy.session.producer_ids.shared import ProducerIds, Wake
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.proxy.session.read_gate import EARLY_MS, Pace
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import Amount, Flow

_AGAIN_MS: Final = 1_000.0
"""So long a request may wait on whose limit is another when its time is over: it is judged anew"""


class ProduceIds:
    """The producer ids of one connection whose user has, or had, a limit."""

    __slots__ = (
        "_again_since_ms",
        "_last_ms",
        "_name_eligible_at_ms",
        "_name_since_ms",
        "_name_taken",
        "_name_until_ms",
        "_pace",
        "_turn",
        "_turn_ms",
        "_usage",
        "_was_held",
        "_woken",
        "acks",
        "api_key",
        "gate",
        "gates_only",
        "judged_by",
        "known",
        "refusal",
        "request_bytes",
        "wake",
    )

    def __init__(self, shared: ProducerIds, wake: Wake | None, pace: Pace | None = None) -> None:
        """`wake`: called when the turn of a held request has come. `pace`: of the connection, which is muted
        while a request of many batches waits to be looked at; None: none does."""
        self._pace = pace
        self._turn = LargeTurn()
        self._turn_ms = 0.0  # for which the request at hand has waited to be looked at
        self._usage = ProduceUsage()
        self.gate = ProducerGate(shared.quota, shared.tables)
        self.known = KnownProduce()
        """what the last requests were like; one that fits passes, and need not be judged"""
        self._woken: Verdict | None = None
        self._was_held = False
        # Of a request whose limit is another now: since when it waits, and until when at most.
        self._again_since_ms = self._last_ms = inf
        # Of a new transactional id that is held: since when, when its token comes, and until when at most.
        self._name_since_ms = 0.0
        self._name_taken = 0.0  # tokens, for the one that waits
        self._name_eligible_at_ms = -inf
        self._name_until_ms = inf
        self.wake = wake
        self.gates_only = False
        """its user has no limit on ids, and one on bytes that refuses"""
        self.refusal: ByteRefusal | None = None
        """the request that is given again is refused for its bytes"""
        self.judged_by: tuple[float, bool, str] | None = None
        """the limit, as QuotaManager.id_limit tells it"""
        self.api_key = PRODUCE
        """of the request at hand"""
        self.acks = 0
        """of the request that is held"""
        self.request_bytes = 0

    def use(self, user: str, limit: tuple[float, bool, str], client: tuple[str, str] = ("", "")) -> None:
        """The limit in force, as QuotaManager.id_limit tells it. `client`: address and client id."""
        self.judged_by = limit
        ids_per_hour, enforced, _ = limit
        self.gates_only = False
        self.gate.use(user, ids_per_hour, enforced=enforced, client=client)
        self.known.forget()

    def use_gates(self, user: str) -> None:
        """There is no limit on ids; but what would overtake a request that its byte rate has refused is
        refused, too."""
        self.judged_by, self.gates_only = None, True
        self.gate.use_gates(user)
        self.known.forget()

    @property
    def limit(self) -> float:
        """New ids an hour; 0.0: there is no limit."""
        return 0.0 if self.judged_by is None else self.judged_by[0]

    @property
    def rule(self) -> str:
        """The level of the limit."""
        return "" if self.judged_by is None else self.judged_by[2]

    def refuse(self, refusal: ByteRefusal) -> None:
        """The request that is held for its bytes is given again, and then refused (`judge`)."""
        self.refusal = refusal
        self.known.forget()

    def take_refusal(self, sensor: Sensor | None) -> ByteRefusal | None:
        """Why the request at hand is refused for its bytes, if it is: its own bytes, or, where ids have no
        limit, those of an earlier one. `sensor`: that its bytes would be charged to."""
        refusal, self.refusal = self.refusal, None
        if refusal is None and self.gates_only and sensor is not None:
            return ByteRefusal(sensor, ByteReason.GATE)
        return refusal

    def judge(
        self,
        buf: bytearray,
        pos: int,
        body: int,
        end: int,
        frame_end: int,
        version: int,
        acks: int,
        now_ms: float,
        deadline_ms: float,
    ) -> Verdict | None:
        """What becomes of the request whose frame begins at `pos` and whose body begins at `body`; None: not
        all heads of its batches have arrived, or it is not looked at yet, and the connection is muted.

        Raises MalformedFrame for one that contradicts itself.
        """
        verdict = self._woken
        if verdict is not None:
            self._woken = None
            return verdict
        usage = self._usage
        usage.read(buf, body, end, frame_end, version)
        if not usage.heads_read:
            return None
        if self.refusal is not None:
            self.gate.refuse_batches(buf, usage.batches, now_ms)
            usage.batches.clear()
            return Verdict.REFUSE
        turns = None
        if (batches := len(usage.batches)) > FREE_BATCHES:
            turns = self.gate.large_turns(now_ms)
            if turns is not None and self._waits_for_turn(turns, batches, now_ms):
                usage.batches.clear()
                return None
        self.acks = acks
        self.api_key = PRODUCE
        deadline_ms = max(min(deadline_ms - self._turn_ms, self._last_ms), now_ms)
        verdict = self.gate.judge(buf, usage.batches, acks, now_ms, deadline_ms, self.wake)
        self._is_judged(verdict)
        if verdict is Verdict.PASS and len(usage.batches) == 1:
            (batch,) = usage.batches
            gates, until_ms = self.gate.passes_until(batch[4])
            self.known.passed(buf, pos, version, acks, batch, gates, until_ms)
        if turns is not None and verdict is not Verdict.HOLD:
            turns.passed(batches)
        usage.batches.clear()  # thousands would stay with the connection
        return verdict

    def _waits_for_turn(self, turns: LargeTurns, batches: int, now_ms: float) -> bool:
        """It has many batches, and what its user has sent of such before is to be paid first."""
        turn, pace = self._turn, self._pace
        if turn.waits(turns, batches, now_ms) and pace is not None:
            pace.mute(turn.at_ms, now_ms, None, at_boundary=True)
            return True
        self._turn_ms = turn.took_ms(now_ms)
        return False

    def held_for_bytes(self, held: Held | None, now_ms: float) -> Held | None:
        """The request that was judged last waits for its bytes; None: it has gone. Returns it as it waits:
        what would overtake its first batches on other connections is refused meanwhile, and the gate is told
        when it goes."""
        if held is None:
            self.gate.went()
            return None
        if held.acks and self.gate.hold_first(now_ms):
            return replace(held, brings_ids=True)
        return held

    def judge_transaction(
        self,
        additions: Sequence[Addition],
        api_key: int,
        request_bytes: int,
        now_ms: float,
        deadline_ms: float,
    ) -> Verdict:
        """What a request adds to transactions. One that adds nothing always passes."""
        verdict = self._woken
        if verdict is not None:
            self._woken = None
            return verdict
        added = [
            addition
            for addition in additions
            if not addition.verify_only
            and (api_key == ApiKey.ADD_OFFSETS_TO_TXN or any(partitions for _, partitions in addition.topics))
        ]
        if not added:
            return Verdict.PASS
        self.acks, self.api_key, self.request_bytes = -1, api_key, request_bytes
        deadline_ms = min(deadline_ms, self._last_ms)
        verdict = self.gate.judge_transaction(added, now_ms, deadline_ms, self.wake)
        self._is_judged(verdict)
        return verdict

    @property
    def wake_at_ms(self) -> float:
        """When a HOLD is over; inf: nothing is held."""
        return min(self.gate.wake_at_ms, self._name_until_ms)

    @property
    def is_holding(self) -> bool:
        """A request waits for its producer ids, or for its transactional id."""
        return self.wake_at_ms < inf

    def judge_transactional_id(
        self, name: bytes, api_key: int, request_bytes: int, now_ms: float, deadline_ms: float
    ) -> Verdict:
        """An InitProducerId with a transactional id: ADMIT or HOLD, never refused."""
        eligible_at_ms = self._name_eligible_at_ms
        if self._woken is None:
            eligible_at_ms, taken = self.gate.ask_for_name(name, now_ms)
            if eligible_at_ms > now_ms:
                self.acks, self.api_key, self.request_bytes = -1, api_key, request_bytes
                self._name_eligible_at_ms, self._name_since_ms = eligible_at_ms, now_ms
                self._name_taken = taken
                self._name_until_ms = min(eligible_at_ms, deadline_ms)
                return Verdict.HOLD
        self._woken = None
        self._name_eligible_at_ms = -inf
        self.gate.bring_name(name, eligible_at_ms, now_ms)
        return Verdict.ADMIT

    def is_over(self, now_ms: float) -> bool:
        """The time of what waits for producer ids is over, and its turn has not come: `woken` refuses it."""
        gate, ticket = self.gate, self.gate.ticket
        is_granted = ticket is not None and ticket.granted
        return self._name_until_ms == inf and not is_granted and now_ms >= gate.wake_at_ms - EARLY_MS

    def judge_again(self, now_ms: float) -> None:
        """What waits is to be judged by another limit than what held it; it is given again. It waits a
        second longer at most, however often its limit changes."""
        since_ms, last_ms = self.gate.held_since_ms, min(self._last_ms, self.gate.deadline_ms + _AGAIN_MS)
        self.dropped(now_ms)
        self._again_since_ms, self._last_ms = since_ms, last_ms

    def _is_judged(self, verdict: Verdict) -> None:
        """If it was judged again, what it has waited already counts."""
        self._was_held = verdict is Verdict.HOLD or self._again_since_ms < inf
        if self._again_since_ms < inf:
            self.gate.held_since_ms, self._again_since_ms = self._again_since_ms, inf

    def take_held_ms(self, now_ms: float) -> float:
        """How long the request at hand was held; asked once, when it goes or is refused."""
        if self._name_since_ms:
            held_ms, self._name_since_ms = now_ms - self._name_since_ms, 0.0
            return held_ms
        self._last_ms = inf
        held_ms, self._turn_ms = self._turn_ms, 0.0
        if not self._was_held:
            return held_ms
        self._was_held = False
        return held_ms + self.gate.count_hold(now_ms)

    def woken(self, now_ms: float) -> bool:
        """Its time, or its turn, has come. False: it waits on."""
        if self._name_until_ms < inf:
            if now_ms < self._name_until_ms - EARLY_MS:
                return False
            self._name_until_ms = inf
            self._woken = Verdict.ADMIT
            return True
        verdict = self.gate.wake(now_ms)
        if verdict is Verdict.HOLD:
            return False
        self._woken = verdict
        return True

    def forwarded(self, flow: Flow, now_ms: float) -> list[Amount]:
        """The request that was admitted goes. Returns what it brought, as the roll-up's columns have it."""
        ticket = self.gate.ticket
        if ticket is None:  # all were known; they were looked at for others' gates
            self.gate.forwarded(now_ms)
            return []
        principal = ticket.principal
        before = (principal.admitted, principal.resumed_admitted, principal.forced_admitted)
        self.gate.forwarded(now_ms)
        after = (principal.admitted, principal.resumed_admitted, principal.forced_admitted)
        columns = ("producer_ids_new", "producer_ids_resumed", "producer_ids_forced")
        return [
            Amount(flow, column, now - then, now_ms)
            for column, then, now in zip(columns, before, after, strict=True)
            if now > then
        ]

    def dropped(self, now_ms: float) -> None:
        """The request at hand will not go, and is not answered."""
        self._woken = self.refusal = None
        self._turn.drop()
        self._turn_ms = 0.0
        self._was_held = False
        self._again_since_ms = self._last_ms = inf
        if self._name_eligible_at_ms > -inf:
            self.gate.withdraw_name(self._name_taken, now_ms)
            self._name_since_ms, self._name_eligible_at_ms, self._name_until_ms = 0.0, -inf, inf
        self.gate.dropped(now_ms)
