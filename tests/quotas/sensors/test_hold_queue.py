"""Held requests go in order, none behind its deadline, evenly where the quota cannot pay all in time."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from weakref import ref

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Place

BUDGET_MS = 8_000.0
RATE = 1_000.0
"""bytes per ms: 1 MB/s"""
LATE_MS = 1.001
"""for less than 1 ms a connection is not woken, so it acts by so much later than the queue has let it go"""


@dataclass
class World:
    """Requests charged against a bucket of RATE, without burst; connections ask when they were told to."""

    queue: HoldQueue = field(default_factory=lambda: HoldQueue(1 / RATE))
    now_ms: float = 0.0
    tat_ms: float = 0.0
    went: list[tuple[float, int]] = field(default_factory=list)
    """(when, number) of each request"""
    deadlines: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    turns: dict[int, float] = field(default_factory=dict)
    lateness_ms: float = 0.0
    """by how much connections act late"""
    _timers: list[tuple[float, int]] = field(default_factory=list)
    _tickets: dict[int, HoldTicket] = field(default_factory=dict)

    def arrives(
        self,
        request_bytes: int,
        budget_ms: float = BUDGET_MS,
        place: Place | None = None,
        here_bytes: float | None = None,
    ) -> int:
        number = len(self.sizes)
        eligible_at_ms = max(self.tat_ms, self.now_ms)
        self.tat_ms = eligible_at_ms + request_bytes / RATE
        self.sizes[number], self.turns[number] = request_bytes, eligible_at_ms
        self.deadlines[number] = self.now_ms + budget_ms
        if eligible_at_ms <= self.now_ms:
            self.went.append((self.now_ms, number))
            return number
        wake = lambda: heappush(self._timers, (self.now_ms, number))  # noqa: E731
        ticket = self.queue.enter(
            request_bytes, eligible_at_ms, self.deadlines[number], self.now_ms, wake, place
        )
        if here_bytes is not None:
            ticket.here_bytes = here_bytes
        self._tickets[number] = ticket
        heappush(self._timers, (self.queue.ask(ticket, self.now_ms), number))
        return number

    def leaves(self, number: int) -> None:
        ticket = self._tickets.pop(number, None)
        if ticket is not None:
            self.queue.leave(ticket, self.now_ms)
            self.tat_ms -= self.sizes[number] / RATE

    def until(self, now_ms: float) -> None:
        while self._timers and self._timers[0][0] <= now_ms:
            at_ms, number = heappop(self._timers)
            self.now_ms = max(self.now_ms, at_ms)
            ticket = self._tickets.get(number)
            if ticket is None:
                continue
            next_ms = self.queue.ask(ticket, self.now_ms)
            if next_ms <= self.now_ms:
                del self._tickets[number]
                self.went.append((self.now_ms, number))
            else:
                heappush(self._timers, (next_ms + self.lateness_ms, number))
        self.now_ms = max(self.now_ms, now_ms)


def times(world: World) -> list[float]:
    return [at_ms for at_ms, _ in world.went]


def test_the_worked_example() -> None:
    world = World()
    for _ in range(17):
        world.arrives(1_000_000)
    world.until(20_000)
    assert times(world) == pytest.approx([0, *(500.0 * number for number in range(1, 17))])


def test_where_the_quota_pays_all_in_time_turns_decide() -> None:
    world = World()
    for _ in range(8):
        world.arrives(1_000_000)
    world.until(20_000)
    assert times(world) == pytest.approx([1_000.0 * number for number in range(8)])


def test_fifty_at_once_go_at_the_stated_bound_in_every_second() -> None:
    world = World()
    for _ in range(50):
        world.arrives(1_048_576)
    world.until(20_000)
    bound = 49 * 1_048_576 / 8
    seconds = [0] * 10
    for at_ms, number in world.went[1:]:
        seconds[int(at_ms // 1_000)] += world.sizes[number]
    assert max(seconds) <= bound + 1_048_576
    assert min(seconds[:8]) >= bound - 1_048_576


def test_who_comes_later_and_is_late_too_brings_the_others_forward() -> None:
    world = World()
    for _ in range(9):
        world.arrives(1_000_000)
    world.until(100)
    for _ in range(24):
        world.arrives(1_000_000)
    world.until(30_000)
    assert [number for _, number in world.went] == list(range(33))
    gaps = [later - earlier for earlier, later in zip(times(world)[1:], times(world)[2:], strict=False)]
    assert max(gaps) == pytest.approx(8_000 / 32, abs=8)


def test_a_connection_that_acts_late_delays_nobody_else() -> None:
    """By the plan, whatever the first one does: its event loop is busy, say, or it logs in again."""
    queue = HoldQueue(1 / RATE)
    first = queue.enter(1_000_000, 1_000, 8_000, 0)
    second = queue.enter(1_000_000, 2_000, 8_000, 0)
    assert queue.ask(second, 2_000) == 2_000
    assert queue.ask(first, 2_000) == 2_000


def test_who_leaves_makes_room_and_nobody_goes_too_early() -> None:
    world = World()
    numbers = [world.arrives(1_000_000) for _ in range(17)]
    for number in numbers[5:]:
        world.leaves(number)
    world.until(20_000)
    assert [number for _, number in world.went] == [0, 1, 2, 3, 4]
    assert min(later - earlier for earlier, later in zip(times(world), times(world)[1:], strict=False)) >= 499


BUDGETS = st.sampled_from([8_000.0, 2_000.0, 7_500.0])
ARRIVALS = st.lists(
    st.tuples(st.floats(0, 3_000), st.integers(100, 4_000_000), BUDGETS, st.booleans()),
    min_size=1,
    max_size=60,
)


@given(ARRIVALS)
def test_nobody_goes_behind_a_deadline(
    arrivals: list[tuple[float, int, float, bool]],
) -> None:
    world = World()
    for pause_ms, request_bytes, budget_ms, leaves in arrivals:
        world.until(world.now_ms + pause_ms)
        number = world.arrives(request_bytes, budget_ms)
        if leaves and number % 3 == 0:
            world.leaves(number - 1)
    world.until(world.now_ms + 100_000)
    for at_ms, number in world.went:
        assert at_ms <= world.deadlines[number] + 1e-3
    assert len(world.queue) == 0


@given(st.lists(st.tuples(st.floats(0, 3_000), st.integers(100, 4_000_000)), min_size=1, max_size=60))
def test_the_pace_is_never_above_the_stated_bound(arrivals: list[tuple[float, int]]) -> None:
    """Bytes that go in any span ≤ bound × span + one request; bound: the most held at once ÷ budget, or the
    rate."""
    world = World()
    most = 0
    for pause_ms, request_bytes in arrivals:
        world.until(world.now_ms + pause_ms)
        world.arrives(request_bytes)
        gone = {number for _, number in world.went}
        most = max(most, sum(size for number, size in world.sizes.items() if number not in gone))
    world.until(world.now_ms + 100_000)
    bound = max(RATE, most / BUDGET_MS)
    held = [(at_ms, world.sizes[number]) for at_ms, number in world.went]
    largest = max(world.sizes.values())
    for first in range(len(held)):
        total = 0
        for at_ms, size in held[first:]:
            total += size
            assert total <= bound * (at_ms - held[first][0]) + 2 * largest + 1


@example([(0.0, 100), (0.0, 100), (0.0, 801), (0.0, 100)])  # the last goes at 0.2 ms and acts at 1.0
@given(st.lists(st.tuples(st.floats(0, 3_000), st.integers(100, 1_000_000)), min_size=1, max_size=60))
def test_nothing_goes_ahead_of_the_quota_where_all_could_go_in_time(
    arrivals: list[tuple[float, int]],
) -> None:
    """Whoever overtakes whom: bytes that went before any request ≤ what the rate has paid by then."""
    world = World()
    for pause_ms, request_bytes in arrivals:
        world.until(world.now_ms + pause_ms)
        world.arrives(request_bytes)
    world.until(world.now_ms + 100_000)
    if all(world.turns[number] <= world.deadlines[number] for number in world.sizes):
        clears_at_ms = 0.0
        for at_ms, number in world.went:
            assert at_ms >= clears_at_ms - LATE_MS
            assert at_ms <= world.deadlines[number] + 1e-3
            clears_at_ms = max(clears_at_ms, at_ms) + world.sizes[number] / RATE


def flat_out(sizes: list[int], seconds: int) -> tuple[list[int], list[list[float]]]:
    """Connections that send their next request as soon as the last has gone: bytes and waits of each."""
    world = World()
    got, waits = [0] * len(sizes), [[] for _ in sizes]  # type: ignore[var-annotated]
    whose: dict[int, int] = {}
    begun: dict[int, float] = {}

    places = [Place() for _ in sizes]

    def send(sender: int) -> None:
        number = world.arrives(sizes[sender], place=places[sender])
        whose[number], begun[number] = sender, world.now_ms

    for sender in range(len(sizes)):
        send(sender)
    seen = 0
    while world.now_ms < seconds * 1_000:
        while seen < len(world.went):
            at_ms, number = world.went[seen]
            seen += 1
            sender = whose[number]
            got[sender] += sizes[sender]
            waits[sender].append(at_ms - begun[number])
            send(sender)
        world.until(world.now_ms + 1)
    return got, waits


def test_small_requests_flat_out_get_their_share_and_wait_for_a_round_only_when_they_have_had_it() -> None:
    got, waits = flat_out([100, *[50_000] * 9], 30)
    assert got[0] >= 0.5 * 30_000 * RATE / 10, "though it looks once a ms"
    assert sorted(waits[0])[len(waits[0]) * 99 // 100] <= 52
    assert max(waits[0][1:]) <= 9 * 50 + 2


def test_turns_go_by_bytes() -> None:
    """Not by requests: whoever sends large ones gets no more of the rate than its neighbours."""
    got, waits = flat_out([10_000, 20_000, 50_000, 200_000], 60)
    assert max(got) - min(got) <= 2 * 200_000
    assert max(max(each) for each in waits) <= 1_000


def test_in_overload_too_a_small_request_is_not_kept_behind_large_ones() -> None:
    _, waits = flat_out([100, *[1_000_000] * 30], 40)
    late = sorted(waits[0][10:])
    assert len(late) > 100
    assert late[len(late) * 99 // 100] <= 600


def test_a_request_that_is_overtaken_by_small_ones_all_the_time_goes_in_time_and_at_the_rate() -> None:
    """Fair by bytes: nine connections of 50 kB may each send 1 MB before it, which is later than its deadline
    allows. So it is let through before that, and the rate holds in every second."""
    world = World()
    for _ in range(9):
        world.arrives(50_000)
    large = world.arrives(1_000_000)
    seen = 1
    while world.now_ms < 20_000:
        world.until(world.now_ms + 1)
        while seen < len(world.went):
            _, number = world.went[seen]
            seen += 1
            if number != large:
                world.arrives(50_000)
    at_ms = next(at_ms for at_ms, number in world.went if number == large)
    assert 6_000 <= at_ms <= BUDGET_MS
    clears_at_ms = 0.0
    for at_ms, number in world.went:
        assert at_ms >= clears_at_ms - 1.5
        clears_at_ms = max(clears_at_ms, at_ms) + world.sizes[number] / RATE


def test_a_limit_that_is_lowered_is_met_without_a_lump() -> None:
    """Sixteen of 500 kB could go in 8 s; at a tenth of the rate they cannot: evenly, for what is left."""
    world = World()
    for _ in range(17):
        world.arrives(500_000)
    world.until(1_001)
    world.queue.update(10 / RATE, world.now_ms)
    world.until(20_000)
    seconds = [0] * 9
    for at_ms, number in world.went[1:]:
        seconds[int(at_ms // 1_000)] += world.sizes[number]
    assert max(seconds[2:]) <= 7_000_000 / 7 + 500_000


def test_who_comes_back_to_a_kept_place_makes_no_room_for_newcomers() -> None:
    """1,000 B/s. One was refused long ago and keeps tag 0; when he goes, who comes anew stands behind those
    who wait, as before."""
    queue = HoldQueue(1.0)
    early, waiting, newcomer = Place(), Place(), Place()
    refused = queue.enter(100.0, 10_000.0, inf, 0.0, None, early)
    queue.refuse(refused, 8_000.0, 2_000.0)
    queue.virtual_time = 5_000.0  # what others have been given since
    back = queue.enter(100.0, 2_000.0, inf, 2_000.0, None, early)
    waits = queue.enter(1_000.0, 2_100.0, inf, 2_000.0, None, waiting)
    assert queue.ask(back, 2_000.0) == 2_000.0, "he goes first"
    new = queue.enter(500.0, 3_100.0, inf, 2_000.0, None, newcomer)
    assert (back.begin_tag, queue.virtual_time) == (0.0, 5_000.0)
    assert new.begin_tag >= waits.begin_tag


def test_a_refusal_tells_of_what_stands_before_it_and_of_nothing_else() -> None:
    """2,000 B are owed, 300 B stand before it, and 400 B behind it."""
    queue = HoldQueue(1.0)
    first, middle, last = (
        queue.enter(size, 2_000.0, inf, 0.0, None, Place()) for size in (300.0, 350.0, 400.0)
    )
    assert queue.refuse(middle, 8_000.0, 500.0) == 1_500.0 + 300.0
    assert queue.refuse(last, 8_000.0, 500.0) == 1_500.0 + 300.0 + 350.0, "who was told to come is before it"
    assert queue.refuse(first, 1_000.0, 500.0) == 1_000.0, "the budget at most"
    assert (len(queue), queue.held_bytes) == (0, 0.0)


class Connection:
    """What a ticket's `wake` leads to."""

    def wake(self) -> None:
        pass


@pytest.mark.parametrize("how", ["leaves", "is refused", "goes"])
def test_who_is_out_of_the_queue_does_not_keep_its_connection(how: str) -> None:
    """At 1 B/ms one of 10⁶ B waits, and others come and go behind it: each kept 256 KiB that its client had
    sent, until the first went."""
    queue = HoldQueue(1.0)
    queue.enter(1e6, 1e6, inf, 0.0)
    kept = []
    for number in range(1_000):
        connection = Connection()
        kept.append(ref(connection))
        ticket = queue.enter(2e6, 2e6, inf, float(number), connection.wake)
        if how == "leaves":
            queue.leave(ticket, float(number))
        elif how == "is refused":
            queue.refuse(ticket, 1_000.0, float(number))
        else:
            queue.go_now(ticket, float(number))
        del connection, ticket
    assert [each for each in kept if each() is not None] == []
    assert len(queue._by_tag) <= 64 + 3
