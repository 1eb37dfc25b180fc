"""Follows the configuration file: what can change while traffic flows does, the rest waits for a restart.

On an error the configuration in force stays. When the file has changed is decided in runtime/watched_file.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sluice.proxy.config.config import LIVE_OPTIONS, Config, contradictions_of
from sluice.proxy.config.file import config_of
from sluice.proxy.runtime.file_sentinel import FileSentinel
from sluice.proxy.runtime.file_work import FileHangs, FileWork
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.watched_file import ReloadOutcome, ReloadStatus, WatchedFiles, hash_of, identify
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_text
from sluice.quotas.files.yaml_lines import parse_yaml

LOOK_INTERVAL_S: Final = 5.0
"""by hand and seldom; a look each second is a seventh of what an idle proxy costs"""

_log = get_logger()


class ConfigWatch:
    """Follows the file that the process was started with; variables stay what they were."""

    def __init__(self, path: Path, environ: Mapping[str, str], config: Config) -> None:
        """`config`: in force, as it was read from the file just now."""
        self._path = path
        self._environ = environ
        self._config = config
        self._watched = WatchedFiles()
        self._work: FileWork[tuple[ReloadOutcome, Config | ConfigError | None] | None] = FileWork()

    @property
    def status(self) -> ReloadStatus:
        """What became of the file so far; the same object always."""
        return self._watched.status

    async def watch(self, apply: Callable[[Config], None]) -> None:
        """Look until cancelled; `apply` puts into force, in the event loop, what may change."""
        sentinel = FileSentinel((self._path,), LOOK_INTERVAL_S, self._watched)
        try:
            while True:
                await sentinel.changed()
                await self.check(apply)
        finally:
            sentinel.close()

    async def check(self, apply: Callable[[Config], None]) -> ReloadOutcome | None:
        """One look. Returns what became of a new state of the file, None if there is none."""
        try:
            found = await self._work.run(self._look)
        except FileHangs as hangs:
            outcome = self._watched.hangs(hangs, (self._path,))
            if outcome is not None:
                self._log_kept(self.status.last_error)
            return outcome
        if found is None:
            return None
        outcome, loaded = found
        if isinstance(loaded, ConfigError):
            self._log_kept(str(loaded))
        elif loaded is not None:
            self._apply(loaded, apply)
        return outcome

    def _log_kept(self, problems: str) -> None:
        _log.error("configuration_not_applied", file=str(self._path), problems=problems.splitlines()[:20])

    def _look(self) -> tuple[ReloadOutcome, Config | ConfigError | None] | None:
        """Blocks as long as the file system does."""
        watched = self._watched
        seen = identify((self._path,))
        if not watched.wants_reading(seen):
            return None
        now_unix_s = time.time()
        try:
            text = read_text(self._path, "configuration", MAX_SMALL_BYTES)
        except ConfigError as error:
            outcome = watched.take(seen, error, now_unix_s)
            return None if outcome is None else (outcome, error)
        outcome = watched.take(seen, hash_of(text), now_unix_s)
        if outcome is not ReloadOutcome.SUCCESS:
            return None if outcome is None else (outcome, None)
        try:
            config = config_of(parse_yaml(text, str(self._path)), str(self._path), self._environ)
        except ConfigError as error:
            watched.refuse(hash_of(text), error)
            return ReloadOutcome.INVALID, error
        watched.accept(hash_of(text), now_unix_s)
        return ReloadOutcome.SUCCESS, config

    def _apply(self, loaded: Config, apply: Callable[[Config], None]) -> None:
        changed = changed_options(self._config, loaded)
        live = [option for option in changed if option in LIVE_OPTIONS]
        waiting = [option for option in changed if option not in LIVE_OPTIONS]
        file = str(self._path)
        if live:
            merged = with_options(self._config, loaded, live)
            problems = contradictions_of(merged)
            if problems:  # a live option needs another one that waits: none is put in force alone
                _log.warning("configuration_needs_restart", file=file, options=changed, problems=problems)
                return
            self._config = merged
            apply(self._config)
            _log.info("configuration_applied", file=file, options=live, hash=self.status.hash)
        if waiting:
            _log.warning("configuration_needs_restart", file=file, options=waiting)


def changed_options(before: Config, after: Config) -> list[str]:
    """The options, `section.option`, that differ; of listeners only that they do."""
    changed = []
    for section, old in before:
        new = getattr(after, section)
        if old == new:
            continue
        if isinstance(old, tuple) or not hasattr(old, "model_fields_set"):
            changed.append(section)
        else:
            changed += [f"{section}.{name}" for name, value in old if value != getattr(new, name)]
    return changed


def with_options(before: Config, after: Config, options: list[str]) -> Config:
    """`before` with the values that `options` have in `after`."""
    top: dict[str, Any] = {}
    for option in options:
        section, _, name = option.partition(".")
        if not name:
            top[section] = getattr(after, section)
            continue
        old = top.get(section, getattr(before, section))
        top[section] = old.model_copy(update={name: getattr(getattr(after, section), name)})
    return before.model_copy(update=top)
