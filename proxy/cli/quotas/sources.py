"""A place → its limits as the proxy looks them up, and the line of each: for `sluice quotas explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.edit import whom_of
from sluice.proxy.cli.quotas.listing import OWN, yaml_of
from sluice.proxy.cli.quotas.lookup import entity_of, limits_of
from sluice.proxy.cli.quotas.places import Place, QuotaFilePlace
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.quotas.limits.limits import QuotaError, QuotaLimits


@dataclass(frozen=True, slots=True)
class Source:
    """Where limits are from."""

    name: str
    told: str
    """a sentence"""
    limits: QuotaLimits
    """with their schedules, none of which is looked at yet"""
    lines: Mapping[tuple[QuotaEntity, str], int] = field(default_factory=dict)
    """of each entity and config key; empty: they are from no file"""

    def line_of(self, entity: QuotaEntity | None, key: str) -> int | None:
        """Where this limit stands."""
        return None if entity is None else self.lines.get((entity, key))


def source_of(place: Place) -> Source:
    """Raises ConfigError, CommandFailed: what is there cannot be read or used."""
    if isinstance(place, QuotaFilePlace):
        text = place.read()
        told = f"Limits of the quota file {place.name}."
        return Source(place.name, told, parse_quotas(text, place.name), _lines(text, place.name))
    listing = place.listing()
    if OWN in listing.untold:
        told = f"Limits that {place.name} tells; of tenants, client-id prefixes, exempt rules and schedules "
        try:
            return Source(place.name, f"{told}it tells nothing.", limits_of(listing))
        except QuotaError as error:
            raise CommandFailed(f"{place.name}: {error}") from None
    limits = parse_quotas(yaml_of(listing), place.name)
    return Source(place.name, f"Limits in force at the proxy of {place.name}.", limits)


def _lines(text: str, source: str) -> dict[tuple[QuotaEntity, str], int]:
    document = parse_yaml(text, source)
    value: Any = document.value
    found = {}
    for index, item in enumerate(value["quotas"]):
        entity = entity_of(whom_of(item))
        for key in item:
            line = document.line_of(("quotas", index, key))
            if key in KIND_BY_KEY and entity is not None and line is not None:
                found[entity, key] = line
    return found
