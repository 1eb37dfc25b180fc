"""The door through which new producer ids come: who is admitted, when, from which bucket. Pure.

One narrow interface, so that several workers, later several proxies, can share one door: `ask`, then either
`commit` when the request goes to the broker, or `withdraw`; `serve` tells whose turn has come. An id is
remembered by `commit` alone (wire-semantics 3.2). What is granted is reserved until then, so nothing is lost
when a client leaves between its turn and its request.

        ask ──► WAITING ── tokens for the oldest ──► GRANTED ── commit ──► DONE, ids remembered
                   │                                    │
                   └───────────── withdraw ─────────────┴──► DONE, tokens back

Order (3.9): addresses and client ids take turns (fair_queue.py), and of one client the oldest goes first, by
the time that its youngest id first asked (a request must not lend the age of one id to a hundred others).
Requests with one new id, with one resumed id, with several and without room below the ceiling stand in
queues of their own (rate_queues.py), so that none stops one that needs less. The forced bucket has others
(forced_queue.py), open to an id that has waited for W, or if its client is a member of a group or has a
transaction (members.py) for a third of its timeout; half of the bucket is for such clients alone. It is one
bucket, so the bound is the same whoever says that he is a member.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final, Protocol

from sluice.quotas.producer_ids.forced_queue import ForcedQueue
from sluice.quotas.producer_ids.members import Members
from sluice.quotas.producer_ids.principal import PairCeiling, PairKeys, PrincipalIds, ProducerIdSettings
from sluice.quotas.producer_ids.rate_queues import RateQueues
from sluice.quotas.producer_ids.store import ExactStore
from sluice.quotas.producer_ids.ticket import Ticket, TicketState

OTHERS: Final = "\0others"
"""the principal of those beyond max_principals; no user has this name"""
MAX_HANDED_OUT: Final = 100_000
"""ids of all users that are remembered as handed out, 7.4 MB; the older half is forgotten when the newer one
is full"""
_EARLIER_MS: Final = 1.0
"""by so much must a turn come earlier than it was foretold to be worth another wake"""


def _nobody_listens() -> None:
    pass


class AdmissionDoor(Protocol):
    """What a session needs of a door. The door of this process is ProducerIdQuota."""

    def ask(self, ticket: Ticket, now_ms: float) -> bool:
        """True: granted at once. Else it waits, and `serve` may bring it."""
        ...

    def commit(self, ticket: Ticket, now_ms: float) -> None:
        """A granted ticket's request goes to the broker: its ids are known from now on."""
        ...

    def withdraw(self, ticket: Ticket, now_ms: float) -> None:
        """Its request will not go: refused, or its client left. The ids keep their age for a while."""
        ...


