"""A file that a command replaces as a whole, and the locks under which commands look, decide and write.

The lock is one on the file's folder, so that nothing is left beside it: the file itself is exchanged for
another. Knows no format.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from sluice.quotas.files.config_error import ConfigError, Problem

_WAIT_S: Final = 60.0
_AGAIN_S: Final = 0.05


@contextmanager
def alone_in(folders: Mapping[Path, str]) -> Iterator[None]:
    """No other command of Sluice writes what lies in these folders meanwhile; an editor may. A folder → what
    is told as changed if its lock is not to be had. Raises ConfigError.

    None are locked that cannot be opened or whose file system has no such locks, as NFS.
    """
    with ExitStack() as held:
        opened: dict[tuple[int, int], tuple[int, str]] = {}
        for folder, name in folders.items():
            with suppress(OSError):  # what is wrong there is told by who reads or writes the file
                handle = os.open(os.path.realpath(folder), os.O_RDONLY | os.O_CLOEXEC)
                held.callback(os.close, handle)
                found = os.fstat(handle)
                # Each folder once, or the command waits for itself.
                opened.setdefault((found.st_dev, found.st_ino), (handle, name))
        for _, (handle, name) in sorted(opened.items()):  # in one order, or two wait for each other
            _lock(handle, name)
        yield


def _lock(folder: int, name: str) -> None:
    for _ in range(int(_WAIT_S / _AGAIN_S)):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_AGAIN_S)
        except OSError:  # a file system without such locks
            return
    message = f"another command has been changing it for {_WAIT_S:g} s; try again when that has ended"
    raise ConfigError([Problem(message, source=name)])


def replace_whole(file: Path, text: str) -> None:
    """At once, with the owner, group and rights it has; a link stays one. Raises OSError: what was there is
    there still, and nothing beside it."""
    file = Path(os.path.realpath(file))
    beside = file.with_name(f".{file.name}.{token_hex(8)}.new")  # its own: where nothing locks two may write
    try:
        with open(beside, "x", encoding="utf-8", newline="") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
            if file.exists():
                before = file.stat()
                _give(new.fileno(), before)
                os.chmod(new.fileno(), before.st_mode & 0o777)
        os.replace(beside, file)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _give(new: int, before: os.stat_result) -> None:
    """The new file to whom the old one belongs: a proxy of another user could not read it else, and would not
    start with it; nor could a night. Raises OSError."""
    now = os.fstat(new)
    if (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.fchown(new, before.st_uid, before.st_gid)
    except OSError:
        with suppress(OSError):
            os.fchown(new, -1, before.st_gid)
        now = os.fstat(new)
        by_group = bool(before.st_mode & 0o040) and now.st_gid == before.st_gid
        if now.st_uid == before.st_uid or by_group or before.st_mode & 0o004:
            return  # who could read it still can: its owner, its group, or everybody
        message = (
            f"belongs to {_owner(before)}, and the new file would be {_owner(now)}'s, which a proxy or a "
            "night of that user may not read; run the command as root, or as that user: "
            f"sudo -u '{_user(before.st_uid)}' …"
        )
        raise PermissionError(message) from None


def _owner(found: os.stat_result) -> str:
    """As `chown` takes it: `sluice:sluice`, numbers where there are no names."""
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    return f"{_user(found.st_uid)}:{group}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"
