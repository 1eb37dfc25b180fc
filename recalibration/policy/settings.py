"""Every number of the algorithm, with its reason. What was tried: docs/recalibration.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sluice.quotas.kinds import KINDS, QuotaKind


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Settings of policy.py; days are whole dates of the log."""

    quantile: float = 0.999
    """of a day's 10-second rates, a window's busiest second among them: with a quota that passes 99 % as they
    come 1 % of the requests wait, of clients of which none did"""
    headroom: float = 1.15
    """a quota at exactly the demand queues without end; at 1 / 1.15 = 87 % use queues stay short"""
    cut_headroom: float = 1.5
    """a cut leaves so much, and a granted rise comes to it: what a limit has beyond it is waste, what lies
    within is room for an odd day"""
    anchor_headroom: float = 1.4
    """days seen in full anchor no more than so much (standing.py): who floods without a word gets twice that,
    however much room a cut has left him"""
    history_days: int = 28
    """four of each weekday"""
    half_life_days: float = 7.0
    """last week counts half: what a service is now, not what it was"""
    day_quantile: float = 0.92
    """of the days, by weight: one odd day of a fortnight does not count, two do"""
    recent_days: int = 8
    """the highest of these counts whatever its weight, or a peak that comes once a week would be forgotten
    each time on the eve of its return"""
    max_step_up: float = 2.0
    max_step_down: float = 0.7
    """a cut hurts at once, a rise does not: up is quicker than down"""
    hysteresis: float = 0.1
    """smaller changes are noise, and each change is somebody's surprise"""
    min_traffic_s: float = 3_600.0
    """to cut: that long a time with traffic, or a p99 of 10-second windows is the mean of two numbers"""
    min_days_of_little: int = 14
    """…or so many days with a little each: a window in a hundred that is above their highest is no mean, and
    25 % above it (growth_of_past) are left beside the headroom"""
    min_days_to_cut: int = 8
    """what comes once a week was seen by then; and the log of the last week must be whole (coverage.py)"""
    growth_of_median: float = 1.8
    growth_of_past: float = 1.25
    past_days: tuple[int, int] = (8, 21)
    """the guard: growth beyond 1.8 × the median day and 1.25 × the highest of these days waits for review"""
    near_factor: float = 4.0
    near_days: int = 3
    near_growth: float = 1.15
    """…unless in the last three days the demand can be told to be within 4 × the median and is level, within
    15 %: a launch doubles or trebles the traffic once; what climbs from day to day, or asks for tens of times
    as much, is looked at. By two days within 25 % a climb of a fifth a day was level, and raised its limit
    × 12"""
    min_days_of_guard: int = 3
    """before that nothing is usual, and the anchor alone bounds a rise"""
    max_unreviewed_rise: float = 2.0
    """without review, above the last value that a person or a day seen in full has anchored (standing.py)"""
    max_unreviewed_growth: float = 4.0
    """without review, in all nights together, above what a person last set or granted: who stays just under
    his limit looks like growth, and each of his days anchors what the night before has brought"""
    probe_share: float = 0.1
    """of the latest day's windows: throttled in more of them, a limit that was granted more is doubled
    towards the grant, for a guess from the rest told half of what a service asked for"""
    floor: float = 0.0
    ceiling: float = float("inf")
    """units per second, whatever the log says"""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a night is told; settings_file.py reads them from a file."""

    skip_damaged: bool = True
    """leave damaged files out and name them in the plan; else refuse the night"""
    policy: PolicySettings = field(default_factory=PolicySettings)
    floors: Mapping[str, float] = field(default_factory=dict)
    """key → the lowest limit that is ever proposed"""
    ceilings: Mapping[str, float] = field(default_factory=dict)
    """key → the highest"""
    room: Mapping[str, float] = field(default_factory=dict)
    """key → what its limits may come to at one proxy; a key without an entry has no bound"""
    replay_days: int = 7
    """the dates that are replayed against the plan, this one the last"""
    burst_s: float = 1.0
    """the proxies' pacing.burst_s"""
    burst_h: float = 1.0
    """the proxies' producer_ids.burst_s, in hours"""
    compact: bool = True
    """make one file an hour of the date's small ones when the plan is there"""
    timezone: str = "UTC"
    """in whose local times seasons are looked for"""
    keep_log_days: int | None = None
    """remove older dates of the log that nights have read; None: keep them (state/retention.py)"""
    keep_state_days: int = 400
    """remove older states: a year and a month's end"""

    def policy_of(self, kind: QuotaKind) -> PolicySettings:
        """The policy with the kind's floor and ceiling, in units per second."""
        spec = KINDS[kind]
        floor, ceiling = self.floors.get(spec.config_key), self.ceilings.get(spec.config_key)
        return replace(
            self.policy,
            floor=self.policy.floor if floor is None else spec.rate_per_s(floor),
            ceiling=self.policy.ceiling if ceiling is None else spec.rate_per_s(ceiling),
        )
