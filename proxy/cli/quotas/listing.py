"""Quotas as lists that can be printed and compared, wherever they come from: a quota file, or a server.

A quota file tells all that there is, an admin socket all but replication throttles; a server (a broker, or a
proxy that keeps quotas in a topic) entities and limits alone: neither shadow mode, calendars and over_budget,
nor tenants, prefixes and exempt rules. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from sluice.proxy.cli.quotas.edit import Entry, Whom, block_lines, entries_of, number, whom_of
from sluice.proxy.cli.quotas.sections import SECTIONS, Sections, joined, section_lines, sections_of, told
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import (
    DEFAULT_NAME,
    ENTITY_KEYS,
    OVER_BUDGET_KEY,
    REFUSE,
    SCHEDULE_KEY,
    SHADOW_KEY,
    parse_quotas,
)
from sluice.quotas.files.schedule_entries import windows_of
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.quotas.names import printable

KAFKA_KEYS: Final = ("user", "client-id", "ip")
"""types of entities that Kafka's API knows"""
OWN: Final = "own"
"""entities and sections that only Sluice has: tenants, client-id prefixes, exempt rules"""
Names: TypeAlias = tuple[tuple[str, str | None], ...]
"""(key, name) of each part of an entity, as Kafka's API has them: a null one is the default"""
_LONG_MAX: Final = 2**63 - 1
_NAMES_OF_KEYS: Final = {"user": "user-principal"}
"""where Kafka's tool has another name than the quota file"""


@dataclass(frozen=True, slots=True)
class Listing:
    """All quotas of one source."""

    limits: Mapping[Whom, Mapping[str, float]]
    """of each entity, by config key; none is empty"""
    shadow: Mapping[Whom, frozenset[str]] = field(default_factory=dict)
    """which of them are in shadow mode"""
    sections: Sections = field(default_factory=dict)
    """those for which the source has a place, with their items"""
    schedules: Mapping[Whom, tuple[Entry, ...]] = field(default_factory=dict)
    """the windows of entities that have a calendar, as in the quota file"""
    refusing: frozenset[Whom] = frozenset()
    """entities with `over_budget: refuse`"""
    untold: frozenset[str] = frozenset()
    """what the source has no words for: keys of options, and OWN"""
    takes_own: bool = True
    """OWN can be changed there; False: by Kafka's API, which knows no such thing"""
    has_doubles: bool = False
    """as Kafka's API has limits: of whole numbers above 2⁵³ several are one"""
    unnamable: tuple[tuple[Names, Mapping[str, float]], ...] = ()
    """entities with their limits, in no other field, that no quota file can name: who is really called
    <default>"""

    def limits_of(self, whom: Whom) -> dict[str, tuple[float, bool]]:
        """By config key: the limit, and whether it is in shadow mode."""
        shadow = self.shadow.get(whom, frozenset())
        return {key: (limit, key in shadow) for key, limit in self.limits.get(whom, {}).items()}

    def entry(self, whom: Whom) -> Entry:
        """An entity as an item of a quota file."""
        limits = self.limits[whom]
        entry: Entry = {**dict(whom), **{key: limits[key] for key in KIND_BY_KEY if key in limits}}
        entry |= {key: limit for key, limit in limits.items() if key not in entry}
        shadow = self.shadow.get(whom)
        if shadow:
            entry[SHADOW_KEY] = True if len(shadow) == len(limits) else sorted(shadow)
        if whom in self.schedules:
            entry[SCHEDULE_KEY] = list(self.schedules[whom])
        if whom in self.refusing:
            entry[OVER_BUDGET_KEY] = REFUSE
        return entry


@dataclass(frozen=True, slots=True)
class Difference:
    """What two sources say of one limit; None: nothing. Of a section: key and values as in sections.told."""

    whom: Whom
    """() of an item"""
    key: str
    left: str | None
    right: str | None
    section: str = ""

    def __str__(self) -> str:
        who = self.section or described(self.whom)
        if self.left is None:
            return f"+ {who}: {self.key}{'' if self.right == '' else f'={self.right}'}"
        if self.right is None:
            return f"- {who}: {self.key}{'' if self.left == '' else f'={self.left}'}"
        return f"~ {who}: {self.key}={self.left} → {self.right}"


