"""The configuration file while the proxy runs: what can change does, the rest is named, a bad file changes
nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from sluice.proxy.config.config import LIVE_OPTIONS, Config
from sluice.proxy.config.file import load_config
from sluice.proxy.config.watch import ConfigWatch, changed_options, with_options
from sluice.proxy.runtime.watched_file import ReloadOutcome

LISTENER = {"name": "clients", "bind_port": 9092, "upstream_host": "kafka", "upstream_port": 9092}


class Watched:
    """A configuration file, the watch over it, and what was put in force."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None, **sections: Any) -> None:
        self.file = folder / "sluice.yaml"
        self._age_s = 1000.0
        environ = environ or {}
        self.write(**sections)
        self.watch = ConfigWatch(self.file, environ, load_config(self.file, environ))
        self.applied: list[Config] = []
        self.lines: list[Any] = []

    def write(self, text: str | None = None, **sections: Any) -> None:
        """Each time as if it had been a while ago, so that the file has settled."""
        document = {"listeners": [LISTENER], "quotas": {"file": "q.yaml"}, **sections}
        self.file.write_text(yaml.safe_dump(document) if text is None else text)
        self._age_s -= 10.0
        then_s = time.time() - self._age_s
        os.utime(self.file, (then_s, then_s))

    async def check(self) -> ReloadOutcome | None:
        with capture_logs() as lines:
            outcome = await self.watch.check(self.applied.append)
        self.lines = list(lines)
        return outcome


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.asyncio
async def test_nothing_new_is_nothing_to_do(watched: Watched) -> None:
    assert await watched.check() is ReloadOutcome.SUCCESS  # the first look takes in what is in force
    for _ in range(3):
        assert await watched.check() is None
    watched.write()
    assert await watched.check() is ReloadOutcome.UNCHANGED
    assert (watched.applied, watched.lines) == ([], [])


@pytest.mark.asyncio
async def test_what_can_change_does_and_is_named(watched: Watched) -> None:
    await watched.check()
    watched.write(limits={"max_connections": 5, "idle_timeout_s": 60}, log={"level": "warning"})
    assert await watched.check() is ReloadOutcome.SUCCESS
    (config,) = watched.applied
    assert (config.limits.max_connections, config.limits.idle_timeout_s) == (5, 60.0)
    (line,) = watched.lines
    assert line["event"] == "configuration_applied"
    assert sorted(line["options"]) == ["limits.idle_timeout_s", "limits.max_connections", "log.level"]
    assert line["hash"] == watched.watch.status.hash
    watched.write()
    await watched.check()
    assert watched.applied[-1].limits.max_connections == 10_000, "and back"


@pytest.mark.asyncio
async def test_what_cannot_waits_for_a_restart_and_is_named_and_the_rest_is_applied(watched: Watched) -> None:
    await watched.check()
    listener = {**LISTENER, "bind_port": 9999}
    watched.write(
        listeners=[listener],
        limits={"max_connections": 5, "max_sensors": 7, "connections_per_s": 3},
        pacing={"burst_s": 2, "answer_budget_s": 5},
    )
    await watched.check()
    (config,) = watched.applied
    assert config.limits.max_connections == 5
    assert config.pacing.answer_budget_s == 5.0
    assert (config.pacing.burst_s, config.limits.max_sensors) == (1.0, 100_000)
    assert config.listeners[0].bind_port == 9092
    applied, waiting = watched.lines
    assert sorted(applied["options"]) == ["limits.max_connections", "pacing.answer_budget_s"]
    assert waiting["event"] == "configuration_needs_restart"
    assert sorted(waiting["options"]) == [
        "limits.connections_per_s",
        "limits.max_sensors",
        "listeners",
        "pacing.burst_s",
    ]


