"""bench-cost: what a connection costs that comes and goes, and the last line's names for it."""

from __future__ import annotations

import pytest

from bench.cost.churn import Churn, Lives
from bench.lib.fake_broker import FakeBroker
from bench.lib.poller import Poller
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError


def test_the_ratio_is_taken_within_each_pair_and_told_with_its_range() -> None:
    lives = Lives({"a": [20.0, 60.0, 90.0], "b": [10.0, 20.0, 30.0]}, {"a": [0.5], "b": [0.1]})
    assert lives.summary("a", "b") == {
        "churn_vs_haproxy": 3.0,
        "churn_vs_haproxy_range": [2.0, 3.0],
        "churn_us": 60.0,
        "haproxy_churn_us": 20.0,
        "idle_ms_per_s": 0.5,
        "haproxy_idle_ms_per_s": 0.1,
    }


def test_of_a_case_that_was_left_out_nothing_is_said() -> None:
    assert Lives({"a": [], "b": []}, {"a": [], "b": []}).summary("a", "b") == {}


def test_each_connection_is_opened_answered_and_closed() -> None:
    poller = Poller()
    broker = FakeBroker(poller, "bench")
    request = bytes(frames.api_versions_request("bench"))
    Churn(poller, broker.port, request, broker.api_versions_answer).run(100)
    poller.run_until(lambda: not broker.connections, "the ends of all", 10.0)
    broker.close()
    poller.close()


def test_another_answer_than_the_expected_one_ends_the_run() -> None:
    poller = Poller()
    broker = FakeBroker(poller, "bench")
    request = bytes(frames.api_versions_request("bench"))
    with pytest.raises(BenchError, match="not the answer"):
        Churn(poller, broker.port, request, broker.api_versions_answer + b"x").run(1)
    poller.run_until(lambda: not broker.connections, "its end", 10.0)
    broker.close()
    poller.close()
