"""pydantic's errors → our words: what is wrong and what would be right, as for every file that people write.

For the configuration, for files that are read by a model, and for questions to the status API.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel

from sluice.proxy.config.options import Options
from sluice.quotas.files.config_error import measure_of, number_meant, shown, unknown_key_message
from sluice.quotas.numbers import as_yaml, number

_DIGITS: Final = 15
_Model = TypeVar("_Model", bound=BaseModel)


# Flat on purpose: one case for each kind of error that pydantic has for our options, and its sentence.
def mistake(root: type[BaseModel], detail: Mapping[str, Any], *, shows_value: bool = True) -> str:
    """What is wrong and what would be right. `root`: the model that was to be made; `detail`: one of
    pydantic's errors. `shows_value`: with what was given."""
    path: tuple[str | int, ...] = detail["loc"]
    value = detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    is_shown, then_shown = (f", is {shown(value)}", f"; is {shown(value)}") if shows_value else ("", "")
    match detail["type"]:
        case "missing":
            section = section_at(root, path[:-1])
            field = section.model_fields.get(str(path[-1])) if section else None
            described = field.description if field else None
            return f"missing; it is required: {described}" if described else "missing; it is required"
        case "extra_forbidden":
            section = section_at(root, path[:-1])
            return unknown_key_message(str(path[-1]), section.model_fields if section else ())
        case "literal_error" | "enum":
            return f"must be {context['expected']}{then_shown}{_meant(value, context['expected'])}"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}{is_shown}"
        case "greater_than":
            return f"must be greater than {number(context['gt'], _DIGITS)}{is_shown}"
        case "greater_than_equal":
            return f"must be at least {number(context['ge'], _DIGITS)}{is_shown}"
        case "less_than_equal":
            return f"must be at most {number(context['le'], _DIGITS)}{is_shown}"
        case "int_type" | "int_parsing" | "int_from_float" | "int_parsing_size":
            return f"must be a whole number{is_shown}{number_meant(value, measure_of(str(path[-1])))}"
        case "float_type" | "float_parsing" | "not_a_number" | "finite_number":
            return f"must be a number{is_shown}{number_meant(value, measure_of(str(path[-1])))}"
        case "string_type" | "path_type":
            quoted = f"; write it in quotes: '{as_yaml(value)}'" if isinstance(value, int | float) else ""
            return f"must be a text{is_shown}{quoted}" if value is not None else "must not be blank"
        case "blank":
            return "must not be blank"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters{is_shown}"
        case "too_short":
            return "must have at least one entry"
        case "tuple_type":
            brackets = f"; write [{value}]" if isinstance(value, str) and value.strip() else ""
            return f"must be a list of entries (each begins with `- `){is_shown}{brackets}"
        case "dict_type":
            given = "is blank; leave it out, or give entries" if value is None else f"is {shown(value)}"
            then = f"; {given}" if shows_value else ""
            return f"must be a mapping of names to values, such as {{name: value}}{then}"
        case "model_type":
            section = section_at(root, path)
            keys = ", ".join(section.model_fields) if section else ""
            blank = (
                "is blank; leave it out, or give keys"
                if value is None
                else f"is {shown(value)}; must be a mapping"
            )
            return f"{blank}: {keys}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false{is_shown}"
        case _:
            return f"{detail['msg']}{then_shown}"


def _meant(value: object, expected: str) -> str:
    """`; did you mean utilisation?`, if one of the texts in `expected` is near."""
    known = expected.replace(" or ", ", ").replace("'", "").split(", ")
    close = get_close_matches(str(value).lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def inner_section(annotation: Any) -> type[Options] | None:
    """The section that an option holds: itself, one or none, or a list of them; None if it is a value."""
    return _inner(annotation, Options)


def section_at(root: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The class of the section at `path`; None when there is none."""
    section: type[BaseModel] | None = root
    for part in path:
        if isinstance(part, int):
            continue  # the item's class was taken from its list
        field = section.model_fields.get(part) if section is not None else None
        section = _inner(field.annotation, BaseModel) if field is not None else None
    return section


def _inner(annotation: Any, kind: type[_Model]) -> type[_Model] | None:
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, kind):
            return one
    return None
