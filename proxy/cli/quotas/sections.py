"""What a quota file has beside `quotas:` (tenants, exempt rules, replication throttles): compared, written.

A section is a tuple of items as in the file. Those of `replication:` are its brokers' (with `id`) and its
topics' (with `name`) in one, each broker and topic once. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sluice.proxy.cli.quotas.edit import Entry, block_lines
from sluice.quotas.exempt import network_of
from sluice.quotas.files.replication_section import REPLICATION_KEY, SECTION_KEYS
from sluice.quotas.names import printable
from sluice.quotas.replication.limits import ALL, RATE_KEYS, REPLICAS_KEYS, parse_replicas

SECTIONS: Final = ("tenants", "exempt", REPLICATION_KEY)
"""in the order of an export"""
Items: TypeAlias = tuple[Entry, ...]
Sections: TypeAlias = Mapping[str, Items]
"""by name, those for which a source has a place"""
_BROKERS, _TOPICS = SECTION_KEYS


def sections_of(document: Mapping[str, Any]) -> dict[str, Items]:
    """All of them, of the document of a good quota file."""
    found = {name: tuple(document.get(name, ())) for name in SECTIONS if name != REPLICATION_KEY}
    return {**found, REPLICATION_KEY: replication_items(document.get(REPLICATION_KEY, {}))}


def replication_items(section: Mapping[str, Sequence[Entry]]) -> Items:
    """Brokers, then topics; what stands in several items of one of them is put together."""
    return _put_together(item for part in SECTION_KEYS for item in section.get(part, ()))


def in_the_file(section: str, items: Sequence[Entry]) -> Sequence[Entry] | dict[str, list[Entry]]:
    """The section's value as a quota file has it."""
    return in_parts(items) if section == REPLICATION_KEY else items


def in_parts(items: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Items of `replication:` by the part in which they stand; a part with none is left out."""
    found: dict[str, list[Entry]] = {}
    for item in items:
        found.setdefault(_whose(item)[0], []).append(item)
    return found


def section_lines(section: str, items: Sequence[Entry]) -> Iterator[str]:
    """A section as YAML, a line each, without their ends; none if it has no items."""
    if not items:
        return
    yield f"{section}:"
    value = in_the_file(section, items)
    if not isinstance(value, dict):
        yield from _indented(2, value)
        return
    for part, some in value.items():
        yield f"  {part}:"
        yield from _indented(4, some)


def told(section: str, items: Iterable[Entry]) -> dict[str, str]:
    """What a section says, in one way, however it is written: text → value. Of replication throttles each
    setting is one text; else each item is, of the value "", which is yes."""
    if section != REPLICATION_KEY:
        return {_item(section, item): "" for item in items}
    found = {}
    for item in items:
        part, name = _whose(item)
        for key in (*RATE_KEYS, *REPLICAS_KEYS):
            if key in item:
                found[f"{part[:-1]} {printable(str(name))}: {key}"] = _setting(key, item[key])
    return found


def joined(section: str, base: Items, over: Items) -> Items:
    """All of both. A tenant of the same name is `over`'s; so is each setting of a broker or topic."""
    if section == REPLICATION_KEY:
        return _put_together((*base, *over))
    names = {item["name"] for item in over if "name" in item}
    kept = [item for item in base if item.get("name") not in names and item not in over]
    return (*kept, *over)


def _whose(item: Entry) -> tuple[str, Any]:
    """(part of the section, broker or topic)."""
    return (_BROKERS, item["id"]) if "id" in item else (_TOPICS, item["name"])


def _put_together(items: Iterable[Entry]) -> Items:
    found: dict[tuple[str, Any], Entry] = {}
    for item in items:
        found.setdefault(_whose(item), {}).update(item)
    return tuple(found.values())


def _setting(key: str, value: Any) -> str:
    """`"5000"` is 5000, `0:1, 0:2` is `0:1,0:2`."""
    if key in RATE_KEYS:
        return str(int(value))
    replicas = parse_replicas(key, value)
    pairs = (f"{partition}:{broker}" for partition, broker in sorted(replicas.pairs))
    return ALL if replicas.all else ",".join(pairs)


def _item(section: str, item: Entry) -> str:
    """An address is the network of it alone."""
    if section == "exempt" and "address" in item:
        item = {**item, "address": str(network_of(item["address"]))}
    return json.dumps(dict(sorted(item.items())), ensure_ascii=False)


def _indented(columns: int, items: Iterable[Entry]) -> Iterator[str]:
    return (f"{' ' * columns}{line}" for item in items for line in block_lines(item))
