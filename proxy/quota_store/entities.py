"""Entities as Kafka's protocol names them, and as the key of a record of the quota topic. Pure.

    (("user", "alice"), ("client-id", None))  ↔  QuotaEntity  →  {"user":"alice","client-id":null}

A name may be longer than any reader takes: Kafka's refuse a text above 32,767 bytes, and with it the whole
answer in which it stands. So limits are not set for such names, and those that are there (from a file, or
set by earlier versions) are left out of what is told to clients.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sluice.quotas.entity import DEFAULT, Default, QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
MAX_NAME_BYTES: Final = 32_767
"""of UTF-8"""
MAX_KEY_BYTES: Final = 70_000
_MAX_CHARACTER_BYTES: Final = 4

Parts: TypeAlias = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs as the protocol has them; a null name is the default entity"""


def parts_of(entity: QuotaEntity) -> Parts | None:
    """The entity as the protocol names it; None: Kafka has no such entity."""
    found: list[tuple[str, str | None]] = []
    for entity_type, name in ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip)):
        if name is None:
            continue
        if isinstance(name, Default):
            found.append((entity_type, None))
        elif isinstance(name, str):
            found.append((entity_type, name))
        else:
            return None
    parts = tuple(found)
    return parts if parts and entity_of(parts) == entity else None


def entity_of(parts: Parts) -> QuotaEntity:
    """Counterpart of `parts_of`. Of two names of one type the later counts, as in the broker."""
    names: dict[str, str | Default] = {
        entity_type: DEFAULT if name is None else name for entity_type, name in parts
    }
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def key_of(entity: QuotaEntity) -> bytes:
    """The record key of an entity that Kafka has too. Raises ValueError for another."""
    parts = parts_of(entity)
    if parts is None:
        raise ValueError(f"{entity} cannot be kept in a topic")
    return as_json(dict(parts))


def as_json(value: Mapping[str, Any]) -> bytes:
    """One text for one value, as keys and values of records are written."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def has_too_long_name(entity: QuotaEntity) -> bool:
    """Whether no reader of Kafka's could be told of it."""
    return any(isinstance(name, str) and _is_too_long(name) for name in (entity.user, entity.client_id))


def why_too_long(entity: QuotaEntity) -> str | None:
    """Why no limit is set for an entity that Kafka has too; None: its names are short enough."""
    for entity_type, name in parts_of(entity) or ():
        if name is not None and _is_too_long(name):
            size = len(name.encode())
            return f"A {entity_type} of {size} bytes is not supported: Kafka reads names of {MAX_NAME_BYTES}"
    size = len(key_of(entity))
    if size > MAX_KEY_BYTES:
        return f"The names take {size} bytes as the key of a record; {MAX_KEY_BYTES} are supported"
    return None


def shortened(text: str) -> str:
    """As much of a text as Kafka reads: for what is told back to who sent it."""
    if not _is_too_long(text):
        return text
    return text.encode()[:MAX_NAME_BYTES].decode(errors="ignore")


def _is_too_long(name: str) -> bool:
    return len(name) * _MAX_CHARACTER_BYTES > MAX_NAME_BYTES and len(name.encode()) > MAX_NAME_BYTES
