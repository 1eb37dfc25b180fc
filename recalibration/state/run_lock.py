"""One night at a time in an output folder: states, memory and plans of two would be mixed.

A lock of the file system on OUT/.lock, which ends with its process. Where the file system locks across
machines, as NFS does, so does this. An object store has no locks: there object_lock.py makes one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_FILE: Final = ".lock"
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


class AnotherNightError(OSError):
    """Another night works in this folder; says which."""


class NoLocksError(OSError):
    """This file system locks nothing."""


@contextmanager
def run_lock(out: str) -> Iterator[None]:
    """Held while the body runs. Raises AnotherNightError at once if another has it, and NoLocksError.

    A folder that was made for it alone, as by a night that finds no log, is removed again.
    """
    file = Path(out, _FILE)
    is_new = not file.parent.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:  # removed at this moment by a night that found no log
        raise AnotherNightError(f"{out}: another night has ended here at this moment") from None
    try:
        try:
            _lock(descriptor, file)
        except AnotherNightError:
            is_new = False
            raise
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
        is_new = False
    finally:
        if is_new and os.listdir(out) == [_FILE]:
            with suppress(OSError):  # somebody has opened it meanwhile
                file.unlink()
                file.parent.rmdir()
        os.close(descriptor)


def _lock(descriptor: int, file: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        whose = os.read(descriptor, 200).decode(errors="replace").strip()
        raise AnotherNightError(
            f"{file.parent}: another night runs here ({whose}); wait for its end"
        ) from None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise NoLocksError(error.errno, f"{file.parent}: {error.strerror}") from None
        raise
    if not _is_at(descriptor, file):  # a night that found no log has removed it: nobody else sees our lock
        raise AnotherNightError(f"{file.parent}: another night has ended here at this moment")


def _is_at(descriptor: int, file: Path) -> bool:
    """Whether the file that was opened is the one that has the name now."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
