"""Many producers under `over_budget: refuse`: the rate is a hard limit, it is used, and all get on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from sluice.proxy.session.connection_states import State
from testkit.frames.frames import produce_answer, produce_of
from testkit.proxy.playbook import START_MS, Shell
from testkit.proxy.refusing_session import BUDGET_MS, refusals_of, shells


@dataclass
class Producer:
    """Sends one request after another; a refused one again, after its backoff and, if it listens, after what
    it was told."""

    shell: Shell
    frame: bytes
    listens: bool
    next_ms: float = 0.0
    refused: int = 0
    most_refused: int = 0
    went_ms: list[float] = field(default_factory=list)
    is_waiting: bool = False

    def step(self, now_ms: float) -> None:
        shell = self.shell
        shell.advance(max(now_ms - shell.now_ms, 0.0))
        if not self.is_waiting and now_ms >= self.next_ms and shell.state is State.READING:
            self.is_waiting = True
            shell.client_sends(self.frame)
        if shell.to_broker:
            shell.to_broker.clear()
            self.went_ms.append(now_ms)
            self.refused = 0
            shell.broker_sends(produce_answer())
            shell.to_client.clear()
            self.is_waiting, self.next_ms = False, now_ms
        elif shell.to_client:
            ((_, told_ms, _),) = refusals_of(shell)
            self.refused += 1
            self.most_refused = max(self.most_refused, self.refused)
            self.is_waiting = False
            self.next_ms = now_ms + max(100.0, told_ms if self.listens else 0.0)


def run(producers: list[Producer], for_ms: int, step_ms: int = 10) -> None:
    begin_ms = producers[0].shell.now_ms
    for at_ms in range(0, for_ms, step_ms):
        for producer in producers:
            producer.step(begin_ms + at_ms)


@pytest.mark.parametrize("listens", [True, False, None])
def test_twenty_clients_of_a_second_each_keep_to_the_rate_and_all_get_on(listens: bool | None) -> None:
    """20 × 1 s of the rate at a time, B = 2 s; None: every other one waits as it is told."""
    producers = [
        Producer(shell, produce_of(1_000), number % 2 == 0 if listens is None else listens)
        for number, shell in enumerate(shells(20))
    ]
    run(producers, 120_000)
    by_second = Counter(int((at - START_MS) // 1_000) for one in producers for at in one.went_ms)
    assert by_second[0] <= 3, "a burst, one beyond it, and one at the end of the second"
    assert max(n for second, n in by_second.items() if second) <= 2, "one request may fall into its neighbour"
    total = sum(by_second.values())
    assert 0.9 * 120 <= total <= 120 + 2, "the rate is used, and kept"
    each = [len(one.went_ms) for one in producers]
    assert min(each) >= 4, each
    rounds = 20 * 1_000 / BUDGET_MS  # refusals while each of the others gets its turn
    assert max(one.most_refused for one in producers) <= 2 * rounds
    sensor = producers[0].shell.sensor()
    assert sensor.over <= 2_000


def test_more_than_the_cap_on_debt_forgives_nothing_of_what_goes_on() -> None:
    """100 s of the rate wait, and the cap is 60: what is refused makes up for what was forgiven."""
    producers = [Producer(shell, produce_of(1_000), listens=False) for shell in shells(100)]
    run(producers, 30_000, step_ms=20)
    went = sorted(at for one in producers for at in one.went_ms)
    assert 28 <= len(went) <= 32
    assert producers[0].shell.sensor().forgiven > 0
    assert all(later - sooner >= 940 for sooner, later in pairwise(went[2:]))


@pytest.mark.parametrize("listens", [True, False])
def test_a_request_larger_than_a_budget_gets_its_turn_beside_small_ones(listens: bool) -> None:
    large, *small = shells(5)
    producers = [Producer(large, produce_of(5_000), listens)]
    producers += [Producer(shell, produce_of(300), listens) for shell in small]
    run(producers, 120_000)
    assert len(producers[0].went_ms) >= 2
    assert min(len(one.went_ms) for one in producers) >= 2
