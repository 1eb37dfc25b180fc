"""What each connection of one bucket gets that always has something to send, by the size of its requests.

Behind a mute the next request came when the turn fell, too late for it each time: of two connections each had
one request in turn, however small, and 632 bytes beside 60 kB waited 15 s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count

import pytest

from sluice.protocol.apis import PRODUCE
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import answer, produce, record_batch, throttle_of
from testkit.proxy.playbook import START_MS, Shell, shared_of, shell_of

RATE = 200_000
ANSWER_MS = 1.5
UNLIMITED = "another"
ANSWER = answer(PRODUCE, 9, {})


class Crowd:
    """Producers of one bucket over a fake clock, and a broker that answers each request after 1.5 ms."""

    def __init__(self, late_ms: float = 0.0, *, rate: int = RATE, answer_ms: float = ANSWER_MS) -> None:
        """Connections are woken so much later than they have asked for. The client id UNLIMITED has no
        limit."""
        self.late_ms, self.answer_ms = late_ms, answer_ms
        entity = QuotaEntity(DEFAULT, "app")
        self.shared = shared_of(QuotaLimits([(entity, {"producer_byte_rate": rate})]))
        self.now_ms = START_MS
        self.producers: list[Producer] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(
        self, request_bytes: int, ahead: int, *, obeys: bool = False, once: bool = False, evades: str = ""
    ) -> Producer:
        producer = Producer(self, request_bytes, ahead, obeys=obeys, once=once, evades=evades)
        self.producers.append(producer)
        self.at(self.now_ms, producer.send)
        return producer

    def at(self, at_ms: float, action: Callable[[], None]) -> None:
        heappush(self._events, (at_ms, next(self._numbers), action))

    def run(self, ms: float) -> None:
        until_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= until_ms:
            at_ms, _, action = heappop(self._events)
            self.now_ms = max(self.now_ms, at_ms)
            action()
        self.now_ms = until_ms

    def given(self) -> list[int]:
        """Bytes acknowledged to each in a minute, behind 5 s in which their order settles."""
        self.run(5_000.0)
        for producer in self.producers:
            producer.forget()
        self.run(60_000.0)
        return [producer.bytes_acknowledged for producer in self.producers]


class Producer:
    """One connection that has `ahead` requests outstanding at any time, or sends `once`; who `obeys` sends
    none for as long as the last answer told, as Java's client does. It `evades` its turns, perhaps, by a new
    connection for each request, or by a small one of another client id between them."""

    def __init__(
        self, crowd: Crowd, request_bytes: int, ahead: int, *, obeys: bool, once: bool, evades: str
    ) -> None:
        self._crowd, self._ahead, self._obeys, self._once = crowd, ahead, obeys, once
        self._evades = evades
        self._quiet_until_ms = 0.0
        records = record_batch(bytes(request_bytes - len(produce())))
        self._request = produce({"orders": [(0, records)]})
        self._shell = self._connect()
        self._wakes_at_ms = -1.0
        self._unsent = 0  # of a request whose rest is still to come at the broker
        self._asked_ms: deque[float] = deque()
        self.bytes_acknowledged = 0
        self.longest_ms = 0.0

    def _connect(self) -> Shell:
        crowd, shell = self._crowd, shell_of(self._crowd.shared)
        shell.session.wake_by(lambda: crowd.at(crowd.now_ms, self._wake))
        return shell

    def send(self) -> None:
        shell = self._shell
        shell.now_ms = self._crowd.now_ms
        if "another client id" in self._evades and self.bytes_acknowledged:
            shell.client_sends(produce({"orders": [(0, record_batch())]}, client_id=UNLIMITED))
            shell.to_broker.clear()
            shell.broker_sends(ANSWER)
            shell.to_client.clear()
        if "reconnects" in self._evades and self.bytes_acknowledged:
            shell.session.closed(self._crowd.now_ms)
            shell = self._shell = self._connect()
            shell.now_ms = self._crowd.now_ms
        while len(self._asked_ms) < self._ahead and self._crowd.now_ms >= self._quiet_until_ms:
            self._asked_ms.append(self._crowd.now_ms)
            shell.client_sends(self._request)
        self._look()

    def forget(self) -> None:
        self.bytes_acknowledged, self.longest_ms = 0, 0.0

    def _wake(self) -> None:
        shell = self._shell
        shell.now_ms = self._crowd.now_ms
        if shell.is_delayed:
            shell.wake()
        self._look()

    def _wakes(self, at_ms: float) -> None:
        if at_ms != self._wakes_at_ms:  # it has asked for another time since
            return
        self._wakes_at_ms = -1.0
        if self._shell.is_delayed and self._shell.session.pace.wake_at_ms <= self._crowd.now_ms:
            self._wake()
        else:
            self._look()

    def _look(self) -> None:
        shell, crowd = self._shell, self._crowd
        self._unsent += len(shell.to_broker)
        shell.to_broker.clear()
        while self._unsent >= len(self._request):
            self._unsent -= len(self._request)
            crowd.at(crowd.now_ms + crowd.answer_ms, self._is_answered)
        if shell.is_delayed and self._wakes_at_ms != shell.session.pace.wake_at_ms:
            self._wakes_at_ms = shell.session.pace.wake_at_ms
            crowd.at(self._wakes_at_ms + crowd.late_ms, partial(self._wakes, self._wakes_at_ms))

    def _is_answered(self) -> None:
        shell = self._shell
        shell.now_ms = self._crowd.now_ms
        shell.broker_sends(ANSWER)
        if self._obeys:
            told_ms = throttle_of(PRODUCE, 9, bytes(shell.to_client))
            self._quiet_until_ms = self._crowd.now_ms + told_ms
        shell.to_client.clear()
        self.bytes_acknowledged += len(self._request)
        self.longest_ms = max(self.longest_ms, self._crowd.now_ms - self._asked_ms.popleft())
        self._look()
        if not self._once:
            self._crowd.at(max(self._crowd.now_ms + 0.2, self._quiet_until_ms), self.send)


@pytest.mark.parametrize("late_ms", [0.0, 5.0])
@pytest.mark.parametrize(
    ("large", "small"),
    [
        ([(60_000, 1)], [(632, 50)]),
        ([(60_000, 1)], [(632, 5)]),
        ([(60_000, 1)], [(20_000, 1)]),
        ([(60_000, 5)], [(5_000, 5)]),
        ([(60_000, 1)] * 2, [(632, 50)]),
        ([(60_000, 1)], [(632, 50)] * 2),
        ([(60_000, 1)] * 3, [(6_000, 2)] * 3),
        ([(100_000, 1)] * 2, [(10_000, 1)]),
    ],
)
def test_who_always_waits_gets_as_many_bytes_as_the_others(
    large: list[tuple[int, int]], small: list[tuple[int, int]], late_ms: float
) -> None:
    """(bytes of a request, requests outstanding) of each; and nobody waits for more than a turn of the
    others and what it has outstanding itself. Small requests are paid before their connection wakes."""
    crowd = Crowd(late_ms)
    for request_bytes, ahead in large + small:
        crowd.add(request_bytes, ahead)
    given = crowd.given()
    share = sum(given) / len(given)
    assert sum(given) == pytest.approx(60 * RATE, rel=0.05)
    assert given == pytest.approx([share] * len(given), rel=0.1)
    assert max(producer.longest_ms for producer in crowd.producers) <= 3_100.0


@pytest.mark.parametrize("late_ms", [0.0, 5.0])
@pytest.mark.parametrize(
    ("obey", "do_not"),
    [
        ([(60_000, 1), (3_000, 1)], []),
        ([(3_000, 1)], [(60_000, 1)]),
        ([(60_000, 1)], [(3_000, 1)]),
        ([(60_000, 5), (3_000, 5)], []),
        ([(3_000, 5)], [(60_000, 5)]),
        ([(60_000, 1)] * 3 + [(3_000, 1)] * 3, []),
        ([(3_000, 1)] * 3, [(60_000, 1)] * 3),
        ([(60_000, 1), (20_000, 1)], []),
        ([(16_000, 1)], [(16_000, 5)]),
        ([(16_000, 1)] * 20 + [(1_600, 1)] * 20, []),
    ],
)
def test_who_waits_as_it_is_told_gets_as_many_bytes_as_the_others(
    obey: list[tuple[int, int]], do_not: list[tuple[int, int]], late_ms: float
) -> None:
    """Java's producer of 3 kB beside one of 60 kB had 0.13 of what is even, of 16 kB beside one of the same
    that pipelines and does not obey a half: it was told when all was paid, and its turns passed meanwhile."""
    crowd = Crowd(late_ms)
    for request_bytes, ahead in obey:
        crowd.add(request_bytes, ahead, obeys=True)
    for request_bytes, ahead in do_not:
        crowd.add(request_bytes, ahead)
    given = crowd.given()
    share = sum(given) / len(given)
    assert sum(given) == pytest.approx(60 * RATE, rel=0.05)
    assert given == pytest.approx([share] * len(given), rel=0.15)


def test_who_was_waited_for_and_does_not_come_costs_nothing_of_the_rate() -> None:
    """Four a second that send once, beside one that always waits: turns are left to them in vain."""
    crowd = Crowd()
    steady = crowd.add(3_000, 2)

    def another() -> None:
        crowd.add(3_000, 1, once=True)

    for begin_ms in range(0, 60_000, 250):
        crowd.at(crowd.now_ms + begin_ms, another)
    crowd.run(60_000.0)
    given = sum(producer.bytes_acknowledged for producer in crowd.producers)
    assert given >= 60 * RATE
    assert steady.longest_ms <= 200.0


@pytest.mark.parametrize("obeys", [False, True])
@pytest.mark.parametrize(
    ("rate", "small", "large", "answer_ms"),
    [
        (100_000, 632, 60_000, 8.0),
        (1_000_000, 1_000, 60_000, 2.0),
        (1_000_000, 3_000, 60_000, 5.0),
        (1_000_000, 3_000, 500_000, 2.5),
    ],
)
def test_who_is_paid_before_its_answer_is_here_has_its_share_too(
    rate: int, small: int, large: int, answer_ms: float, *, obeys: bool
) -> None:
    """A broker that takes longer than the small request does at the rate: no turn was left to the next one,
    and it had 0.002 to 0.1 of what is even."""
    crowd = Crowd(rate=rate, answer_ms=answer_ms)
    crowd.add(small, 1, obeys=obeys)
    crowd.add(large, 1, obeys=obeys)
    given = crowd.given()
    assert sum(given) == pytest.approx(60 * rate, rel=0.05)
    assert given[0] >= 0.85 * sum(given) / 2


@pytest.mark.parametrize("connections", [60, 66, 100])
def test_many_share_by_bytes_as_few_do(connections: int) -> None:
    """With more than 64 each counted as much as who was told: those of 1 kB had 0.2 of what is even."""
    crowd = Crowd(rate=4_000 * connections)
    for _ in range(connections // 2):
        crowd.add(1_000, 1, obeys=True)
        crowd.add(20_000, 1, obeys=True)
    given = crowd.given()
    share = sum(given) / len(given)
    assert given == pytest.approx([share] * len(given), rel=0.15)


@pytest.mark.parametrize("evades", ["reconnects", "another client id", "another client id, reconnects"])
@pytest.mark.parametrize(("neighbours", "request_bytes"), [(1, 3_000), (8, 3_000), (8, 30_000)])
def test_who_leaves_its_place_has_no_more_than_who_stays(
    neighbours: int, request_bytes: int, evades: str
) -> None:
    """Each time its turn was before theirs: it had 1.3 times what is even beside one, 8.6 times beside
    eight; 3.4 times where it did both, later than either alone."""
    crowd = Crowd()
    crowd.add(request_bytes, 1, evades=evades)
    for _ in range(neighbours):
        crowd.add(60_000, 1)
    given = crowd.given()
    assert given[0] <= 1.1 * sum(given) / len(given)


@pytest.mark.parametrize("obeys", [False, True])
@pytest.mark.parametrize("ahead", [1, 5])
def test_small_requests_of_who_obeys_pass_an_overload_as_those_of_others_do(
    ahead: int, *, obeys: bool
) -> None:
    """20 × 50 kB at 100 kB/s go ahead of the quota, by their deadlines. An answer told what is owed, 8 s each
    time, though nobody waits for that: who obeyed had a hundredth of who did not."""
    crowd = Crowd(rate=100_000)
    small = crowd.add(500, ahead, obeys=obeys)
    for _ in range(20):
        crowd.add(50_000, 1)
    crowd.given()
    assert small.bytes_acknowledged >= 60 * 3_000
