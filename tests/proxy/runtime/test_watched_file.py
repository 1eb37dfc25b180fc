"""What is told of a followed file after each look."""

from __future__ import annotations

from pathlib import Path

from sluice.proxy.runtime.watched_file import FileIdentity, ReloadOutcome, WatchedFiles
from sluice.quotas.files.config_error import ConfigError, Problem

FIRST, SECOND = ((FileIdentity("/q", inode, 1, 0),) for inode in (1, 2))


def test_content_that_was_refused_before_a_hang_is_told_as_refused_after_it() -> None:
    watched = WatchedFiles()
    watched.take(FIRST, "good", 10.0)
    watched.accept("good", 10.0)
    watched.take(SECOND, "bad", 20.0)
    watched.refuse("bad", ConfigError([Problem("unknown key", source="/q", line=9)]))
    refusal = watched.status.last_error
    assert watched.hangs(TimeoutError("no answer"), [Path("/q")]) is ReloadOutcome.HANGING
    assert "no answer" in watched.status.last_error
    assert watched.wants_reading(SECOND)
    assert watched.take(SECOND, "bad", 40.0) is None
    assert watched.status.last_error == refusal
