"""bench-cost: ratios at equal wake-ups, slopes, loads at a given rate, and brokers that gateways ask for."""

from __future__ import annotations

import time

from bench.cost.cases import (
    CASES,
    Case,
    CaseResult,
    Entities,
    ProxyMemory,
    all_cases,
    further_cases,
    slope_cases,
)
from bench.cost.churn import Lives
from bench.cost.report import CostRun, Part, summary_of
from bench.cost.wakeups import equal_ratio, medians
from bench.lib.fake_broker import FakeBroker
from bench.lib.load import Load, Measured, Work
from bench.lib.placement import Placement
from bench.lib.poller import Poller
from sluice.protocol.addresses.metadata_poll import brokers_of
from testkit.frames import load_frames as frames
from testkit.processes.process import Usage

ONE = Case("request_50", "", Work(b"", b"", 50, 1, 1, 1))


def measured(cpu_s: float, wakeups: int, requests: int = 1_000) -> Measured:
    return Measured(requests, 1.0, cpu_s, wakeups)


def result(*pairs: tuple[Measured, Measured], case: Case = ONE) -> CaseResult:
    return CaseResult(case, {"ours": [a for a, _ in pairs], "theirs": [b for _, b in pairs]})


def test_a_ratio_at_equal_wakeups_is_of_the_pairs_that_woke_up_alike() -> None:
    alike = [(measured(cpu_s, 100), measured(1.0, 105)) for cpu_s in (1.0, 2.0, 4.0)]
    found = equal_ratio(result(*alike, (measured(9.0, 100), measured(1.0, 500))), "ours", "theirs")
    assert found is not None
    assert (found.median, found.low, found.high) == (2.0, 1.0, 4.0)


def test_too_few_such_pairs_give_no_ratio() -> None:
    pairs = [(measured(1.0, 100), measured(1.0, 100))] * 2 + [(measured(1.0, 100), measured(1.0, 200))] * 5
    assert equal_ratio(result(*pairs), "ours", "theirs") is None
    assert medians(result(*pairs), ["ours", "theirs"]) == {"ours": 10.0, "theirs": 5.0}


def test_the_last_line_has_slopes_of_both_and_tells_wakeups_beside_each_ratio() -> None:
    pair = [(measured(2.0, 100), measured(1.0, 100))] * 3
    steep = [(measured(3.0, 100), measured(4.0, 100))] * 3
    slopes = [
        result(*rounds, case=case)
        for case, rounds in zip(slope_cases(0.001), (pair, pair, steep), strict=True)
    ]
    entities = Entities({1: [measured(1.0, 1)], 10_000: [measured(1.5, 1)]}, {1: 2.0, 10_000: 70.0})
    memory = {name: ProxyMemory(1, [1]) for name in ("ours", "theirs")}
    part = Part(Placement.FREE, [result(*pair)], memory, slopes, entities)
    run = CostRun("ours", "theirs", "x", 10, [part], Lives({"ours": []}, {"ours": []}))
    summary = summary_of(run)
    assert summary["request_50_vs_haproxy"] == 2.0
    assert summary["vs_haproxy_at_equal_wakeups"] == {"request_50": [2.0, 2.0, 2.0]}
    assert summary["requests_per_wakeup"] == {"request_50": {"ours": 10.0, "theirs": 10.0}}
    assert (summary["slope_5000_vs_50"], summary["haproxy_slope_5000_vs_50"]) == (1.5, 4.0)
    assert (summary["slope_500_vs_50"], summary["entities_10000_vs_1"]) == (1.0, 1.5)


def test_the_names_that_can_be_chosen_are_those_of_the_cases() -> None:
    assert {case.name for case in (*all_cases(0.001), *further_cases(0.001))} == set(CASES)


def test_a_load_at_a_given_rate_keeps_it_and_asks_on_all_connections_by_turns() -> None:
    poller = Poller()
    broker = FakeBroker(poller, "bench")
    frame = bytes(frames.produce_request("bench", "bench", frames.record_batch(b"v")))
    work = Work(frame, broker.produce_answer, 10, 1, 100, 10, requests_per_s=1_000.0)
    load = Load(poller, broker.port, work)
    done = load.measure(lambda: Usage(time.perf_counter(), 0.0, 0, 0))
    assert 100 <= done.requests <= 110
    assert done.wall_s > 0.09  # not faster; how much slower is the machine's
    load.close()
    poller.run_until(lambda: not broker.connections, "the ends of all", 10.0)
    broker.close()
    poller.close()


def test_the_proxy_reads_the_fake_cluster_of_one_broker() -> None:
    answer = frames.metadata_response("127.0.0.1", 19_092)
    [found] = brokers_of(bytes(answer), 0)
    assert (found.node_id, found.host, found.port) == (0, "127.0.0.1", 19_092)
