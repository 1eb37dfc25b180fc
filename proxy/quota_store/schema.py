"""The JSON Schema of a quota file, for editors; the reader of quota files knows more."""

from __future__ import annotations

import json
from typing import Any, Final

from sluice.quotas.files.config_error import USER_TYPE
from sluice.quotas.files.entries import (
    ENTITY_KEYS,
    FORWARD,
    OVER_BUDGET_KEY,
    REFUSABLE_KEY,
    REFUSE,
    SHADOW_KEY,
    TENANT_KEYS,
)
from sluice.quotas.files.replication_section import ALL_BROKERS, REPLICATION_KEY
from sluice.quotas.files.schedule_entries import (
    DATE_PATTERN,
    MAX_WINDOWS,
    SCHEDULE_KEY,
    TIME_PATTERN,
    WINDOW_KEYS,
)
from sluice.quotas.kinds import KIND_BY_KEY, KINDS
from sluice.quotas.limits.schedule import DAY_NAMES
from sluice.quotas.replication.limits import RATE_KEYS, REPLICAS_KEYS

_NAME: Final = {"type": "string", "minLength": 1}
_USER: Final = {**_NAME, "not": {"pattern": f"^{USER_TYPE}"}}


def _window() -> dict[str, Any]:
    """An item of `schedule:`."""
    time = {"type": "string", "pattern": f"^({TIME_PATTERN})$"}
    date = {"type": "string", "pattern": f"^{DATE_PATTERN}$"}
    days = {"type": "array", "items": {"enum": list(DAY_NAMES)}, "minItems": 1}
    keys: dict[str, Any] = {
        "days": {**days, "description": "Weekdays on which it begins."},
        "date": {**date, "description": "In place of days: one date, or the first of several."},
        "last_date": {**date, "description": "The last of several."},
        "from": {**time, "description": "Of the local day; 00:00 if not given."},
        "to": {**time, "description": "On the next day if not behind `from`; 24:00 if not given."},
        "timezone": {
            "type": "string",
            "minLength": 1,
            "description": "Such as Europe/Berlin; UTC if not given.",
        },
    }
    assert tuple(keys) == WINDOW_KEYS
    for spec in KINDS.values():
        keys[spec.config_key] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": f"In {spec.limit_unit}; the entry must have one for the normal time, too.",
        }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": keys,
        "oneOf": [{"required": ["days"]}, {"required": ["date"]}],
        "anyOf": [{"required": [spec.config_key]} for spec in KINDS.values()],
        "dependentRequired": {"last_date": ["date"]},
    }


def _replication() -> dict[str, Any]:
    """JSON Schema of the section `replication:`."""
    broker: dict[str, Any] = {"id": {"anyOf": [{"type": "integer", "minimum": 0}, {"const": ALL_BROKERS}]}}
    rate = {"type": "integer", "minimum": 0, "description": "In bytes per second."}
    broker |= dict.fromkeys(RATE_KEYS, rate)
    topic: dict[str, Any] = {"name": {"type": "string", "minLength": 1}}
    replicas = {"type": "string", "description": "`partition:broker,…` or `*`."}
    topic |= dict.fromkeys(REPLICAS_KEYS, replicas)
    return {
        "type": "object",
        "additionalProperties": False,
        "description": "Replication throttles (KIP-73), where replication.source is quotas.",
        "properties": {
            "brokers": {"type": "array", "items": _named("id", broker)},
            "topics": {"type": "array", "items": _named("name", topic)},
        },
    }


def _named(name: str, keys: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": [name], "properties": keys}


def _entry() -> dict[str, Any]:
    """An item of `quotas:`."""
    keys: dict[str, Any] = {
        "user": {
            **_USER,
            "description": "The principal's name without its type; <default>: every other user.",
        },
        "tenant": {
            **_NAME,
            "description": "In place of user: the members of this tenant, who share one bucket.",
        },
        "client-id": {**_NAME, "description": "The client id; <default>: every other client id."},
        "client-id-prefix": {
            **_NAME,
            "description": "In place of client-id: all client ids that begin so share one bucket; the "
            "longest prefix that fits applies.",
        },
        "ip": {**_NAME, "description": "A client's address; <default>: every other one. Stands alone."},
    }
    for spec in KINDS.values():
        keys[spec.config_key] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": f"{spec.effect} In {spec.limit_unit}.",
        }
    keys[SHADOW_KEY] = {
        "description": "Measure and log these limits, or with true all of the entry, but delay nobody.",
        "anyOf": [
            {"type": "boolean"},
            {"type": "array", "items": {"enum": list(KIND_BY_KEY)}, "minItems": 1},
        ],
    }
    keys[OVER_BUDGET_KEY] = {
        "enum": [FORWARD, REFUSE],
        "description": "What becomes of a Produce that has no turn within its answer budget, by this "
        f"entry's {REFUSABLE_KEY}: it goes ahead of the limit ({FORWARD}, the default), or is refused with "
        f"an error after which clients send it again ({REFUSE}).",
    }
    keys[SCHEDULE_KEY] = {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_WINDOWS,
        "items": _window(),
        "description": "Other limits at times; of two windows at the same time the first has the word.",
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": keys,
        "dependentRequired": {OVER_BUDGET_KEY: [REFUSABLE_KEY]},
        "allOf": [
            {"anyOf": [{"required": [key]} for key in ENTITY_KEYS]},
            {"anyOf": [{"required": [spec.config_key]} for spec in KINDS.values()]},
            *(
                {"not": {"required": list(both)}}
                for both in (("user", "tenant"), ("client-id", "client-id-prefix"))
            ),
        ],
    }


def _rule() -> dict[str, Any]:
    """An item of `exempt:`."""
    keys = {
        "user": {**_USER, "description": "The principal's name without its type."},
        "address": {**_NAME, "description": "The client's: one address, or a network such as 10.1.0.0/16."},
        "client-id": {**_NAME, "description": "Only beside user or address: clients choose it."},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": keys,
        "anyOf": [{"required": ["user"]}, {"required": ["address"]}],
    }


def _tenant() -> dict[str, Any]:
    """An item of `tenants:`."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(TENANT_KEYS),
        "properties": {
            "name": {**_NAME, "description": "As entries name it: `tenant: NAME`."},
            "members": {
                "type": "array",
                "items": _USER,
                "uniqueItems": True,
                "description": "Users; each belongs to one tenant at most.",
            },
        },
    }


def quotas_schema() -> dict[str, Any]:
    """JSON Schema of a quota file, for editors; `sluice check` knows more."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice quota file",
        "type": "object",
        "additionalProperties": False,
        "required": ["quotas"],
        "properties": {
            REPLICATION_KEY: _replication(),
            "quotas": {"type": "array", "items": _entry()},
            "tenants": {
                "type": "array",
                "items": _tenant(),
                "description": "Groups of users that share a bucket where a limit is for their tenant.",
            },
            "exempt": {
                "type": "array",
                "items": _rule(),
                "description": "Whom no limit delays; what they use is measured all the same.",
            },
        },
    }


def quotas_schema_text() -> str:
    """The JSON Schema of the quota file."""
    return json.dumps(quotas_schema(), indent=2) + "\n"
