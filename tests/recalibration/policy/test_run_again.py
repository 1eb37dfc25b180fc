"""A date that is run again goes on from its first plan, and cuts nothing that no night may cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.recalibration.policy.policy import Proposal, Reason, gone_on
from sluice.recalibration.policy.settings import PolicySettings

TO_BASE = Proposal(1_000_000.0, 0.0, Reason.LOG_INCOMPLETE, needs_review=False)


@pytest.mark.parametrize("reason", [Reason.LOG_INCOMPLETE, Reason.TOO_NEW_TO_CUT, Reason.TOO_LITTLE])
def test_what_nothing_may_cut_stays_where_the_first_run_led(reason: Reason) -> None:
    """The first run doubled the limit; the second said that nothing is cut, and cut it to what it was."""
    found = gone_on(replace(TO_BASE, reason=reason), 2_000_000.0, PolicySettings())
    assert (found.limit, found.reason) == (2_000_000.0, reason)


def test_with_rows_missing_nothing_is_cut_whatever_was_said_before() -> None:
    said = replace(TO_BASE, reason=Reason.DEMAND)
    found = gone_on(said, 2_000_000.0, PolicySettings(), is_week_whole=False)
    assert (found.limit, found.reason) == (2_000_000.0, Reason.LOG_INCOMPLETE)
    assert gone_on(said, 2_000_000.0, PolicySettings()).limit == 1_400_000.0
