"""What commands print, whatever encoding the output has, and also where it cannot be written.

A change that a command has made is made, also where nobody can be told: a script that takes exit code 1 for
"not applied" would make it again, or undo it.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from sluice.proxy.cli.options import in_words

_SHOWN: Final = 5
"""names of what is left out"""


def escape_unprintable() -> None:
    """Names that the output's encoding has not are printed as `\\u0416`, as they are on standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_file(text: str) -> None:
    """Print what is to be a file: in UTF-8, as Sluice reads files, whatever the locale says."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    print(text, end="")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON as programs can read it from standard output: letters beyond ASCII as such in UTF-8 alone."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    is_unicode = encoding.lower().replace("_", "-") in {"utf-8", "utf8"}
    return json.dumps(value, indent=indent, ensure_ascii=not is_unicode)


@contextmanager
def change_made(change: str) -> Iterator[None]:
    """What is printed within tells of a change that was made. If that cannot be written, `change` is told on
    standard error, and the command goes on: its exit code is that of the change. "": nothing was changed."""
    try:
        yield
        if change:
            sys.stdout.flush()
    except OSError as error:
        if not change:
            raise
        to_nowhere(sys.stdout)
        complain(f"{change} Standard output cannot be written: {in_words(error)}")


def print_left_out(why: str, left_out: list[str]) -> None:
    """On standard error: the first few by name."""
    if left_out:
        more = f"; and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
        print(f"{why}: {'; '.join(left_out[:_SHOWN])}{more}", file=sys.stderr)


def to_nowhere(stream: TextIO) -> None:
    """What is still in its buffer cannot be written either; Python would complain of that at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(what: object) -> None:
    """On standard error. Where that cannot be written, the exit code still says what it is."""
    try:
        sys.stderr.write(f"{what}\n")  # at once: the log's thread may write there, too
        sys.stderr.flush()
    except OSError:
        # A buffer that cannot be flushed at the end would make another exit code of it.
        to_nowhere(sys.stderr)
