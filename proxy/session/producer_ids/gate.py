"""What becomes of a request that brings producer ids: it passes, waits, is refused, or ends its connection.

One connection's machine; all it knows of others stands in the door and in its user's gates. Pure.

             no ids, or all known and no gates
           ┌──────────────────────────────────────────► PASS
           │ all known, or tokens at once
     IDLE ─┼───────────────────────────────► CLEARED ─── forwarded ──► IDLE: ids remembered, gates lifted
    judge  │                                    ▲  └──── dropped ────► IDLE: tokens back
           │ unseen, no token                   │
           ├──────────────────────────► HELD ───┘ wake: granted, and no gate meanwhile
           │                              ├────── wake: budget over, or a gate meanwhile ──► REFUSE
           │ above a gate                 └────── dropped: client left, drain ──► IDLE, no gate
           └──────────────────────────► REFUSE    (its batches are gates from now on) ──► IDLE

A request with acks = 0, which no answer reaches, ends the connection where others are refused: CLOSE. While
HELD nothing is read from the connection, and what it holds blocks others as a gate does (held_batches.py).
Gates are looked at before any id is, also before those that the connection has brought already (and in
produce/header_prediction.py, which spares most requests all of this).
A user whose table of gates is full goes on being refused: an unseen id that does not begin with sequence 0
then waits for nothing, for it may be ahead of a refused batch of which no gate tells. A known id's, and all
where no ids are known, wait for a refused first batch without a gate as for a gate (untracked.py).
An unseen id is resumed, not new, where its base sequence or its epoch is above 0: brokers hand ids out with
epoch 0, and raise it with each transaction of version 2 (KIP-890), whose sequences begin at 0 again. For what
is added to transactions see `judge_transaction`.
Source: wire-semantics 3.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from math import inf
from typing import Final

from sluice.protocol.produce import BatchHead
from sluice.protocol.transactions.requests import Addition
from sluice.proxy.session.producer_ids.batches import Batches, GateKey, first_batches, unseen_ids
from sluice.proxy.session.producer_ids.gate_table import Gate, GateTable, GateTables
from sluice.proxy.session.producer_ids.held_batches import HELD_BATCH_BYTES, Holding
from sluice.proxy.session.producer_ids.large_turns import LargeTurns
from sluice.proxy.session.producer_ids.pairs import added_pairs, pairs_of
from sluice.proxy.session.producer_ids.verdict import RefusalReason, Verdict, message_of
from sluice.proxy.session.read_gate import EARLY_MS
from sluice.quotas.producer_ids.principal import PrincipalIds
from sluice.quotas.producer_ids.quota import AdmissionDoor, ProducerIdQuota
from sluice.quotas.producer_ids.store import DEFAULT_SAMPLE_MS
from sluice.quotas.producer_ids.ticket import Ticket

_NO_GATES: Final[Sized] = ()
_MAX_FRESH: Final = 64
"""partitions that a connection is known to write to, at 200 bytes each"""
_NONE_FRESH: Final[frozenset[GateKey]] = frozenset()
_TABLE_KEPT_MS: Final = DEFAULT_SAMPLE_MS / 2.0
"""a table of gates is kept for longer after it was asked for last"""
_PAIR_BYTES: Final = 50
"""of a transaction's request that waits, for each partition"""
RETRY_THROTTLE_MS: Final = 1_000
"""What a slow refusal tells as throttle_time_ms; little, for a client that sleeps on it loses its turns."""


