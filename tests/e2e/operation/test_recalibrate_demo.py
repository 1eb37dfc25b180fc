"""Traffic through the proxy on a real Kafka → access log → job → plan → applied, enforced, rolled back."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.recalibrate_demo.__main__ import LIMITS, MIN_SECONDS, ROOMY, THROTTLED, Demo


@pytest.mark.slow
@pytest.mark.kafka
def test_what_was_used_becomes_what_is_allowed_and_the_running_proxy_enforces_it(tmp_path: Path) -> None:
    outcome = Demo(tmp_path, MIN_SECONDS).run()
    assert outcome.limits_after == {THROTTLED: 2 * LIMITS[THROTTLED], ROOMY: 0.7 * LIMITS[ROOMY]}
    for limits, got in (
        (outcome.limits_before, outcome.got_before),
        (outcome.limits_after, outcome.got_after),
        (outcome.limits_before, outcome.got_rolled_back),
    ):
        assert got[THROTTLED] == pytest.approx(limits[THROTTLED], rel=0.25)
        assert got[ROOMY] < 1.15 * limits[ROOMY], "how much of it a busy machine manages is another matter"
