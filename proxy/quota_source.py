"""Where the limits of a process come from, a file or a topic; where they are asked for and changed.

At the start the limits that are there; later what replaces them, each change on record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from sluice.proxy.config_quotas import QuotaOptions
from sluice.proxy.quota_audit import QuotaAudit
from sluice.proxy.quota_desk import FileStore, QuotaDesk
from sluice.proxy.quota_watch import QuotaFile
from sluice.proxy.tasks import spawn
from sluice.proxy.watched_file import ReloadStatus
from sluice.quotas.limits import QuotaLimits

Apply = Callable[[QuotaLimits], None]
FILE: Final = "file"


class QuotaSource:
    """Of one process. The files are read when it is made."""

    def __init__(self, options: QuotaOptions) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._options = options
        self.audit = QuotaAudit()
        self._file = QuotaFile(options.named_file())
        self.limits = self._file.load()
        """in force, at the start and later"""
        self._apply: Apply = _nowhere
        store = FileStore(options.named_file())
        self.desk = QuotaDesk(lambda: self.limits, store, frozenset(options.admins))
        """where anybody asks about quotas, and changes them"""

    def statuses(self) -> Iterator[ReloadStatus]:
        """What became of the file."""
        yield self._file.status

    def work(self, apply: Apply) -> Iterator[tuple[Coroutine[Any, Any, None], str]]:
        """What is to run as long as the process; `apply` puts limits in force, in the event loop."""
        self._apply = apply
        yield self._file.watch(self._options.reload_interval_s, self._file_changed), "quota_file"

    def _file_changed(self, limits: QuotaLimits) -> None:
        before, self.limits = self.limits, limits
        self._apply(limits)
        file = str(self._options.named_file())
        record = self.audit.reloaded(before, limits, by=file, source=FILE, at_unix_s=time.time())
        spawn(record, "quota_audit")


def _nowhere(_limits: QuotaLimits) -> None:
    """Until the process serves."""
