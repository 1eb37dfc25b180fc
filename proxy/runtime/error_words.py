"""What an error of a socket or of the resolver is called, in words for people."""

from __future__ import annotations

import os
import re
from errno import EMFILE, ENFILE
from ssl import SSLError
from typing import Final

OUT_OF_DESCRIPTORS: Final = frozenset({EMFILE, ENFILE})
"""numbers of errors that are this process's or machine's own: they say nothing of the other side"""

_AIOKAFKA_ADDRESS: Final = re.compile(r"\('([^']*)', (\d+), <AddressFamily[^>]*>\)")


def words_of(error: BaseException) -> str:
    """Why it failed: `connection refused`, without the number, the address or the event loop's own words.

    Errors of TLS, and those that are not the system's, have their words already; one without any has timed
    out.
    """
    if isinstance(error, OSError) and not isinstance(error, SSLError) and error.errno:
        # A resolver's numbers are below 0, and it brings its own words; uvloop words the system's anew.
        told = os.strerror(error.errno) if error.errno > 0 else error.strerror
        if told:
            return told.lower()
    return _AIOKAFKA_ADDRESS.sub(r"\1:\2", str(error)) or "timed out"


def reason_of(error: BaseException) -> str:
    """In one line: what kind of error it is, and what it says; aiokafka's begin with their kind already."""
    kind = type(error).__name__
    told = words_of(error) if isinstance(error, OSError) or str(error) else ""
    return told if told.startswith(kind) else f"{kind}: {told}".rstrip(": ")
