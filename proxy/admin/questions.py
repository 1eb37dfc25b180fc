"""What stands in a question to the admin port or socket → values; whatever is no answerable one is refused.

A wrong value is never taken for the default: who wrote `"validate_only": "yes"` wanted nothing changed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sluice.quotas.files.config_error import shown, unknown_key_message
from sluice.quotas.files.yaml_lines import YamlPath, dotted
from sluice.quotas.names import printable

_TOLD: Final = 60
"""characters of a text"""
_FLAGS: Final = {"": False, "false": False, "true": True}
_DIGITS: Final = re.compile("[0-9]{1,9}")
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


class BadRequest(Exception):
    """What is asked for is no request, or is refused; told to the client, whose connection goes on."""


def flag_of(request: Mapping[str, Any], name: str) -> bool:
    """The flag in a JSON object; False if it is left out. Raises BadRequest."""
    value = request.get(name, False)
    if not isinstance(value, bool):
        raise BadRequest(f"{name} must be true or false, is {shown(value)}")
    return value


def rows_of(request: Mapping[str, Any], otherwise: int, most: int) -> int:
    """How many rows a JSON object asks for. `otherwise`: if it does not say. Raises BadRequest."""
    value = request.get("rows", otherwise)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadRequest(f"rows must be a whole number from 0 to {most}, is {shown(value)}")
    return value


def asked_flag(query: Mapping[str, str], name: str) -> bool:
    """The flag behind a `?`; a blank one is as if it were left out. Raises BadRequest."""
    text = query.get(name, "")
    if text not in _FLAGS:
        raise BadRequest(f"{name} must be true or false")
    return _FLAGS[text]


def asked_rows(query: Mapping[str, str], otherwise: int, most: int) -> int:
    """How many rows are asked for behind a `?`, as `rows_of`."""
    text = query.get("rows", "")
    if not text:
        return otherwise
    if _DIGITS.fullmatch(text) is None or int(text) > most:
        raise BadRequest(f"rows must be a whole number from 0 to {most}")
    return int(text)


def refuse_unknown(request: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises BadRequest: a misspelt key would be as if it were left out."""
    names = sorted(known)
    for key in request:
        if key not in names:
            raise BadRequest(f"{printable(key)}: {unknown_key_message(key, names)}")


def refuse_half_pairs(request: Any) -> None:
    """Raises BadRequest for half a surrogate pair (`\\ud800`) in any text, keys included: JSON can write it,
    but it is no character, and neither a name of Kafka's nor a file can have it."""
    left: list[tuple[YamlPath, Any]] = [((), request)]
    while left:
        path, value = left.pop()
        if isinstance(value, str) and _HALF_PAIR.search(value):
            where = printable(dotted(path))
            raise BadRequest(
                f"{where}: has half a surrogate pair, which is no character, is {ascii(value)[:_TOLD]}"
            )
        if isinstance(value, dict):
            for key, inner in value.items():
                left += [((*path, "a key"), key), ((*path, key), inner)]
        elif isinstance(value, list):
            left += [((*path, number), inner) for number, inner in enumerate(value)]