@pytest.mark.asyncio
async def test_live_options_that_contradict_what_waits_for_a_restart_wait_with_it(tmp_path: Path) -> None:
    """The file is good, and so is what is in force; half of the one with half of the other would not be."""
    watched = Watched(tmp_path, pacing={"answer_budget_s": 2, "max_debt_s": 5})
    await watched.check()
    watched.write(pacing={"answer_budget_s": 15, "max_debt_s": 60}, limits={"max_connections": 5})
    assert await watched.check() is ReloadOutcome.SUCCESS
    assert watched.applied == []
    (line,) = watched.lines
    assert line["event"] == "configuration_needs_restart"
    assert sorted(line["options"]) == [
        "limits.max_connections",
        "pacing.answer_budget_s",
        "pacing.max_debt_s",
    ]
    (problem,) = line["problems"]
    assert problem.startswith("pacing.max_debt_s: must be at least answer_budget_s (15), ")
    assert "is 5" in problem
    watched.write(pacing={"answer_budget_s": 4, "max_debt_s": 60}, limits={"max_connections": 6})
    await watched.check()
    (config,) = watched.applied
    assert (config.pacing.answer_budget_s, config.pacing.max_debt_s) == (4.0, 5.0)
    assert config.limits.max_connections == 6
    assert [one["event"] for one in watched.lines] == ["configuration_applied", "configuration_needs_restart"]


@pytest.mark.asyncio
async def test_live_options_that_only_fit_together_are_taken_together(watched: Watched) -> None:
    await watched.check()
    together = {"max_frame_bytes": 300_000, "max_frame_bytes_before_authentication": 200_000}
    watched.write(limits=together)
    await watched.check()
    (config,) = watched.applied
    assert config.limits.max_frame_bytes_before_authentication == 200_000


@pytest.mark.asyncio
async def test_only_what_needs_a_restart_applies_nothing(watched: Watched) -> None:
    await watched.check()
    watched.write(admin={"bind_port": 1234})
    await watched.check()
    assert watched.applied == []
    assert [line["event"] for line in watched.lines] == ["configuration_needs_restart"]
    assert watched.lines[0]["options"] == ["admin.bind_port"]


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        ("listeners: [", ReloadOutcome.INVALID, "sluice.yaml"),
        ("listeners: []\nquotas: {file: q}", ReloadOutcome.INVALID, "listeners"),
        ("limits: {max_conections: 5}", ReloadOutcome.INVALID, "did you mean max_connections"),
        (None, ReloadOutcome.UNREADABLE, "cannot read"),
    ],
)
@pytest.mark.asyncio
async def test_a_bad_file_changes_nothing_is_said_once_and_counted(
    watched: Watched, text: str | None, outcome: ReloadOutcome, said: str
) -> None:
    await watched.check()
    if text is None:
        watched.file.unlink()
    else:
        watched.write(text)
    assert await watched.check() is outcome
    (line,) = watched.lines
    assert line["event"] == "configuration_not_applied"
    assert said in str(line["problems"])
    assert await watched.check() is None
    assert watched.applied == []
    assert watched.watch.status.outcomes[outcome] == 1
    watched.write(limits={"max_connections": 5})
    assert await watched.check() is ReloadOutcome.SUCCESS
    assert len(watched.applied) == 1
    assert watched.watch.status.last_error == ""


@pytest.mark.asyncio
async def test_variables_stay_what_they_were(tmp_path: Path) -> None:
    watched = Watched(tmp_path, {"SLUICE_LIMITS__MAX_CONNECTIONS": "9"})
    await watched.check()
    watched.write(limits={"max_connections": 5, "idle_timeout_s": 60})
    await watched.check()
    (config,) = watched.applied
    assert config.limits.max_connections == 9
    assert watched.lines[0]["options"] == ["limits.idle_timeout_s"]


def test_every_option_that_is_said_to_change_exists() -> None:
    for option in LIVE_OPTIONS:
        section, _, name = option.partition(".")
        inner = Config.model_fields[section].annotation
        assert not name or name in inner.model_fields, option  # type: ignore[union-attr]


def test_what_has_changed_is_put_together_from_both(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    before = load_config(watched.file, {})
    watched.write(
        unknown_apis="close", drain={"deadline_s": 3}, limits={"max_connections": 1, "max_sensors": 2}
    )
    after = load_config(watched.file, {})
    changed = changed_options(before, after)
    assert sorted(changed) == [
        "drain.deadline_s",
        "limits.max_connections",
        "limits.max_sensors",
        "unknown_apis",
    ]
    some = with_options(before, after, ["unknown_apis", "limits.max_connections"])
    assert changed_options(before, some) == ["limits.max_connections", "unknown_apis"]
    assert with_options(before, after, changed) == after
