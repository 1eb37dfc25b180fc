"""A night without Spark and files, by the code that ships: states → plan → what of it is written.

`planned` and `fitted_plan` are the job's; the plan goes as the text of plan.json into what `sluice quotas
apply` reads and chooses by. tests/bench/test_calibration.py holds it against the job and the command.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

from sluice.proxy.cli.plan.choice import Bounds, Choice, PlanRefused, Reviews, choose
from sluice.proxy.cli.plan.file import parse_plan
from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import Listing
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.demand import DayState, estimate
from sluice.recalibration.policy.plan import DayTotals, EntityDay, PlanEntry, fitted_plan, planned
from sluice.recalibration.policy.settings import JobSettings

KEY: Final = "producer_byte_rate"
FIRST_DAY: Final = date(2026, 1, 5)
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

    def plan_of(self, day: int) -> Plan:
        """The plan of the night after `day`."""
        job = JobSettings(room={KEY: self.room})
        entries = []
        for user in sorted(self.limits):
            days = _history(self.states.get(user, ()), day, job.policy.history_days)
            if days:
                policy = job.policy_of(QuotaKind.PRODUCE)
                entries.append(planned(QuotaKind.PRODUCE, entity(user), self.limits[user], days, policy))
        self.plan = fitted_plan(entries, job.room)
        since = {name_of(entry): day for entry in self.plan if entry.needs_review}
        self.flagged = {user: self.flagged.get(user, night) for user, night in since.items()}
        return Plan(FIRST_DAY + timedelta(days=day), self.plan, LogFiles([], {}), job.policy, job.room)

    def apply(self, plan: Plan, bounds: Bounds, reviews: Reviews) -> None:
        """As the command does; what it refuses changes nothing."""
        self.refused = ""
        now = Listing({whom(user): {KEY: limit} for user, limit in self.limits.items()})
        try:
            parsed = parse_plan(json.dumps(plan.as_json()), "plan.json")
            choice = choose(parsed, now, plan.day + timedelta(days=1), bounds, reviews)
        except (PlanRefused, ConfigError) as error:
            self.refused = str(error)
            return
        self._take(choice)

    def _take(self, choice: Choice) -> None:
        for user in self.limits:
            self.limits[user] = choice.wanted.limits[whom(user)][KEY]


Way = Callable[[Broker, Plan, int, Mapping[str, bool]], None]


def every_proposal(broker: Broker, plan: Plan, _day: int, _abusers: Mapping[str, bool]) -> None:
    """All that a plan has is written."""
    broker.apply(plan, UNBOUNDED, Reviews(all=True))


def unattended(broker: Broker, plan: Plan, _day: int, _abusers: Mapping[str, bool]) -> None:
    """`--unattended`, with the guards as they are by default."""
    broker.apply(plan, Bounds(), Reviews())


def reviewed(broker: Broker, plan: Plan, day: int, abusers: Mapping[str, bool]) -> None:
    """Unattended, and of what has needed review for two nights a person includes the legitimate."""
    due = [user for user, night in broker.flagged.items() if day - night >= 2 and not abusers[user]]
    broker.apply(plan, Bounds(), Reviews(named=frozenset(map(whom, due))))


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


def _history(days: Iterable[EntityDay], latest: int, history_days: int) -> list[EntityDay]:
    """As the job's store gives them: whole histograms only where a day's percentile is not known."""
    recent = [
        EntityDay(day.proxy, latest - day.age_days, day.state)
        for day in days
        if latest - day.age_days < history_days
    ]
    totals = [EntityDay(day.proxy, day.age_days, _totals(day.state)) for day in recent]
    return recent if any(day.state is None for day in totals) else totals  # type: ignore[comparison-overlap]


_TOTALS: dict[int, tuple[DayState, DayTotals | None]] = {}
"""by the state's id; the state beside it keeps the id its own"""


def _totals(state: DayState | DayTotals) -> DayTotals:
    assert isinstance(state, DayState)
    known = _TOTALS.get(id(state))
    if known is None:
        (found,) = estimate([state])
        throttled = sum(state.throttled.values())
        known = state, DayTotals(state.windows, throttled, found) if found.identified else None
        _TOTALS[id(state)] = known
    return known[1]  # type: ignore[return-value]
