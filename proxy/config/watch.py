"""Follows the configuration file: what can change while traffic flows does, the rest waits for a restart.

On an error the configuration in force stays. When the file has changed is decided in runtime/watched_file.py.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sluice.proxy.config.config import LIVE_OPTIONS, Config, contradictions_of
from sluice.proxy.config.file import config_of
from sluice.proxy.config.options import Options
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


class _Looked(NamedTuple):
    """What a look has found."""

    outcome: ReloadOutcome
    loaded: Config | ConfigError | None = None
    """what is to be used, or why nothing is"""
    hash: str = ""
    """of the content that is to be used"""


class ConfigWatch:
    """Follows the file that the process was started with; variables stay what they were."""

    def __init__(self, path: Path, environ: Mapping[str, str], config: Config) -> None:
        """`config`: in force, as it was read from the file just now."""
        self._path = path
        self._environ = environ
        self._config = config
        self._watched = WatchedFiles()
        self._is_mixed = False  # what is in force is not all of one file: putting it in force failed halfway
        self._waits = False  # the file last said something that waits for a restart
        self._work: FileWork[_Looked | None] = FileWork()

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
        if isinstance(found.loaded, ConfigError):
            self._log_kept(str(found.loaded))
        elif found.loaded is not None:
            return self._take(found.loaded, found.hash, apply)
        elif found.outcome is ReloadOutcome.UNCHANGED and self.status.is_back:
            self._log_in_force_again(self.status.hash)
        return found.outcome

    def _log_in_force_again(self, content_hash: str) -> None:
        _log.info("configuration_in_force_again", file=str(self._path), hash=content_hash)

    def _log_kept(self, problems: str, error: Exception | None = None) -> None:
        _log.error(
            "configuration_not_applied",
            file=str(self._path),
            problems=problems.splitlines()[:20],
            exc_info=error,
        )

    def _look(self) -> _Looked | None:
        """Blocks as long as the file system does."""
        watched = self._watched
        seen = identify((self._path,))
        now_unix_s = time.time()
        if not watched.wants_reading(seen, now_unix_s):
            return None
        try:
            text = read_text(self._path, "configuration", MAX_SMALL_BYTES)
        except ConfigError as error:
            outcome = watched.take(seen, error, now_unix_s)
            return None if outcome is None else _Looked(outcome, error)
        outcome = watched.take(seen, hash_of(text), now_unix_s)
        if outcome is not ReloadOutcome.SUCCESS:
            return None if outcome is None else _Looked(outcome)
        try:
            config = config_of(parse_yaml(text, str(self._path)), str(self._path), self._environ)
        except ConfigError as error:
            watched.refuse(hash_of(text), error)
            return _Looked(ReloadOutcome.INVALID, error)
        return _Looked(ReloadOutcome.SUCCESS, config, hash_of(text))

    def _take(self, loaded: Config, content_hash: str, apply: Callable[[Config], None]) -> ReloadOutcome:
        try:
            self._apply(loaded, content_hash, apply)
        except Exception as error:
            self._restore(apply)
            outcome = self._watched.not_applied(content_hash, self._path, error, time.time())
            self._log_kept(self.status.last_error, error)
            return outcome
        self._watched.accept(content_hash, time.time())
        return ReloadOutcome.SUCCESS

    def _restore(self, apply: Callable[[Config], None]) -> None:
        """What was in force before, of which half may have been changed."""
        try:
            apply(self._config)
        except Exception:
            self._is_mixed = True
            self.status.hash = ""  # so that the file as it was before is new, too

    def _apply(self, loaded: Config, content_hash: str, apply: Callable[[Config], None]) -> None:
        change = change_of(self._config, loaded)
        if change.live or self._is_mixed:
            apply(change.config)
            self._config, self._is_mixed = change.config, False
        file = str(self._path)
        if change.live:
            _log.info("configuration_applied", file=file, options=change.live, hash=content_hash)
        if change.waiting:
            why = {"problems": change.problems} if change.problems else {}
            _log.warning("configuration_needs_restart", file=file, options=change.waiting, **why)
        elif not change.live and (self._waits or self.status.last_error):
            self._log_in_force_again(content_hash)
        self._waits = bool(change.waiting)


class Change(NamedTuple):
    """What a file that has changed means while traffic flows."""

    config: Config
    """to be in force now"""
    live: list[str]
    """the options that it brings"""
    waiting: list[str]
    """those that need a restart"""
    problems: list[str]
    """why all of them do, though some would not by themselves"""


def change_of(in_force: Config, loaded: Config) -> Change:
    """From what is in force and what the file says to what can be done about it."""
    changed = changed_options(in_force, loaded)
    live = [option for option in changed if option in LIVE_OPTIONS]
    merged = with_options(in_force, loaded, live)
    problems = contradictions_of(merged)
    if problems:  # a live option needs another one that waits: none is put in force alone
        return Change(in_force, [], changed, problems)
    return Change(merged, live, [option for option in changed if option not in LIVE_OPTIONS], [])


def changed_options(before: Config, after: Config) -> list[str]:
    """The options, `section.option`, that differ; of listeners, and of a section that only one has, only that
    they do."""
    changed = []
    for section, old in before:
        new = getattr(after, section)
        if isinstance(old, Options) and isinstance(new, Options):
            changed += [f"{section}.{name}" for name, _ in old if old.setting(name) != new.setting(name)]
        elif old != new:
            changed.append(section)
    return changed


def with_options(before: Config, after: Config, options: list[str]) -> Config:
    """`before` with the values that `options` have in `after`."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for option in options:
        section, _, name = option.partition(".")
        names[section].add(name)
    return before.model_copy(
        update={
            section: new if "" in inner else _with(getattr(before, section), new, inner)
            for section, inner in names.items()
            for new in (getattr(after, section),)
        }
    )


def _with(before: Options, after: Options, names: set[str]) -> Options:
    """As set as they are in `after`, too: `model_copy` counts all that it is given as set."""
    is_set = (before.model_fields_set - names) | (after.model_fields_set & names)
    values = {name: getattr(after if name in names else before, name) for name in type(before).model_fields}
    return before.model_construct(is_set, **values)