class ProducerIdQuota:
    """The door of one process, and all its principals."""

    def __init__(self, settings: ProducerIdSettings, salt: bytes | None = None) -> None:
        self.settings = settings
        self.ceiling = PairCeiling(settings)
        self.pair_keys = PairKeys(salt)
        self.members = Members()
        self.handed_out = ExactStore(settings.window_num, settings.sample_ms, max_ids=MAX_HANDED_OUT)
        """ids that brokers have handed out with epoch 0, to transactional ids: what comes with one is new"""
        self._principals: dict[tuple[str, bool], PrincipalIds] = {}  # by name, and whether it is enforced
        self._joined = 0  # users who have both states
        self._queues: dict[PrincipalIds, RateQueues] = {}  # only of those with waiting tickets
        self._forced: dict[PrincipalIds, ForcedQueue] = {}  # likewise
        self._dues: list[tuple[float, int, PrincipalIds]] = []
        self._granted: list[Ticket] = []
        self._number = 0
        self.when_due: Callable[[], object] = _nobody_listens
        """called when `due_ms` may have become earlier: who calls `serve` need not look while nobody waits"""

    def principal(
        self, user: str, ids_per_hour: float, now_ms: float, *, enforced: bool = True
    ) -> PrincipalIds:
        """A principal's state, made on first use; another limit than before is put in force.

        For who judges by a limit that was looked up just now. Ask again for every look-up, for `expire` may
        have dropped it: a second state would be a second burst. Where it is not enforced it has a state of
        its own, for one address of a user may be exempt; the two know the same ids (PrincipalIds.join).
        """
        principal = self.find(user, ids_per_hour, now_ms, enforced=enforced)
        if principal.ids_per_hour != ids_per_hour:
            principal.update(ids_per_hour, now_ms)
            self._touch(principal, now_ms)
        return principal

    def find(self, user: str, ids_per_hour: float, now_ms: float, *, enforced: bool = True) -> PrincipalIds:
        """The same, whose limit stays: for what was judged before. Its limit may be another since then, and
        would be put back in force for all who wait. `ids_per_hour`: only for a state that is made now."""
        principal = self._principals.get((user, enforced))
        if principal is None and self._is_full and (user, not enforced) not in self._principals:
            user = OTHERS
            principal = self._principals.get((user, enforced))
        if principal is None:
            principal = PrincipalIds(
                user, ids_per_hour, self.settings, self.ceiling, now_ms, enforced=enforced
            )
            self._principals[user, enforced] = principal
            other = self._principals.get((user, not enforced))
            if other is not None:
                principal.join(other)
                self._joined += 1
        return principal

    @property
    def _is_full(self) -> bool:
        """No user more has a state of his own."""
        return len(self._principals) - self._joined >= self.settings.max_principals

    def principals(self) -> Iterator[PrincipalIds]:
        """All of them, for metrics and the snapshot."""
        return iter(self._principals.values())

    @property
    def due_ms(self) -> float:
        """When `serve` has something to do, if nothing else happens before; inf: it has not."""
        if self._granted:
            return -math.inf
        dues = self._dues
        while dues and dues[0][2].due_ms != dues[0][0]:
            heappop(dues)
        return dues[0][0] if dues else math.inf

    # The door ----------------------------------------------------------------------------------------------

    def ask(self, ticket: Ticket, now_ms: float) -> bool:
        principal = ticket.principal
        if not principal.enforced:
            ticket.state = TicketState.GRANTED
            return True
        ticket.since_ms = principal.waiting_since_ms(ticket.new_ids + ticket.resumed_ids, now_ms)
        principal.waiting_tickets += 1
        self._set_forced_at(ticket, now_ms)
        if not principal.can_ever_admit(
            len(ticket.new_ids), len(ticket.resumed_ids), len(ticket.pairs), is_member=ticket.is_member
        ):
            return False
        queues = self._queues.get(principal)
        if queues is None:
            queues = self._queues[principal] = RateQueues()
            self._forced[principal] = ForcedQueue()
        forced = self._forced[principal]
        queues.push(ticket)
        if ticket.forced_at_ms < math.inf:
            forced.push(ticket)
        ticket.queued = True
        if not queues.is_head(ticket) and not any(head is ticket for head in forced.heads(now_ms)):
            self._set_due(principal, self._forced_ms(principal, forced, now_ms))
            return False
        self._serve(principal, now_ms)
        if ticket.granted:
            self._granted.remove(ticket)
            return True
        return False

    def serve(self, now_ms: float) -> list[Ticket]:
        """The tickets whose turn has come since the last call; wake their owners."""
        due = []
        while self._dues and self._dues[0][0] <= now_ms:
            due_ms, _, principal = heappop(self._dues)
            if principal.due_ms == due_ms:
                principal.due_ms = math.inf
                due.append(principal)
        for principal in due:
            self._serve(principal, now_ms)
        granted, self._granted = self._granted, []
        return [ticket for ticket in granted if ticket.granted]

    def commit(self, ticket: Ticket, now_ms: float) -> None:
        assert ticket.granted, ticket.state
        principal = ticket.principal
        forced = ticket.state is TicketState.FORCED
        spent = [0, 0]
        for is_resumed, ids in enumerate((ticket.new_ids, ticket.resumed_ids)):
            for producer_id in ids:
                principal.end_wait(producer_id)
                self.handed_out.discard(producer_id)  # it has begun its life: new it is no more
                spent[is_resumed] += principal.learn(producer_id, now_ms)  # two connections may ask for it
        self._release(ticket, spent, now_ms)
        principal.admitted += sum(spent)
        principal.resumed_admitted += spent[1]
        principal.forced_admitted += sum(spent) if forced else 0
        for key in ticket.pairs:
            principal.see_pair(key, now_ms)
        self._touch(principal, now_ms)
        if principal.other is not None:
            self._touch(principal.other, now_ms)

    def withdraw(self, ticket: Ticket, now_ms: float) -> None:
        if ticket.state is TicketState.WAITING:
            ticket.state = TicketState.DONE
            principal = ticket.principal
            principal.waiting_tickets -= 1
            if ticket.queued:
                self._queues[principal].bury(ticket)
                if ticket.forced_at_ms < math.inf:
                    self._forced[principal].bury(ticket)
                self._touch(principal, now_ms)  # others may have waited behind it
        elif ticket.granted:
            self._release(ticket, [0, 0], now_ms)
            self._touch(ticket.principal, now_ms)
        ticket.principal.waiting_since_ms(ticket.new_ids + ticket.resumed_ids, now_ms)

    # Clean-up ----------------------------------------------------------------------------------------------

    def expire(self, now_ms: float) -> int:
        """Drop old layers, and principals of which nothing is left; return how many of these.

        Call it every producer.id.quota.cache.cleanup interval; what waits for the ceiling is served then.
        """
        self.members.expire(now_ms)
        self.handed_out.expire(now_ms)
        gone = [principal for principal in self._principals.values() if principal.expire(now_ms)]
        for principal in gone:
            del self._principals[principal.user, principal.enforced]
            self._joined -= principal.other is not None
            principal.part()
        self.ceiling.total = sum(len(principal.pairs) for principal in self._principals.values())
        for principal in list(self._queues):
            self._touch(principal, now_ms)
        return len(gone)

    # Within ------------------------------------------------------------------------------------------------

    def _touch(self, principal: PrincipalIds, now_ms: float) -> None:
        """Something has changed for this principal: look at it at once."""
        if principal in self._queues:
            self._set_due(principal, now_ms)

    def _set_due(self, principal: PrincipalIds, due_ms: float) -> None:
        """Only if it is earlier than what was foretold: a wake that comes too early does no harm."""
        if due_ms < principal.due_ms - _EARLIER_MS:
            principal.due_ms = due_ms
            self._number += 1
            heappush(self._dues, (due_ms, self._number, principal))
            self.when_due()

    def _set_forced_at(self, ticket: Ticket, now_ms: float) -> None:
        """From when on the forced bucket is open to it."""
        principal = ticket.principal
        wait_ms = self.settings.forced_after_ms
        member_wait_ms = self.members.wait_ms(principal.user, ticket.client, now_ms)
        if member_wait_ms is not None:
            ticket.is_member = True
            wait_ms = min(wait_ms, member_wait_ms)
        if ticket.count + principal.forced_floor(is_member=ticket.is_member) <= principal.forced.capacity:
            ticket.forced_at_ms = ticket.since_ms + wait_ms

    def _serve(self, principal: PrincipalIds, now_ms: float) -> None:
        """Grant all that can be; note when the next can."""
        queues = self._queues.get(principal)
        if queues is None:
            return
        forced = self._forced[principal]
        while self._serve_by_rate(queues, forced, now_ms) or self._serve_by_force(queues, forced, now_ms):
            pass
        heads = queues.heads()
        if not heads:
            del self._queues[principal], self._forced[principal]
            return
        by_rate_ms = min(self._rate_ms(queues, head, now_ms) for head in heads)
        self._set_due(principal, min(by_rate_ms, self._forced_ms(principal, forced, now_ms)))

    def _serve_by_rate(self, queues: RateQueues, forced: ForcedQueue, now_ms: float) -> bool:
        """Grant the oldest of those whose turn it is that finds its tokens."""
        for head in queues.heads():
            principal = head.principal
            if self._rate_ms(queues, head, now_ms) > now_ms:
                continue
            found = self._unseen(head, now_ms)
            if found is None:
                if queues.lacks_room(head):
                    return True  # another is the head in its place
                continue
            new, resumed = found
            if not principal.main.reserve(new, now_ms):
                continue
            if not principal.resumed.reserve(resumed, now_ms):
                principal.main.settle(new, 0, now_ms)
                continue
            self._grant(head, TicketState.GRANTED, (new, resumed, 0))
            queues.granted(head)
            if head.forced_at_ms < math.inf:
                forced.bury(head)
            return True
        return False

    def _serve_by_force(self, queues: RateQueues, forced: ForcedQueue, now_ms: float) -> bool:
        """As _serve_by_rate, of those to whom the forced bucket is open. They keep their turn at the rate."""
        for head in forced.heads(now_ms):
            principal = head.principal
            if self._force_ms(forced, head, now_ms) > now_ms:
                continue
            found = self._unseen(head, now_ms)
            if found is None and forced.lacks_room(head):
                return True
            if found is None or not principal.forced.reserve(
                sum(found), now_ms, principal.forced_floor(is_member=head.is_member)
            ):
                continue
            self._grant(head, TicketState.FORCED, (0, 0, sum(found)))
            forced.granted(head)
            queues.bury(head)
            return True
        return False

    def _unseen(self, ticket: Ticket, now_ms: float) -> tuple[int, int] | None:
        """(new, resumed) ids that are still unseen, for another connection may have brought them meanwhile;
        None: the ceiling has no room for them."""
        principal = ticket.principal
        if ticket.looked_up_at != principal.learned:
            knows = principal.knows
            new = sum(not knows(producer_id, now_ms) for producer_id in ticket.new_ids)
            resumed = sum(not knows(producer_id, now_ms) for producer_id in ticket.resumed_ids)
            ticket.unseen, ticket.looked_up_at = (new, resumed), principal.learned
        return None if any(ticket.unseen) and not self._has_room(ticket) else ticket.unseen

    def _has_room(self, ticket: Ticket) -> bool:
        return self.ceiling.has_room(ticket.principal, len(ticket.pairs))

    def _grant(self, ticket: Ticket, state: TicketState, reserved: tuple[int, int, int]) -> None:
        """Its tokens are taken; take its pairs."""
        principal = ticket.principal
        ticket.state, ticket.reserved = state, reserved
        ticket.capacities = (principal.main.capacity, principal.resumed.capacity, principal.forced.capacity)
        principal.waiting_tickets -= 1
        principal.reserved_pairs += len(ticket.pairs)
        self.ceiling.reserved += len(ticket.pairs)
        self._granted.append(ticket)
        self.when_due()

    def _release(self, ticket: Ticket, spent: list[int], now_ms: float) -> None:
        """The ticket is done with; `spent`: how many new and resumed ids went to the broker."""
        principal = ticket.principal
        if principal.enforced:
            main, resumed, forced = ticket.reserved
            of_main, of_resumed, of_forced = ticket.capacities
            principal.main.settle(main, min(spent[0], main), now_ms, of_main)
            principal.resumed.settle(resumed, min(spent[1], resumed), now_ms, of_resumed)
            principal.forced.settle(forced, min(sum(spent), forced), now_ms, of_forced)
            principal.reserved_pairs -= len(ticket.pairs)
            self.ceiling.reserved -= len(ticket.pairs)
        else:
            principal.over += not principal.main.charge(spent[0], now_ms)
            principal.over += not principal.resumed.charge(spent[1], now_ms)
        ticket.state = TicketState.DONE

    def _rate_ms(self, queues: RateQueues, ticket: Ticket, now_ms: float) -> float:
        """When the rate has a ticket's tokens; inf while only the ceiling's clean-up can help. One that does
        not know yet that there is no room gives way then."""
        principal = ticket.principal
        new, resumed = ticket.least_unseen
        if new + resumed and queues.waits_for_room(ticket) and not self._has_room(ticket):
            return math.inf
        return max(principal.main.ready_ms(new, now_ms), principal.resumed.ready_ms(resumed, now_ms))

    def _force_ms(self, forced: ForcedQueue, ticket: Ticket, now_ms: float) -> float:
        """When the forced bucket has a ticket's tokens; inf as in `_rate_ms`."""
        principal = ticket.principal
        count = sum(ticket.least_unseen)
        if count and forced.waits_for_room(ticket) and not self._has_room(ticket):
            return math.inf
        floor = principal.forced_floor(is_member=ticket.is_member)
        return principal.forced.ready_ms(count, now_ms, floor)

    def _forced_ms(self, principal: PrincipalIds, forced: ForcedQueue, now_ms: float) -> float:
        """When the forced bucket has something for one of those to whom it is open, or opens to another."""
        due_ms = max(forced.next_ms, principal.forced.ready_ms(1, now_ms))
        return min([due_ms, *(self._force_ms(forced, head, now_ms) for head in forced.heads(now_ms))])