def listing_of(text: str, source: str) -> Listing:
    """The quotas in a quota file's text. Raises QuotaFileError if it cannot be used."""
    parse_quotas(text, source)
    limits: dict[Whom, dict[str, float]] = {}
    shadow: dict[Whom, frozenset[str]] = {}
    schedules: dict[Whom, tuple[Entry, ...]] = {}
    refusing: set[Whom] = set()
    for entry in entries_of(text):
        whom = whom_of(entry)
        limits[whom] = {key: value for key, value in entry.items() if key in KIND_BY_KEY}
        told = entry.get(SHADOW_KEY, False)
        keys = frozenset(limits[whom] if told is True else told or ())
        if keys:
            shadow[whom] = keys
        if SCHEDULE_KEY in entry:
            schedules[whom] = tuple(entry[SCHEDULE_KEY])
        if entry.get(OVER_BUDGET_KEY) == REFUSE:
            refusing.add(whom)
    document: Any = parse_yaml(text, source).value
    return Listing(limits, shadow, sections_of(document), schedules, frozenset(refusing))


def yaml_of(listing: Listing) -> str:
    """A quota file that says the same."""
    if not listing.limits:
        text = "quotas: []\n"
    else:
        lines = [line for whom in listing.limits for line in block_lines(listing.entry(whom))]
        text = "quotas:\n" + "".join(f"  {line}\n" for line in lines)
    for name, items in listing.sections.items():
        text += "".join(f"{line}\n" for line in section_lines(name, items))
    return text


def faults_of(listing: Listing, text: str) -> list[str]:
    """What is wrong with an export: entities that it leaves out, and what no quota file can have.

    `text`: that of `yaml_of`. A broker takes names and numbers that Sluice does not.
    """
    if listing.takes_own:  # a quota file, which was read
        return []
    found = [f"left out, {one}" for one in unnamable_lines(listing)]
    try:
        parse_quotas(text, "as printed")
    except QuotaFileError as error:
        found += ["no quota file can have all that is printed:", *map(str, error.problems)]
    return found


def unnamable_lines(listing: Listing) -> list[str]:
    """Each entity that no quota file can name, with its limits."""
    return [
        f"no quota file can name it: {described_names(names)}: "
        + ", ".join(f"{key}={number(limit)}" for key, limit in limits.items())
        for names, limits in listing.unnamable
    ]


def as_double(limit: float) -> float:
    """As a place tells a limit that has doubles: 2⁶³, Java's Long.MAX_VALUE as one, is what it was set to."""
    double = float(limit)
    return _LONG_MAX if double == _LONG_MAX + 1 else double


def differences(left: Listing, right: Listing) -> Iterator[Difference]:
    """Entity by entity, key by key: in the order of `left`, then what only `right` has.

    Sections are compared where both sources have a place for them.
    """
    if left.has_doubles != right.has_doubles:
        left, right = (_with_doubles(one) for one in (left, right))
    for whom in [*left.limits, *(whom for whom in right.limits if whom not in left.limits)]:
        ours, theirs = left.limits_of(whom), right.limits_of(whom)
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            if ours.get(key) != theirs.get(key):
                yield Difference(whom, key, _limit(ours.get(key)), _limit(theirs.get(key)))
        windows = left.schedules.get(whom), right.schedules.get(whom)
        if windows[0] != windows[1] and windows_of(windows[0] or ()) != windows_of(windows[1] or ()):
            yield Difference(whom, SCHEDULE_KEY, _windows(windows[0]), _windows(windows[1]))
        over_left, over_right = (REFUSE if whom in one.refusing else None for one in (left, right))
        if over_left != over_right:
            yield Difference(whom, OVER_BUDGET_KEY, over_left, over_right)
    for name in SECTIONS:
        if name in left.sections and name in right.sections:
            ours_told, theirs_told = told(name, left.sections[name]), told(name, right.sections[name])
            for key in [*ours_told, *(key for key in theirs_told if key not in ours_told)]:
                if ours_told.get(key) != theirs_told.get(key):
                    yield Difference((), key, ours_told.get(key), theirs_told.get(key), name)


def _with_doubles(listing: Listing) -> Listing:
    limits = {whom: {key: as_double(its[key]) for key in its} for whom, its in listing.limits.items()}
    return replace(listing, limits=limits)


def compared(left: Listing, right: Listing) -> tuple[list[Difference], list[str]]:
    """(how they differ, what of `left` is not compared, for `right` has no words for it)."""
    found: list[Difference] = []
    left_out: list[str] = []
    for difference in differences(left, right):
        if difference.right is None and _is_untold(difference, left, right):
            left_out.append(str(difference).removeprefix("- "))
        else:
            found.append(difference)
    return found, left_out + without_place(left, right)


def without_place(listing: Listing, place: Listing) -> list[str]:
    """What sections say for which a place has none."""
    return [
        str(Difference((), key, value, None, name)).removeprefix("- ")
        for name in SECTIONS
        if name not in place.sections
        for key, value in told(name, listing.sections.get(name, ())).items()
    ]


