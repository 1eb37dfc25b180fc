"""Sleeps until the kernel tells (inotify) that something happened where a file lies, so that nobody has to
look each second.

Only for file systems of this machine: of what another machine changes on a network mount the kernel tells
nothing. There, and where inotify is not to be had, it sleeps for the ordinary interval. Belongs to one
thread, save for `end`.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

LOCAL_TYPES: Final = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
)
"""file systems that no other machine changes"""
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MOST_LINKS: Final = 40
"""of one path, as the kernel's own bound"""
_READ_BYTES: Final = 65_536
# <sys/inotify.h>. Not IN_MODIFY: a log that is written beside the file would wake the thread.
_CLOEXEC_NONBLOCK: Final = os.O_CLOEXEC | os.O_NONBLOCK
_IN_ATTRIB, _IN_CLOSE_WRITE, _IN_MOVED_FROM, _IN_MOVED_TO = 0x04, 0x08, 0x40, 0x80
_IN_CREATE, _IN_DELETE, _IN_DELETE_SELF, _IN_MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_IN_ONLYDIR: Final = 0x0100_0000
_WHAT: Final = (
    _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED_FROM | _IN_MOVED_TO
    | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
)  # fmt: skip


class FileEvents:
    """What happens in the folders in which the files and the links to them lie."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._folders: frozenset[str] = frozenset()
        self._inotify = -1
        self._woken, self._wakes = os.pipe()
        self._closing = threading.Lock()
        self._is_closed = False
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)

    def follow(self) -> bool:
        """Follow the folders as they are now; to be called before each look, blocks as that does. Returns
        whether the kernel tells of every change."""
        folders = frozenset(folder for path in self._paths for folder in folders_of(path))
        if folders != self._folders:
            self._folders = folders
            self._stop()
            if are_local(folders):
                self._start(folders)
        return self._inotify >= 0

    def wait(self, at_most_s: float) -> None:
        """Block until something happened, at most so long."""
        self._poll.poll(at_most_s * 1000.0)

    def drain(self) -> None:
        """Forget what happened so far; before the look that will see it."""
        with suppress(OSError):  # none, or nothing happened
            while len(os.read(self._inotify, _READ_BYTES)) > _READ_BYTES // 2:
                pass

    def end(self) -> None:
        """`wait` returns at once from now on; from any thread."""
        with self._closing:
            if not self._is_closed:  # the descriptor may be another's by then
                os.write(self._wakes, b"\0")

    def close(self) -> None:
        """By the thread that waits."""
        with self._closing:
            self._is_closed = True
        self._stop()
        os.close(self._woken)
        os.close(self._wakes)

    def _start(self, folders: Iterable[str]) -> None:
        libc = ctypes.CDLL(None)
        try:
            self._inotify = libc.inotify_init1(_CLOEXEC_NONBLOCK)
            if self._inotify < 0:  # a user has 128 of them
                return
            add = libc.inotify_add_watch
            if any(add(self._inotify, os.fsencode(folder), _WHAT) < 0 for folder in folders):
                self._close_inotify()
                return
        except AttributeError:  # not on this system
            return
        self._poll.register(self._inotify, select.POLLIN)

    def _stop(self) -> None:
        if self._inotify >= 0:
            self._poll.unregister(self._inotify)
            self._close_inotify()

    def _close_inotify(self) -> None:
        os.close(self._inotify)
        self._inotify = -1


def folders_of(path: Path) -> list[str]:
    """Where something must change for `path` to lead to another file or state: the folder of each link on
    the way, and of the file. Blocks as the file system does; what is not there is left out."""
    found = []
    left = list(reversed(Path(os.path.abspath(path)).parts[1:]))
    here, links = "/", 0
    while left:
        name = left.pop()
        entry = os.path.normpath(os.path.join(here, name))
        try:
            target = os.readlink(entry) if links < _MOST_LINKS else ""
        except OSError:  # no link
            target = ""
        if target or not left:
            found.append(here)
        if not target:
            here = entry
            continue
        links += 1
        if target.startswith("/"):
            here = "/"
        left += reversed([part for part in target.split("/") if part not in ("", ".")])
    return [folder for folder in found if os.path.isdir(folder)]


def are_local(folders: Iterable[str], mounts: Path = _MOUNTS) -> bool:
    """Whether the kernel of this machine sees every change in all of them. Blocks as `stat` does."""
    try:
        types = _types_of_devices(mounts.read_text())
        devices = {os.stat(folder).st_dev for folder in folders}
    except (OSError, ValueError):
        return False
    return bool(devices) and all(types.get(device) in LOCAL_TYPES for device in devices)


def _types_of_devices(mountinfo: str) -> Mapping[int, str]:
    """proc(5), /proc/pid/mountinfo: `36 35 98:0 /root /mount options … - type source options`."""
    types = {}
    for line in mountinfo.splitlines():
        fields = line.split()
        major, _, minor = fields[2].partition(":")
        types[os.makedev(int(major), int(minor))] = fields[fields.index("-") + 1]
    return types
