"""What a plan says, for people: entities, amounts with units, and each reason as sentences. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind
from sluice.quotas.names import printable
from sluice.quotas.numbers import number
from sluice.recalibration.policy.confidence import DAYS_OF_A_WEEK, word
from sluice.recalibration.policy.listed import MOST_WAITING
from sluice.recalibration.policy.plan import Expected, PlanEntry
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.settings import PolicySettings

_PREFIXES: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS: Final = {
    "bytes per second": "B/s",
    "percent of one broker thread": "%",
    "partitions created or deleted per second": "partitions/s",
    "new producer ids per hour": "ids/h",
    "new connections per second": "connections/s",
}
_DIGITS: Final = 3
_HOUR_S: Final = 3_600.0
_NOTHING: Final = Expected()
_WAITED: Final = "{} s throttled"
_REFUSED: Final = "{} ids refused"


def entity_words(entity: str) -> str:
    """`{"client-id": "app", "user": "alice"}` → `user alice, client-id app`."""
    parts: dict[str, str] = json.loads(entity)
    order = ("user", "tenant", "client-id", "client-id-prefix", "ip")
    return ", ".join(f"{part} {_name(parts[part])}" for part in order if part in parts)


def _name(name: str) -> str:
    if not name:
        return "(none)"
    return printable(name) if name.strip() else "(blank)"  # clients may be called so


def amount(key: str, value: float) -> str:
    """Three digits and the unit of a key: `1.05 MB/s`, `12.5 %`, `20 ids/h`."""
    unit = _UNITS[KINDS[KIND_BY_KEY[key]].limit_unit]
    if unit == "B/s":
        for scale, prefix in _PREFIXES:
            if value >= 0.9995 * scale:
                return f"{number(value / scale, _DIGITS)} {prefix}{unit}"
    return f"{number(value, _DIGITS)} {unit}"


def change_words(entry: PlanEntry) -> str:
    """How much a limit changes, in words: `+50 %`, `unchanged`."""
    if not entry.is_change:
        return "unchanged"
    return f"{entry.proposed / entry.current - 1.0:+.0%}".replace("%", " %").replace("-", "−")


def unlisted_words(count: int) -> str:
    """That so many limits are not in plan.json, and why."""
    these = "1 of these is" if count == 1 else f"{count:,} of these are"
    return (
        f"{these} in plan.parquet and not in plan.json: by a default for any client id or address, not to "
        f"be changed, and waiting for no review, or not among the {MOST_WAITING:,} largest that wait. "
        "plan.json says how many there are, and what they take of their quota's room."
    )


def damaged_words(count: int) -> str:
    """How many files could not be read, as the begin of a sentence."""
    return "1 damaged file of the log was" if count == 1 else f"{count:,} damaged files of the log were"


def percentile(quantile: float) -> str:
    """A share of a day's windows as people name it: 0.999 → `p99.9`."""
    return f"p{100.0 * quantile:.6g}"