def changes_at(now: Listing, wanted: Listing) -> list[Difference]:
    """What has to change at a place. Where only Kafka's entities can be changed, all else that `wanted` does
    not speak of stays."""
    found = differences(now, wanted)
    if now.takes_own:
        return list(found)
    return [one for one in found if one.right is not None or not is_own(one)]


def is_own(difference: Difference) -> bool:
    """Whether only Sluice has it: a section's item, or a limit of an entity that Kafka does not have."""
    return bool(difference.section) or any(key not in KAFKA_KEYS for key, _ in difference.whom)


def _is_untold(difference: Difference, left: Listing, right: Listing) -> bool:
    """Whether the right side could not tell what is only on the left."""
    is_shadow = difference.key in left.shadow.get(difference.whom, ())
    return (
        difference.key in right.untold
        or (is_shadow and SHADOW_KEY in right.untold)
        or (is_own(difference) and OWN in right.untold)
    )


def merged(base: Listing, over: Listing) -> Listing:
    """All that `over` says, and of `base` what it does not speak of."""
    whoms = [*base.limits, *(whom for whom in over.limits if whom not in base.limits)]
    limits = {whom: {**base.limits.get(whom, {}), **over.limits.get(whom, {})} for whom in whoms}
    shadow = {}
    for whom in whoms:
        kept = base.shadow.get(whom, frozenset()) - over.limits.get(whom, {}).keys()
        if found := kept | over.shadow.get(whom, frozenset()):
            shadow[whom] = found
    sections = {
        name: joined(name, items, over.sections.get(name, ())) for name, items in base.sections.items()
    }
    schedules = {**base.schedules, **over.schedules}
    refusing = (base.refusing | over.refusing) & limits.keys()
    return Listing(limits, shadow, sections, schedules, refusing)


def described(whom: Whom) -> str:
    """As Kafka's tool names an entity: `user-principal 'alice', the default client-id`; but clients name
    themselves, and here no name steers a terminal."""
    return described_names(tuple((key, None if name == DEFAULT_NAME else name) for key, name in whom))


def described_names(names: Names) -> str:
    """The same of names as Kafka's API has them."""
    return ", ".join(
        f"the default {kind}" if name is None else f"{kind} '{printable(name)}'"
        for kind, name in ((_NAMES_OF_KEYS.get(key, key), name) for key, name in names)
    )


def kafka_line(whom: Whom, limits: Mapping[str, float]) -> str:
    """A line of `kafka-configs --describe`, as Kafka's tool prints it, save for the order of the keys."""
    return _kafka_line(described(whom), limits)


def unnamable_line(names: Names, limits: Mapping[str, float]) -> str:
    """The same of an entity that no quota file can name."""
    return f"{_kafka_line(described_names(names), limits)} (not the default, but really called so)"


def _kafka_line(who: str, limits: Mapping[str, float]) -> str:
    known = [key for key in KIND_BY_KEY if key in limits]
    keys = [*known, *(key for key in limits if key not in known)]
    shown = ", ".join(f"{key}={java_double(limits[key])}" for key in keys)
    return f"Quota configs for {who} are {shown}"


def java_double(value: float) -> str:
    """As Double.toString: 1024.0, 1.048576E7, 5.0E-4.

    From 10⁻³ to below 10⁷ with a point, else with an exponent. The digits are the fewest that tell the value
    apart, as in Java since 19 and in Python.
    """
    digits = repr(abs(float(value)))
    if value == 0.0 or 1e-3 <= abs(value) < 1e7:
        shown = digits if "e" not in digits else f"{abs(value):f}"
    else:
        mantissa, _, exponent = digits.partition("e")
        whole, _, fraction = mantissa.partition(".")
        figures = whole + fraction
        power = int(exponent or 0) + len(whole) - 1
        stripped = figures.lstrip("0")
        power -= len(figures) - len(stripped)
        stripped = stripped.rstrip("0") or "0"
        shown = f"{stripped[0]}.{stripped[1:] or '0'}E{power}"
    return f"-{shown}" if value < 0 else shown


def sort_key(whom: Whom) -> tuple[int, tuple[tuple[int, bool, str], ...]]:
    """The order of an export: by kind of entity, defaults last."""
    return len(whom), tuple((ENTITY_KEYS.index(key), name == DEFAULT_NAME, name) for key, name in whom)


def _limit(limit: tuple[float, bool] | None) -> str | None:
    if limit is None:
        return None
    return f"{number(limit[0])}{' (shadow)' if limit[1] else ''}"


def _windows(windows: tuple[Entry, ...] | None) -> str | None:
    return None if windows is None else json.dumps(windows, ensure_ascii=False)
