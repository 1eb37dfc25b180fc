"""What an error of a socket or of the resolver is called, in words for people."""

from __future__ import annotations

import os
from errno import EMFILE, ENFILE
from ssl import SSLError
from typing import Final

OUT_OF_DESCRIPTORS: Final = frozenset({EMFILE, ENFILE})
"""numbers of errors that are this process's or machine's own: they say nothing of the other side"""


def words_of(error: Exception) -> str:
    """Why it failed: `connection refused`, without the number, the address or the event loop's own words.

    Errors of TLS, and those that are not the system's, have their words already; one without any has timed
    out.
    """
    if isinstance(error, OSError) and not isinstance(error, SSLError) and error.errno:
        # A resolver's numbers are below 0, and it brings its own words; uvloop words the system's anew.
        told = os.strerror(error.errno) if error.errno > 0 else error.strerror
        if told:
            return told.lower()
    return str(error) or "timed out"