def sentences(entry: PlanEntry, policy: PolicySettings) -> Iterator[str]:
    """Why the limit becomes what it does, whether it waits for somebody, how sure that is."""
    yield _REASONS[entry.reason].format(
        wanted=amount(entry.key, entry.wanted),
        demand=amount(entry.key, entry.wanted / policy.headroom),
        proposed=amount(entry.key, entry.proposed),
        headroom=f"{policy.headroom - 1.0:.0%}".replace("%", " %"),
        hysteresis=f"{policy.hysteresis:.0%}".replace("%", " %"),
        up=f"{policy.max_step_up:g}",
        down=f"{policy.max_step_down:g}",
        hours=f"{policy.min_traffic_s / _HOUR_S:g}",
        days=policy.min_days_to_cut,
        factor=f"{policy.growth_of_median:g}",
        rise=f"{policy.max_unreviewed_rise:g}",
        growth=f"{policy.max_unreviewed_growth:g}",
    )
    if entry.needs_review:
        yield (
            "Needs review: so much more than is usual may be growth, a fault or abuse; the log cannot tell "
            f"which. Without a person's word it becomes {amount(entry.key, entry.proposed)} and no more; a "
            f"grant (`--include`) lets it rise nightly to {amount(entry.key, entry.up_to)} at most, as "
            "the demand asks for it."
        )
    guesses = sum(not day.identified for day in entry.days)
    if guesses:
        yield (
            f"On {guesses} of {len(entry.days)} days throttling hid the demand; there it is a guess, and "
            "the true one likely higher."
        )
    if entry.throttled_share > 0.0:
        share = f"{entry.throttled_share:.1%}".replace("%", " %")
        yield f"On the latest day it was throttled in {share} of its time with traffic."
    if entry.expected != _NOTHING:
        yield _expected(entry)
    days = f"{len(entry.days)} day{'' if len(entry.days) == 1 else 's'}"
    percent = f"{entry.confidence:.0%}".replace("%", " %")
    yield f"Confidence is {word(entry.confidence)} ({percent}), from {days} with traffic."


_REASONS: Final = {
    Reason.DEMAND: (
        "The worst of its ordinary days asks for {demand}; with {headroom} of headroom that makes {wanted}."
    ),
    Reason.UNCHANGED: (
        "The demand asks for {wanted}, headroom included: within {hysteresis} of the limit, which stays."
    ),
    Reason.TOO_LITTLE: (
        "Less than {hours} h of traffic in all: too little to cut by, or by the highest of its days alone."
    ),
    Reason.TOO_NEW_TO_CUT: "Its first traffic is less than {days} days old: too new to cut.",
    Reason.LOG_INCOMPLETE: (
        "The log lacks rows of the last week, so nothing is cut; the demand that it shows asks for {wanted}."
    ),
    Reason.STEP_UP: "The demand asks for {wanted}; in one night a limit rises to × {up} at most.",
    Reason.STEP_DOWN: "The demand asks for {wanted} only; in one night a limit is cut to × {down} at most.",
    Reason.GUARD: (
        "The demand asks for {wanted}, more than is granted without a person's word: beyond {factor} × the "
        "median of its days, {rise} × the last limit that a person, or days seen in full, have set, or "
        "{growth} × the last one that a person has set or granted."
    ),
    Reason.FLOOR: "The lowest limit that the settings allow is {proposed}.",
    Reason.CEILING: "The highest limit that the settings allow is {proposed}; the demand asks for {wanted}.",
    Reason.BY_DEFAULT: (
        "Its limit is the default's. A client id or an address gets one of its own by a person's word alone: "
        "anybody makes up such names. With a capacity a default's counts by what is asked for, and "
        "a user gets a lower one only where not all that is asked for fits, and a higher one by himself with "
        "an hour's traffic a day. The demand asks for {wanted}."
    ),
    Reason.CAPACITY: (
        "All limits together would pass what there is room for, of which {proposed} is its part. The demand "
        "asks for {wanted}."
    ),
}


def _expected(entry: PlanEntry) -> str:
    """What the replay found."""
    expected = entry.expected
    what = _REFUSED if KIND_BY_KEY[entry.key] is QuotaKind.PRODUCER_IDS else _WAITED
    day, week = (
        f"{what.format(number(now, _DIGITS))} as it is, {what.format(number(then, _DIGITS))} as proposed"
        for now, then in (
            (expected.day_now, expected.day_proposed),
            (expected.week_now, expected.week_proposed),
        )
    )
    hidden = " Throttling hid the demand: as proposed it may be more." if _is_hidden(entry) else ""
    return f"Replayed, the latest day: {day}; all days that were replayed: {week}.{hidden}"


def _is_hidden(entry: PlanEntry) -> bool:
    """A day of its last week is a guess, and replayed as twice what passed at most."""
    return any(not day.identified and day.age_days < DAYS_OF_A_WEEK for day in entry.days)
