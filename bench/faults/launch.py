"""Runs `sluice` with two things in its process that a bench can set off while it runs.

    python -m bench.faults.launch CONTROL_FOLDER [arguments of sluice]

CONTROL_FOLDER/clock: a double, in seconds, by which Python's wall clock is off (the machine's own clock, and
OpenSSL's with it, stays). CONTROL_FOLDER/throw: the name of a thread in which an exception is to be raised;
the file is removed when that was done. Nothing else differs from `sluice`.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Final

CLOCK: Final = "clock"
THROW: Final = "throw"
SHIFT: Final = struct.Struct("<d")
_LOOK_S: Final = 0.05


class InjectedFault(Exception):
    """What the thread meets."""


def shift_clock(file: Path) -> None:
    """From now on time.time() and time.time_ns() are off by what the file holds."""
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), SHIFT.size)
    true_time = time.time
    time.time = lambda: true_time() + SHIFT.unpack_from(shared)[0]
    time.time_ns = lambda: int(time.time() * 1e9)


def throw_on_demand(file: Path) -> None:
    """A thread of its own, which looks for the file as long as the process lives."""
    threading.Thread(target=_look_for_demands, args=(file,), name="faults", daemon=True).start()


def _look_for_demands(file: Path) -> None:
    while True:
        time.sleep(_LOOK_S)
        if not file.exists():
            continue
        name = file.read_text(encoding="utf-8")
        for thread in threading.enumerate():
            if thread.name == name and thread.ident is not None:
                ident = ctypes.c_ulong(thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(InjectedFault))
                file.unlink()


def main(control: str, *arguments: str) -> None:
    folder = Path(control)
    shift_clock(folder / CLOCK)  # before anything takes `time` from its module
    throw_on_demand(folder / THROW)
    from sluice.proxy.__main__ import main as sluice

    sys.argv = ["sluice", *arguments]
    sluice()


if __name__ == "__main__":
    main(*sys.argv[1:])
