"""Standard input, output and error of the process, whichever of them it was begun without."""

from __future__ import annotations

import os
import sys
from typing import Final

NAMES: Final = ("stdin", "stdout", "stderr")
"""in the order of their descriptors"""


def open_standard_files() -> None:
    """Put the null device where one of the three is closed. To be called before anything else opens a file.

    The next file would get its number: a socket would be written to as standard error, and libuv ends the
    process (an assertion) where it closes one of these numbers.
    """
    for number, name in enumerate(NAMES):
        if getattr(sys, name) is None:
            lowest_free = os.open(os.devnull, os.O_RDWR)  # the number itself, unless a library was quicker
            os.set_inheritable(lowest_free, True)
            stream = open(lowest_free, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
