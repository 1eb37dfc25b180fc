"""One night at a time in an output folder: states, memory and plans of two would be mixed.

A lock of the file system on OUT/.lock, which ends with its process. Where the file system locks across
machines, as NFS does, so does this. An object store has no locks: there object_lock.py makes one.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FILE: Final = ".lock"


class AnotherNightError(OSError):
    """Another night works in this output folder; says which."""


@contextmanager
def run_lock(out: str) -> Iterator[None]:
    """Held while the body runs. Raises AnotherNightError at once if another has it.

    A folder that was made for it alone, as by a night that finds no log, is removed again.
    """
    if "://" in out:
        yield
        return
    file = Path(out, _FILE)
    is_new = not file.parent.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_new = False
            whose = os.read(descriptor, 200).decode(errors="replace").strip()
            raise AnotherNightError(f"{out}: another night runs here ({whose}); wait for its end") from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
        is_new = False
    finally:
        if is_new and os.listdir(out) == [_FILE]:
            file.unlink()
            file.parent.rmdir()
        os.close(descriptor)
