"""What a limit stands on besides the log: the value that was anchored, and a grant. Pure.

A *throttled* day tells how high a limit was, not how much is needed: were each night's limit the next night's
evidence, whoever floods would raise his own without end. So without review a limit rises to at most
`max_unreviewed_rise` × its *anchor*:
- the limit that a person set: the first that is seen, and each that is neither what the last plan found, nor
  what it proposed or a grant allows, nor between them (the same date's plan, too, if that is run again: by
  the one before alone, what it has set itself would be a person's, and each run double the limit);
- after a day that was seen in full (identified, at most 1 % of its windows throttled, nothing above the limit
  but by bursts): what the days of the last 8 that were seen so ask for, headroom included, and not less than
  the limit that they were seen under, as far as that was anchored and is within 1.4 × their demand: what room
  a cut leaves beyond that is for an odd day, and not for twice as much again. While one of those 8 days was
  *flooded* (more than 5 % of its windows throttled) this lowers the anchor and does not raise it: who floods
  every other day, and fills what that brought on the days between, would have his calm days anchor what his
  floods have raised;
- after three days that were seen in full, or are told by their shape with two fifths of their windows not
  throttled (demand.py), and are level within 15 %: what they tell, up to the limit in force. A service that
  has trebled shows it in its troughs; a flood throttles all of its day, or leaves the rest as it was.

Worked example: a limit of 1,000, set by hand; the client floods from its birth: 2,000 is the most. Another
needs 1,500: at 2,000 its day is seen in full, the anchor becomes 1.15 × 1,500 = 1,725, and 3,450 is the most.
A third floods at 2,150, of which bursts let some pass at 2,000: the anchor stays, and so does its limit. A
fourth needs 4,500 by day and 900 by night instead of 1,500 and 300: of three days at 2,000 half is seen, they
tell of three times the usual days, the anchor becomes 2,000, and 4,000 is the most.

All that is by the log, and a log cannot tell growth from somebody who stays just under his limit, each
night's anew: each day is seen in full. So in all nights together it rises, without review, to at most
`max_unreviewed_growth` × a person's last *word*: the limit that a person set, as above, or what a person
granted since, if that is more.

A *grant* is a person's answer to a review: the limit may rise up to its value, step by step as the
demand asks for it, until its last date, or until a person sets the limit lower than nights have had it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sluice.recalibration.policy.confidence import DayUse
from sluice.recalibration.policy.settings import PolicySettings

SEEN_IN_FULL: Final = 0.01
"""most of a day's windows that may be throttled"""
FLOODED: Final = 0.05
"""so many are a flood, or what looks like one; fewer are what an honest client's batch of an hour leaves"""


class Grant(NamedTuple):
    """A person's answer to a review."""

    up_to: float
    until: int
    """its last date, as a number of days: which grant it is"""


NO_GRANT: Final = Grant(0.0, 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """One limit's, in the unit of its key."""

    anchor: float
    current: float
    """the limit when the last plan was made"""
    proposed: float
    """and what it proposed"""
    applied: float | None = None
    """the limit when that night was run again, if its first plan was applied meanwhile"""
    word: float | None = None
    """what a person last set or granted; None: the night was of a Sluice that did not keep it"""
    ended: float | None = None
    """the last date of a grant in force then that a person had ended (`has_ended`); None: there was none"""

    @property
    def numbers(self) -> list[float | None]:
        """As it is kept: the fields in their order, the last one not None."""
        numbers = [self.anchor, self.current, self.proposed, self.applied, self.word, self.ended]
        while numbers[-1] is None:
            numbers.pop()
        return numbers

    @property
    def _limits(self) -> tuple[float, float, float]:
        return self.current, self.proposed, self.current if self.applied is None else self.applied

    def has_made(self, limit: float, grant: float = 0.0) -> bool:
        """Whether that night's plans lead to this limit: a night may go a part of the way."""
        limit = float(limit)  # as it is kept: 2⁶³−1 is no float
        return not self.is_above(limit) and limit <= max(*self._limits, grant)

    def is_above(self, limit: float) -> bool:
        """Whether that night's plans lead to no limit as low as this."""
        return float(limit) < min(self._limits)

    def made_from(self, limit: float, grant: float, max_step_up: float) -> float:
        """The limit before that night's plans, if they have led to this one, a grant's first step included;
        else `limit`, which a person has set. A date that is run again steps from there, or each run would be
        one more step."""
        is_made = self.has_made(limit) or (
            self.has_made(limit, grant) and limit <= max_step_up * self.current
        )
        return self.current if is_made and self.current != float(limit) else limit


def anchor_of(
    before: Standing | None,
    limit: float,
    days: Sequence[DayUse],
    settings: PolicySettings,
    grant: float = 0.0,
    again: Standing | None = None,
) -> float:
    """Tonight's anchor. `days`: the latest first; `limit`: the one in force; `grant`: likewise, 0: none;
    `again`: what an earlier run of the same date left."""
    limit, maker = _before_tonight(before, limit, grant, again)  # the days were seen under that
    anchor = limit if maker is None else maker.anchor
    if not days or days[0].age_days >= settings.recent_days:
        return anchor
    if not _in_full(days[0]):
        return max(anchor, min(limit, _level(days[: settings.near_days], settings)))
    recent = [day for day in days if day.age_days < settings.recent_days]
    highest = max(day.demand for day in recent if _in_full(day))
    if highest > limit:
        return anchor  # a burst let it through
    found = max(settings.headroom * highest, min(anchor, limit, settings.anchor_headroom * highest))
    return min(found, anchor) if any(day.throttled_share > FLOODED for day in recent) else found


def word_of(
    before: Standing | None, limit: float, grant: float = 0.0, again: Standing | None = None
) -> float:
    """What a person last said of the limit, tonight: arguments as those of `anchor_of`."""
    limit, maker = _before_tonight(before, limit, grant, again)
    if maker is None:
        return max(limit, grant)
    return max(maker.anchor if maker.word is None else maker.word, grant)


def has_ended(grant: Grant, before: Standing | None, limit: float, again: Standing | None = None) -> bool:
    """Whether a person has: by a limit below what nights had made of it, tonight or since the grant was
    given. Another grant, of a later date, is a word of its own. Arguments as those of `anchor_of`."""
    if any(one is not None and one.ended == grant.until for one in (before, again)):
        return True
    last = before if again is None else again  # which has judged what lies before it
    return last is not None and last.is_above(limit)


def _before_tonight(
    before: Standing | None, limit: float, grant: float, again: Standing | None
) -> tuple[float, Standing | None]:
    """The limit without what tonight's plans have made of it, and the night before if its plans led to that;
    None: a person has set it."""
    if again is not None and again.has_made(limit, grant):
        limit = again.current
    return limit, before if before is not None and before.has_made(limit, grant) else None


def _in_full(day: DayUse) -> bool:
    return day.identified and day.throttled_share <= SEEN_IN_FULL


def _level(days: Sequence[DayUse], settings: PolicySettings) -> float:
    """What the days tell alike, each seen in full or told by its shape; 0.0: one is not, or they climb."""
    told = [day.demand if _in_full(day) else day.shaped for day in days]
    if len(told) < settings.near_days or max(told) > settings.near_growth * min(told):
        return 0.0
    return min(told)
