"""The file in which known producer ids survive a restart: read at the start, written now and then, and last.

What cannot be taken over is told, counted, and moved aside (`.refused`); the quota then begins empty, which
costs waits and loses nothing. What is in it, and which of that is refused: quotas/producer_ids/snapshot.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.runtime.file_work import FileWork, within
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.private_file import PrivateFile, unusable
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import read_bytes
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.snapshot import Part, SnapshotError, restore_snapshot, sealed, snapshot_parts

_KEY: Final = "producer_ids.snapshot_file"
_LEFT_OUT_TOLD: Final = 20

_log = get_logger()


class SnapshotOutcome(StrEnum):
    """What became of one look at, or one writing of, the file."""

    RESTORED = "restored"
    ABSENT = "absent"
    """at the start, as at the very first"""
    REFUSED = "refused"
    """damaged, foreign, of another version, or from the future"""
    UNREADABLE = "unreadable"
    WRITTEN = "written"
    FAILED = "failed"
    """to be written"""


def scope_of(listeners: Iterable[ListenerOptions]) -> str:
    """Whose ids a process counts: the brokers behind it."""
    return "; ".join(sorted({listener.upstream for listener in listeners}))


MAX_SNAPSHOT_BYTES: Final = 1024 * 1024 * 1024
"""of the largest stores that fit into memory"""


class ProducerIdFile:
    """Reads and writes the file of one process."""

    def __init__(self, path: Path, scope: str) -> None:
        """`scope`: the brokers behind. Raises ConfigError if no file could ever be written there."""
        problem = unusable(path)
        if problem:
            raise ConfigError([Problem(problem, path=_KEY)])
        self._path = path
        self._file = PrivateFile(path)
        self._scope = scope
        self._work: FileWork[None] = FileWork()
        self.outcomes = dict.fromkeys(map(str, SnapshotOutcome), 0)
        """how often each; never falls"""
        self.last_written_unix_s = 0.0
        """when the state that the file holds was taken; 0: nothing was written yet"""

    def restore(self, quota: ProducerIdQuota) -> None:
        """Take over what the file holds; `quota` must be new. Blocks; never fails but by beginning empty."""
        try:
            data = within(str(self._path), lambda: read_bytes(self._path, MAX_SNAPSHOT_BYTES))
        except FileNotFoundError:
            self._count(SnapshotOutcome.ABSENT)
            _log.info("producer_ids_begin_empty", file=str(self._path), reason="there is no file yet")
            return
        except (OSError, ConfigError) as error:
            self._count(SnapshotOutcome.UNREADABLE)
            _log.error("producer_ids_begin_empty", file=str(self._path), reason=str(error))
            return
        try:
            left_out = restore_snapshot(quota, data, self._scope, time.monotonic() * 1e3, time.time() * 1e3)
        except SnapshotError as error:
            self._count(SnapshotOutcome.REFUSED)
            kept = self._file.move_aside()
            _log.error("producer_ids_begin_empty", file=str(self._path), reason=str(error), kept_as=kept)
            return
        self._count(SnapshotOutcome.RESTORED)
        principals = list(quota.principals())
        _log.info(
            "producer_ids_restored",
            file=str(self._path),
            users=len(principals),
            ids=sum(len(principal.store) for principal in principals),
            left_out=left_out[:_LEFT_OUT_TOLD],
        )

    async def run(self, quota: ProducerIdQuota, interval_s: float) -> None:
        """Write it every so often, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.write(quota)

    async def write(self, quota: ProducerIdQuota, *, is_last: bool = False) -> bool:
        """Put the state of this moment into the file. `is_last`: at the end of the process, also behind a
        writing that is under way. False, told and counted: that failed."""
        taken_unix_s = time.time()
        parts = snapshot_parts(quota, self._scope, time.monotonic() * 1e3, taken_unix_s * 1e3)
        number = self._file.take_number()
        try:
            run = self._work.run_last if is_last else self._work.run_anew
            await run(lambda: self._put(parts, number))
        except OSError as error:
            self._count(SnapshotOutcome.FAILED)
            _log.error("producer_ids_not_written", file=str(self._path), reason=str(error))
            return False
        self._count(SnapshotOutcome.WRITTEN)
        self.last_written_unix_s = taken_unix_s
        return True

    def _put(self, parts: list[Part], number: int) -> None:
        self._file.replace(sealed(parts), number)

    def _count(self, outcome: SnapshotOutcome) -> None:
        self.outcomes[str(outcome)] += 1
