"""Follows the section `replication:` of the quota file, as the limits of the same file are followed.

Only a file that can be used as a whole changes the throttles: an empty one is more likely a write that failed
than the wish to end a throttle while partitions move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sluice.proxy.runtime.file_work import FileHangs, FileWork, within
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.watched_file import hash_of
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.load import read_text
from sluice.quotas.files.quota_file import replication_of, take_all
from sluice.quotas.files.replication_section import ReplicationSection
from sluice.quotas.limits.limits import QuotaLimits

_log = get_logger()


class SectionFile:
    """The section of one quota file that is in force."""

    def __init__(self, path: Path, check: Callable[[QuotaLimits], None] = take_all) -> None:
        """Reads it; blocks. `check`: as the quota file's own (file_watch.py). Raises ConfigError for a file
        that cannot be read or used."""
        self._path = path
        self._check = check
        self._work: FileWork[str] = FileWork()
        text = within(str(path), partial(read_text, path, "quota"))
        self._section = replication_of(text, str(path), check)
        self._hash = hash_of(text)

    async def read(self) -> ReplicationSection:
        """The section as the file says now; while the file cannot be used, as it said last."""
        try:
            text = await self._work.run(partial(read_text, self._path, "quota"))
            content_hash = hash_of(text)
            if content_hash != self._hash:
                self._hash = content_hash  # at once: what is refused is not parsed again at each look
                self._section = await asyncio.to_thread(replication_of, text, str(self._path), self._check)
        except (ConfigError, FileHangs) as error:  # what is wrong the reload of the quotas says
            _log.debug("replication_section_refused", reason=str(error))
        return self._section