class ProducerGate:
    """Decides what becomes of one connection's requests with producer ids."""

    __slots__ = (
        "_acks", "_batches", "_client", "_door", "_enforced", "_fresh", "_fresh_until_ms", "_gates",
        "_gates_only", "_holding", "_ids_per_hour", "_quota", "_tables", "_ticket", "_user", "deadline_ms",
        "held_since_ms", "reason", "wake_at_ms",
    )  # fmt: skip

    def __init__(self, quota: ProducerIdQuota, tables: GateTables, door: AdmissionDoor | None = None) -> None:
        """`door`: whose tokens are taken, if it is not the quota of this process."""
        self._quota = quota
        self._door: AdmissionDoor = quota if door is None else door
        self._tables = tables
        self._user = ""
        self._ids_per_hour = inf
        self._enforced = False
        self._gates_only = False
        self._client = ("", "")
        self._gates: dict[GateKey, Gate] = {}
        self._fresh = _NONE_FRESH
        self._fresh_until_ms = -inf
        self._acks = -1
        self._batches: Batches = {}
        self._holding: Holding | None = None  # of these, what others must not overtake meanwhile
        self._ticket: Ticket | None = None
        self.wake_at_ms = inf
        """when a HOLD is over"""
        self.deadline_ms = inf
        self.held_since_ms = 0.0
        self.reason = RefusalReason.RATE
        """of the last REFUSE or CLOSE"""

    def use(
        self, user: str, ids_per_hour: float, *, enforced: bool, client: tuple[str, str] = ("", "")
    ) -> None:
        """Whose limit it is, and how high; call it when the user, the client id or the quotas have changed.
        `client`: address and client id, which take turns within the user.

        Not `enforced` (shadow mode, exempt): everything passes and is counted. While a principal has no
        limit at all, `judge` is not to be called.
        """
        self._user = user
        self._ids_per_hour = ids_per_hour
        self._enforced = enforced
        self._gates_only = False
        self._client = client
        self._fresh_until_ms = -inf

    def use_gates(self, user: str) -> None:
        """As `use`, of a user without a limit on ids, whose requests another quota refuses: no id is counted
        or remembered, and what would overtake a refused batch is refused (`refuse_batches`)."""
        self.use(user, inf, enforced=False)
        self._gates_only = True

    def saw_member(self, timeout_ms: int, now_ms: float) -> None:
        """The client spoke as a member of a group, or of its transaction; `timeout_ms` ≤ 0: it named none."""
        if self._enforced:
            user = self._principal(now_ms).user
            self._quota.members.saw(user, self._client, timeout_ms, now_ms)

    def passes_until(self, producer_id: int) -> tuple[Sized, float]:
        """(gates, time): what has just passed does so again while there are no gates, until that time.

        `producer_id`: of its only batch. Without one (below 0) it always passes.
        """
        return (self._gates, self._fresh_until_ms) if producer_id >= 0 else (_NO_GATES, inf)

    @property
    def is_holding(self) -> bool:
        """Whether a request waits for the turn of its ids."""
        return self.wake_at_ms < inf

    @property
    def ticket(self) -> Ticket | None:
        """What the request at hand has asked the door for."""
        return self._ticket

    @property
    def asked_ids(self) -> int:
        """New ids that the request at hand waits for; 0 where it waits for gates, or has been refused."""
        ticket = self._ticket
        return 0 if ticket is None else len(ticket.new_ids) + len(ticket.resumed_ids)

    @property
    def throttle_ms(self) -> int:
        """What the refusal tells as throttle_time_ms."""
        return 0 if self.reason is RefusalReason.GATE else RETRY_THROTTLE_MS

    @property
    def message(self) -> str:
        """What the refusal tells people; names the quota."""
        # Where there are gates alone, the rate that refused it is gone.
        return message_of(self.reason, self._user, None if self._gates_only else self._ids_per_hour)

    def judge(
        self,
        buf: bytearray,
        batches: Sequence[BatchHead],
        acks: int,
        now_ms: float,
        deadline_ms: float,
        owner: object = None,
    ) -> Verdict:
        """Judge a request all of whose batch heads have been read (wire-semantics 3.7).

        `batches` as ProduceUsage reads them from `buf`; `deadline_ms`: when its answer budget is over;
        `owner`: put on its ticket, for whoever asks the door whose turn it is.
        """
        self._batches = {}
        if len(batches) == 1 and batches[0][4] < 0:
            return Verdict.PASS
        first = first_batches(buf, batches)
        if not self._gates and now_ms < self._fresh_until_ms and first.keys() <= self._fresh:
            return Verdict.PASS
        return self._judge(first, acks, now_ms, deadline_ms, owner) if first else Verdict.PASS

    def refuse_batches(self, buf: bytearray, batches: Sequence[BatchHead], now_ms: float) -> None:
        """Another quota refuses a request that would have passed here: its batches are gates, too, and what
        it was granted is given back."""
        self._give_up(now_ms)
        table = self._table(now_ms)
        self._gates = table.gates
        self._refused(table, first_batches(buf, batches), now_ms)

    def hold_first(self, now_ms: float) -> bool:
        """What was judged last, and may go, waits for another quota: its first batches block what would
        overtake them, for a broker that has none of a producer takes any for the first. True: call
        `forwarded` when it goes."""
        if self._holding is None:
            first = {key: place for key, place in self._batches.items() if not place[1]}
            self._hold(first, now_ms)
        return self._holding is not None

    def went(self) -> None:
        """What was judged last has gone: its batches are kept no longer."""
        self._batches = {}

    def large_turns(self, now_ms: float) -> LargeTurns | None:
        """The turns of its user's requests of many batches; None: in shadow mode, or exempt."""
        return self._table(now_ms).large if self._enforced or self._gates_only else None

    @property
    def held_bytes(self) -> int:
        """What the objects of the request at hand take, of which a part of the bytes may be kept, too."""
        ticket = self._ticket
        if self._batches or ticket is None:
            return len(self._batches) * HELD_BATCH_BYTES
        return len(ticket.pairs) * _PAIR_BYTES

    def judge_transaction(
        self, additions: Sequence[Addition], now_ms: float, deadline_ms: float, owner: object = None
    ) -> Verdict:
        """Judge what a request adds to transactions (wire-semantics 3.8).

        No gate is looked at and none is made: nothing is produced to a partition before it was added. An
        unseen id is new if its coordinator has handed it out with epoch 0 through this process, and has that
        epoch; else it is resumed. Under transaction version 1 a live one keeps its epoch 0 for good.
        """
        principal = self._judging(now_ms)
        self._gates = self._table(now_ms).gates
        self._batches, self._acks = {}, -1
        seen, was_handed_out = principal.knows, self._quota.handed_out.seen
        unseen = {
            addition.producer_id: addition.epoch > 0 or not was_handed_out(addition.producer_id, now_ms)
            for addition in additions
            if addition.producer_id >= 0 and not seen(addition.producer_id, now_ms)
        }
        pairs = added_pairs(additions, self._quota.pair_keys)
        if not unseen:
            principal.see_known_pairs(pairs, now_ms)
            return Verdict.PASS
        new = tuple(producer_id for producer_id, is_resumed in unseen.items() if not is_resumed)
        resumed = tuple(producer_id for producer_id, is_resumed in unseen.items() if is_resumed)
        self._ticket = ticket = Ticket(principal, new, resumed, pairs, owner, self._client)
        return self._ask_or_hold(ticket, now_ms, deadline_ms)

    def ask_for_name(self, name: bytes, now_ms: float) -> tuple[float, float]:
        """When a transactional id may go to the broker, and what was taken for it, in tokens."""
        ids = self._principal(now_ms).transactional_ids
        return ids.ask(self._quota.pair_keys.name_key(name), now_ms)

    def bring_name(self, name: bytes, eligible_at_ms: float, now_ms: float) -> None:
        """Its InitProducerId goes on to the broker."""
        ids = self._principal(now_ms).transactional_ids
        ids.brought(self._quota.pair_keys.name_key(name), eligible_at_ms, now_ms)

    def withdraw_name(self, taken: float, now_ms: float) -> None:
        """It does not go."""
        self._principal(now_ms).transactional_ids.withdraw(taken, now_ms)

    def hand_out(self, producer_id: int, now_ms: float) -> None:
        """The broker has handed it out with epoch 0, to a transactional id."""
        handed_out = self._quota.handed_out
        if not handed_out.seen(producer_id, now_ms):
            handed_out.admit(producer_id, now_ms)

    def succeed(self, producer_id: int, successor: int, now_ms: float) -> None:
        """The broker has put `successor` in the place of a producer id: it is known if that one is, and costs
        nothing. The old id's entries go as they would have."""
        principal = self._principal(now_ms)
        if principal.knows(producer_id, now_ms):
            principal.learn(successor, now_ms)
            self._quota.handed_out.discard(successor)

    def wake(self, now_ms: float) -> Verdict:
        """`wake_at_ms` has come, or the door has granted the ticket. The client is known to be there
        still."""
        assert self.is_holding
        table = self._table(now_ms)
        ticket = self._ticket
        if ticket is not None and ticket.granted:
            self.wake_at_ms = inf
            # What other connections had refused while this one waited holds for it too.
            if table.blocks(self._batches, now_ms):
                self._give_up(now_ms)
                return self._refuse(table, RefusalReason.GATE, now_ms)
            if not table.may_hide(self._batches, ticket.resumed_ids, now_ms):
                return Verdict.ADMIT
            self._give_up(now_ms)
            return self._refuse(table, RefusalReason.UNTRACKED, now_ms)
        if now_ms < self.wake_at_ms - EARLY_MS:
            return Verdict.HOLD
        self._give_up(now_ms)
        return self._refuse(table, RefusalReason.UNTRACKED if ticket is None else RefusalReason.RATE, now_ms)

    def count_hold(self, now_ms: float) -> float:
        """The request at hand is held no more: how long it was."""
        held_ms = now_ms - self.held_since_ms
        self._principal(now_ms).count_hold(held_ms)
        return held_ms

    def forwarded(self, now_ms: float) -> None:
        """The request that was admitted goes to the broker: only now are its ids remembered."""
        self._let_go()
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._door.commit(ticket, now_ms)
        self._table(now_ms).forwarded(self._batches, now_ms)
        self._remember_fresh(now_ms, self._batches)
        self._batches = {}

    def dropped(self, now_ms: float) -> None:
        """The request will never go, and is not answered: its client left, or the connection ends."""
        self._give_up(now_ms)
        self._batches = {}

    # Within ------------------------------------------------------------------------------------------------

    def _judge(
        self, batches: Batches, acks: int, now_ms: float, deadline_ms: float, owner: object
    ) -> Verdict:
        principal = None if self._gates_only else self._judging(now_ms)
        table = self._table(now_ms)
        self._gates = table.gates
        self._batches = batches
        self._acks = acks
        if table.blocks(batches, now_ms):
            return self._refuse(table, RefusalReason.GATE, now_ms)
        if principal is None:
            return self._passed(table, batches, now_ms)
        unseen = unseen_ids(batches, principal.knows, now_ms)
        pairs = pairs_of(batches, self._quota.pair_keys)
        if not unseen:
            principal.see_known_pairs(pairs, now_ms)
            return self._passed(table, batches, now_ms)
        resumed = tuple(producer_id for producer_id, is_resumed in unseen.items() if is_resumed)
        if not (principal.enforced and table.may_hide(batches, resumed, now_ms)):
            new = tuple(producer_id for producer_id, is_resumed in unseen.items() if not is_resumed)
            self._ticket = Ticket(principal, new, resumed, pairs, owner, self._client)
        return self._ask_or_hold(self._ticket, now_ms, deadline_ms)

    def _passed(self, table: GateTable, batches: Batches, now_ms: float) -> Verdict:
        """None of its ids is new."""
        if table.may_be_lifted_by(batches):
            return Verdict.ADMIT
        self._remember_fresh(now_ms, batches)
        return Verdict.PASS

    def _ask_or_hold(self, ticket: Ticket | None, now_ms: float, deadline_ms: float) -> Verdict:
        """None: there is nothing to ask for, and the request waits for its refusal."""
        if ticket is not None and self._door.ask(ticket, now_ms):
            return Verdict.ADMIT
        self.held_since_ms = now_ms
        self.wake_at_ms = self.deadline_ms = deadline_ms
        self._hold(self._batches, now_ms)
        return Verdict.HOLD

    def _hold(self, batches: Batches, now_ms: float) -> None:
        """They block what would overtake them. (With acks = 0 they do not: such a request outlives its
        client, and no idempotent producer sends one.)"""
        if batches and self._acks:
            self._holding = Holding(self._table(now_ms).held, batches)

    def _let_go(self) -> None:
        if self._holding is not None:
            self._holding.end()
            self._holding = None

    def _judging(self, now_ms: float) -> PrincipalIds:
        """Its limit was looked up for the request at hand, and is in force from now on."""
        return self._quota.principal(self._user, self._ids_per_hour, now_ms, enforced=self._enforced)

    def _principal(self, now_ms: float) -> PrincipalIds:
        return self._quota.find(self._user, self._ids_per_hour, now_ms, enforced=self._enforced)

    def _table(self, now_ms: float) -> GateTable:
        """The user's own: his ids may be counted with those of others at one time and apart at another."""
        return self._tables.table(self._user, now_ms)

    def _remember_fresh(self, now_ms: float, batches: Batches) -> None:
        """Further requests of the same ids, topics and partitions pass without a look-up, until a layer
        turns; where there are none, as long as the table of gates is there."""
        if self._gates_only:
            until_ms = (now_ms // _TABLE_KEPT_MS + 1.0) * _TABLE_KEPT_MS
        else:
            until_ms = self._principal(now_ms).fresh_until_ms(now_ms)
        if until_ms != self._fresh_until_ms or len(self._fresh) + len(batches) > _MAX_FRESH:
            self._fresh = _NONE_FRESH
            self._fresh_until_ms = until_ms
        if len(batches) <= _MAX_FRESH:
            self._fresh = self._fresh.union(batches)

    def _refuse(self, table: GateTable, reason: RefusalReason, now_ms: float) -> Verdict:
        self.reason = reason
        self._refused(table, self._batches, now_ms)
        return Verdict.REFUSE if self._acks else Verdict.CLOSE

    def _refused(self, table: GateTable, batches: Batches, now_ms: float) -> None:
        table.refused(batches, now_ms)
        table.large.worked(len(batches), now_ms)
        self._batches = {}

    def _give_up(self, now_ms: float) -> None:
        self.wake_at_ms = inf
        self._let_go()
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._door.withdraw(ticket, now_ms)
