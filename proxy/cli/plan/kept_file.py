"""The small JSON files that are kept beside plans: replaced as a whole, read with a check of all in them.

What is damaged is told with its file and what to do; no value that no Sluice wrote is taken for a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from sluice.proxy.cli.options import in_words
from sluice.proxy.cli.whole_file import replace_whole
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.json_text import parse_json
from sluice.quotas.files.load import MAX_QUOTAS_BYTES, read_bytes

_MOST_BYTES: Final = 8 * MAX_QUOTAS_BYTES
"""a record takes some five times the bytes of the quota file's entries"""
_Content = TypeVar("_Content")


def read_kept(
    file: Path, taken: Callable[[dict[str, Any]], _Content], otherwise: _Content, remedy: str
) -> _Content:
    """What `taken` makes of the file's object; `otherwise` if there is no file.

    Raises ConfigError with `remedy` if it cannot be read, or if `taken` raises what damage brings about.
    """
    try:
        found = parse_json(read_bytes(file, _MOST_BYTES))
    except FileNotFoundError:
        return otherwise
    except OSError as error:
        raise _unusable(file, f"cannot be read: {in_words(error)}", remedy) from None
    except ValueError as error:
        raise _damaged(file, error, remedy) from None
    try:
        if not isinstance(found, dict):
            raise ValueError("is no JSON object")
        return taken(found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(file, error, remedy) from None


def _damaged(file: Path, error: Exception, remedy: str) -> ConfigError:
    return _unusable(file, f"is damaged, or not what Sluice wrote: {type(error).__name__}: {error}", remedy)


def _unusable(file: Path, problem: str, remedy: str) -> ConfigError:
    return ConfigError([Problem(f"{problem}; {remedy}", source=str(file))])


def replace_with(file: Path, content: Mapping[str, Any]) -> None:
    """Put `content` in its place. Raises OSError: what was there is there still."""
    replace_whole(file, json.dumps(content, indent=1, ensure_ascii=False))
