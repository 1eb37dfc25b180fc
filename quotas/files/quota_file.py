"""The quota file → QuotaLimits, or every problem with its key and line.

    quotas:
      - user: alice                  # or client-id, or both; `<default>` as in /config/users/<default>
        client-id: app-1
        producer_byte_rate: 1048576
        shadow: true                 # or a list of keys: measured and logged, but nobody is delayed
        over_budget: refuse          # of producer_byte_rate: what has no turn in time; forward if not given
      - tenant: team-a               # in a user's place: its members share one bucket
        client-id-prefix: etl-       # in a client id's place: all that begin so share one
        producer_byte_rate: 1048576
        schedule:                    # other limits at times (schedule_entries.py)
          - {days: [sat], from: "01:00", to: "05:00", timezone: Europe/Berlin, producer_byte_rate: 50000000}

    tenants:
      - name: team-a
        members: [bob, carol]

    exempt:                          # whom no limit delays; measured all the same
      - user: backup
        address: 10.1.0.0/16         # or one address; a client-id only beside user or address

    replication: …                   # replication throttles (replication_section.py)

What the parts say is read by entries.py and sections.py. Knows not when to read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from typing import Any, Final, TypeAlias

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.files.config_error import ConfigError, Problem, QuotaFileError
from sluice.quotas.files.entries import DEFAULT_NAME, ENTITY_KEYS, OVER_BUDGET_KEY, REFUSE, SHADOW_KEY
from sluice.quotas.files.replication_section import ReplicationSection
from sluice.quotas.files.schedule_entries import SCHEDULE_KEY
from sluice.quotas.files.sections import SectionReader
from sluice.quotas.files.yaml_lines import YamlDocument, YamlPath, parse_yaml, parse_yaml_in_steps
from sluice.quotas.limits.limits import QuotaError, QuotaLimits
from sluice.quotas.limits.schedule import Schedule
from sluice.quotas.steps import at_once

__all__ = [
    "DEFAULT_NAME",
    "ENTITY_KEYS",
    "OVER_BUDGET_KEY",
    "REFUSE",
    "SCHEDULE_KEY",
    "SHADOW_KEY",
    "limits_in_steps",
    "parse_quotas",
    "parse_quotas_in_steps",
    "replication_of",
    "take_all",
]
_ENTRIES_PER_STEP: Final = 100
"""each with the windows of its schedule, which take as long"""
_LINES_PER_STEP: Final = 5_000
_Entry: TypeAlias = tuple[QuotaEntity, dict[str, Any]]


def parse_quotas(text: str, source: str) -> QuotaLimits:
    """The limits in `text`. Raises QuotaFileError with every problem, naming `source`, key and line."""
    return at_once(parse_quotas_in_steps(text, source))


def parse_quotas_in_steps(text: str, source: str) -> Generator[None, None, QuotaLimits]:
    """The same, pausing every millisecond or so; the limits are the generator's return value."""
    try:
        document = yield from parse_yaml_in_steps(text, source)
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    return (yield from limits_in_steps(document, source))


def limits_in_steps(document: YamlDocument, source: str) -> Generator[None, None, QuotaLimits]:
    """The limits in a parsed document, which is used up: freed all at once it would block the loop, too."""
    if isinstance(document.value, dict) and "listeners" in document.value:
        raise QuotaFileError(
            [Problem("is a configuration; give the quota file that it names", source=source)]
        )
    reader = SectionReader(document, source)
    entries: list[_Entry] = []
    shadow: dict[QuotaEntity, Collection[str]] = {}
    schedules: dict[QuotaEntity, Schedule] = {}
    refusing: set[QuotaEntity] = set()
    seen: dict[QuotaEntity, int] = {}
    yield from reader.read_tenants()
    items = reader.items()
    read = 0
    for index, item in enumerate(items):
        items[index] = None
        if read >= _ENTRIES_PER_STEP:
            read = 0
            yield
        read += 1
        entry = reader.entry(index, item)
        if entry is None:
            continue
        entity, limits, in_shadow, schedule, refuses = entry
        earlier = seen.setdefault(entity, index)
        if earlier != index:
            line = document.line_of(("quotas", earlier))
            reader.problem(
                ("quotas", index), f"{entity} has limits already, on line {line}; put them together"
            )
        if in_shadow:
            shadow[entity] = in_shadow
        if refuses:
            refusing.add(entity)
        if schedule:
            schedules[entity] = schedule
            read += len(schedule)
        entries.append((entity, limits))
    exempt = yield from reader.exempt()
    reader.replication()  # in force elsewhere (replication_of); here it is checked with the rest
    if not reader.problems:
        yield from _used_up(document.lines)
    else:
        raise QuotaFileError(sorted(reader.problems, key=lambda problem: problem.line or 0))
    try:
        return (
            yield from QuotaLimits.in_steps(
                _taken_from(entries),
                shadow=shadow,
                exempt=exempt,
                tenants=reader.tenants,
                schedules=schedules,
                refusing=refusing,
            )
        )
    except QuotaError as error:  # a rule that is checked nowhere above
        raise QuotaFileError([Problem(error.message, source=source)]) from None


def take_all(_limits: QuotaLimits) -> None:
    """The check of a quota file that may hold any limits: whatever can be read may be in force."""


def replication_of(
    text: str, source: str, check: Callable[[QuotaLimits], None] = take_all
) -> ReplicationSection:
    """The section `replication:` of a quota file; empty if there is none.

    Raises QuotaFileError for whatever is wrong in the file, or whatever `check` raises for its limits: it is
    put in force as a whole, or not at all.
    """
    try:
        document = parse_yaml(text, source)
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    found = SectionReader(document, source).replication()
    check(at_once(limits_in_steps(document, source)))  # which tells what is wrong in the section, too
    return found


def _taken_from(entries: list[_Entry]) -> Iterator[_Entry]:
    entries.reverse()
    while entries:
        yield entries.pop()


def _used_up(lines: dict[YamlPath, int]) -> Generator[None, None, None]:
    while lines:
        for _ in range(min(_LINES_PER_STEP, len(lines))):
            lines.popitem()
        yield
