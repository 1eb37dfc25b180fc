"""A night without Spark and files, by the code that ships: states → plan → what of it is written.

`planned` and `fitted_plan` are the job's; the plan goes as the text of plan.json into what `sluice quotas
apply` reads and chooses by. tests/bench/test_calibration.py holds it against the job and the command.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Final

from sluice.proxy.cli.plan.choice import Bounds, Choice, PlanRefused, Reviews, choose
from sluice.proxy.cli.plan.file import parse_plan
from sluice.proxy.cli.plan.ledger import GRANT, WEEK
from sluice.proxy.cli.plan.nightly import cuts_in
from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import Listing
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.coverage import SEEN_DAYS, missing_hours
from sluice.recalibration.policy.demand import DayState, estimate
from sluice.recalibration.policy.plan import DayTotals, EntityDay, Known, PlanEntry, fitted_plan, planned
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.policy.standing import Standing
from sluice.recalibration.state.memory import standing_of

KEY: Final = "producer_byte_rate"
FIRST_DAY: Final = date(2026, 1, 5)
NIGHTLY: Final = Bounds(is_unattended=True)
UNBOUNDED: Final = Bounds(max_cut_share=1.0, max_total_fall=1e9)


@dataclass(slots=True)
class Broker:
    """The limits of one way, and the states of the days so far."""

    limits: dict[str, float]
    """user → limit"""
    room: float
    states: dict[str, list[EntityDay]] = field(default_factory=dict)
    """`age_days` stands for the number of the day here"""
    flagged: dict[str, int] = field(default_factory=dict)
    """user → since which night its entry has needed review"""
    refused: str = ""
    """why the last plan was not applied"""
    plan: list[PlanEntry] = field(default_factory=list)
    standings: dict[str, Standing] = field(default_factory=dict)
    seen: dict[date, dict[str, set[int]]] = field(default_factory=dict)
    """what of the log is there (policy/coverage.py)"""
    grants: dict[str, tuple[float, date]] = field(default_factory=dict)
    """user → up to what, until when"""
    cuts: list[tuple[date, float]] = field(default_factory=list)
    """of unattended nights"""

    def plan_of(self, day: int) -> Plan:
        """The plan of the night after `day`."""
        job = JobSettings(room={KEY: self.room})
        when = FIRST_DAY + timedelta(days=day)
        missing = missing_hours(
            {day: its for day, its in self.seen.items() if (when - day).days < SEEN_DAYS}, when
        )
        entries = []
        for user in sorted(self.limits):
            days = history(self.states.get(user, ()), day, job.policy)
            if days:
                policy = job.policy_of(QuotaKind.PRODUCE)
                up_to, until = self.grants.get(user, (0.0, when))
                known = Known(
                    self.standings.get(user),
                    up_to if until > when else 0.0,
                    len(missing),
                    grant_until=until.toordinal(),
                )
                limit = self.limits[user]
                entries.append(planned(QuotaKind.PRODUCE, entity(user), limit, days, policy, known))
        self.plan = fitted_plan(entries, job.room, job.floors, is_week_whole=not missing)
        for entry in self.plan:
            self.standings[name_of(entry)] = standing_of(entry)
        since = {name_of(entry): day for entry in self.plan if entry.needs_review}
        self.flagged = {user: self.flagged.get(user, night) for user, night in since.items()}
        return Plan(when, self.plan, LogFiles([], {}), job.policy, job.room, missing=missing)

    def apply(self, plan: Plan, bounds: Bounds, reviews: Reviews) -> None:
        """As the command does; what it refuses changes nothing."""
        self.refused = ""
        now = Listing({whom(user): {KEY: limit} for user, limit in self.limits.items()})
        today = plan.day + timedelta(days=1)
        week = sum(amount for night, amount in self.cuts if night > today - WEEK)
        if bounds.is_unattended:
            bounds = replace(bounds, cuts_of_week={KEY: week})
        try:
            parsed = parse_plan(json.dumps(plan.as_json()), "plan.json")
            choice = choose(parsed, now, today, bounds, reviews)
        except (PlanRefused, ConfigError) as error:
            self.refused = str(error)
            return
        for limit in choice.granted:
            self.grants[dict(limit.whom)["user"]] = (limit.up_to, today + GRANT)
        self.cuts += [(today, amount) for amount in cuts_in(parsed, choice.chosen).values()]
        self._take(choice)

    def _take(self, choice: Choice) -> None:
        for user in self.limits:
            self.limits[user] = choice.wanted.limits[whom(user)][KEY]


Way = Callable[[Broker, Plan, int, Mapping[str, bool]], None]


def every_proposal(broker: Broker, plan: Plan, _day: int, _abusers: Mapping[str, bool]) -> None:
    """All that a plan has is written."""
    broker.apply(plan, UNBOUNDED, Reviews())


def unattended(broker: Broker, plan: Plan, _day: int, _abusers: Mapping[str, bool]) -> None:
    """`--unattended`, with the guards as they are by default."""
    broker.apply(plan, NIGHTLY, Reviews())


def reviewed(broker: Broker, plan: Plan, day: int, abusers: Mapping[str, bool]) -> None:
    """Unattended, and of what has needed review for two nights a person includes the legitimate."""
    due = [user for user, night in broker.flagged.items() if day - night >= 2 and not abusers[user]]
    broker.apply(plan, NIGHTLY, Reviews(named=frozenset(map(whom, due))))


def static(_broker: Broker, _plan: Plan, _day: int, _abusers: Mapping[str, bool]) -> None:
    """Nobody changes anything, ever."""


WAYS: Final[dict[str, Way]] = {
    "all": every_proposal, "unattended": unattended, "reviewed": reviewed, "static": static,
}  # fmt: skip


def entity(user: str) -> str:
    return json.dumps({"user": user})


def name_of(entry: PlanEntry) -> str:
    return str(json.loads(entry.entity)["user"])


def whom(user: str) -> Whom:
    return (("user", user),)


def history(days: Iterable[EntityDay], latest: int, policy: PolicySettings) -> list[EntityDay]:
    """As the job's store gives them: whole histograms only where a day's percentile is not known."""
    recent = [
        EntityDay(day.proxy, latest - day.age_days, day.state)
        for day in days
        if latest - day.age_days < policy.history_days
    ]
    totals = [(day, _totals(day.state, policy.quantile)) for day in recent]
    if any(known is None for _, known in totals):
        return recent
    return [EntityDay(day.proxy, day.age_days, known) for day, known in totals if known is not None]


_TOTALS: dict[tuple[int, float], tuple[DayState, DayTotals | None]] = {}
"""by the state's id and the quantile; the state beside it keeps the id its own"""


def _totals(state: DayState | DayTotals, quantile: float) -> DayTotals | None:
    assert isinstance(state, DayState)
    known = _TOTALS.get((id(state), quantile))
    if known is None:
        (found,) = estimate([state], quantile)
        throttled = sum(state.throttled.values())
        known = state, DayTotals(state.windows, throttled, found) if found.identified else None
        _TOTALS[id(state), quantile] = known
    return known[1]
