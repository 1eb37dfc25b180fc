"""The configuration file while the proxy runs: what can change does, the rest is named, a bad file changes
nothing."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from sluice.proxy.config.config import LIVE_OPTIONS, Config
from sluice.proxy.config.file import load_config
from sluice.proxy.config.watch import ConfigWatch, changed_options, with_options
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.exposition import exposition
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime import watched_file
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.watched_file import ReloadOutcome, ReloadStatus
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder

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


@pytest.mark.parametrize(
    "bad",
    ["listeners: [", None, {"admin": {"bind_port": 1234}}],
    ids=["refused", "unreadable", "needs a restart"],
)
@pytest.mark.parametrize("put_back", ["as it was", "with a comment"])
@pytest.mark.asyncio
async def test_who_puts_the_file_back_is_told_that_it_is_in_force_again(
    watched: Watched, bad: str | dict[str, Any] | None, put_back: str
) -> None:
    await watched.check()
    good = watched.file.read_text()
    if bad is None:
        watched.file.unlink()
    elif isinstance(bad, str):
        watched.write(bad)
    else:
        watched.write(**bad)
    await watched.check()
    for expected in (["configuration_in_force_again"], []):
        watched.write(good if put_back == "as it was" else f"# {expected}\n{good}")
        await watched.check()
        assert [line["event"] for line in watched.lines] == expected
    assert watched.applied == []


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


SECTIONS_THAT_MAY_BE_LEFT_OUT: dict[str, Any] = {
    "access_log": {"directory": {"path": "log"}},
    "inter_broker": {"listeners": ["clients"]},
    "replication": {"listener": "clients", "leader_id": 1, "bootstrap": ["kafka:9093"]},
}


@pytest.mark.parametrize("section", SECTIONS_THAT_MAY_BE_LEFT_OUT)
@pytest.mark.asyncio
async def test_a_section_that_is_taken_out_waits_and_does_not_hold_up_the_rest(
    tmp_path: Path, section: str
) -> None:
    written: dict[str, Any] = {section: SECTIONS_THAT_MAY_BE_LEFT_OUT[section]}
    watched = Watched(tmp_path, **written)
    await watched.check()
    watched.write(limits={"max_connections": 5})
    assert await watched.check() is ReloadOutcome.SUCCESS
    assert [config.limits.max_connections for config in watched.applied] == [5]
    assert [line["options"] for line in watched.lines] == [["limits.max_connections"], [section]]
    watched.write(limits={"max_connections": 6}, **written)
    await watched.check()
    assert [line["options"] for line in watched.lines] == [["limits.max_connections"]], "and back"


@pytest.mark.asyncio
async def test_a_default_that_yields_is_another_setting_when_it_is_written_out(watched: Watched) -> None:
    await watched.check()
    for limits, is_set in (({"max_connections_per_user": 5_000}, True), ({}, False)):
        watched.write(limits=limits)
        await watched.check()
        assert [line["options"] for line in watched.lines] == [["limits.max_connections_per_user"]]
        assert watched.applied[-1].limits.is_set("max_connections_per_user") is is_set


# What cannot be put in force -------------------------------------------------------------------------------


class Failing:
    """What puts a configuration in force, half of it where it fails."""

    def __init__(self, *fails: bool) -> None:
        self._fails = list(fails)
        self.in_force: list[int | None] = [10_000, 10_000]

    def __call__(self, config: Config) -> None:
        self.in_force[0] = config.limits.max_connections
        if self._fails and self._fails.pop(0):
            raise RuntimeError("boom")
        self.in_force[1] = config.limits.max_connections


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at the next look."""
    monkeypatch.setattr(watched_file, "AGAIN_S", 0.0)


@pytest.mark.asyncio
async def test_what_cannot_be_put_in_force_is_told_as_refused_and_what_was_stays(watched: Watched) -> None:
    await watched.check()
    status, before = watched.watch.status, watched.watch.status.hash
    watched.write(limits={"max_connections": 5})
    failing = Failing(True)
    with capture_logs() as lines:
        assert await watched.watch.check(failing) is ReloadOutcome.INVALID
    assert [line["event"] for line in lines] == ["configuration_not_applied"]
    assert isinstance(lines[0]["exc_info"], RuntimeError)
    assert failing.in_force == [10_000, 10_000]
    assert "sluice.yaml: could not be put in force: RuntimeError('boom')" in status.last_error
    assert (status.hash, status.outcomes[ReloadOutcome.INVALID]) == (before, 1)
    assert await refused(status) == "1.0"
    assert await watched.watch.check(failing) is None, "not at once"
    assert await refused(status) == "1.0"
    watched.write()
    assert await watched.watch.check(failing) is ReloadOutcome.UNCHANGED
    assert await refused(status) == "0.0"


async def refused(status: ReloadStatus) -> str:
    """As the metric tells it."""
    quotas = QuotaManager(QuotaLimits())
    reloads = {"configuration": [status]}
    collector = SluiceCollector(UsageMeter(Recorder(), quotas), quotas, Gauges(), reloads)
    page, _ = await exposition(collector, "")
    (found,) = re.findall(r'^sluice_config_refused{file="configuration"} (\S+)$', page.decode(), re.MULTILINE)
    return str(found)


@pytest.mark.asyncio
@pytest.mark.usefixtures("at_once")
async def test_what_could_not_be_put_in_force_is_tried_again_and_so_is_each_other_content(
    watched: Watched,
) -> None:
    await watched.check()
    watched.write(limits={"max_connections": 5})
    failing = Failing(True, False, True, False, False)
    for _ in range(2):
        assert await watched.watch.check(failing) is ReloadOutcome.INVALID
        assert not watched.watch._watched.is_at_rest, "or nobody would look again"
    assert await watched.watch.check(failing) is ReloadOutcome.SUCCESS
    assert failing.in_force == [5, 5]
    assert watched.watch.status.last_error == ""
    assert await watched.watch.check(failing) is None


@pytest.mark.asyncio
async def test_the_file_as_it_was_is_put_in_force_where_only_half_of_it_is(watched: Watched) -> None:
    """What was in force could not be restored either."""
    await watched.check()
    watched.write(limits={"max_connections": 5})
    failing = Failing(True, True)
    assert await watched.watch.check(failing) is ReloadOutcome.INVALID
    failing.in_force = [5, 10_000]
    watched.write()
    assert await watched.watch.check(failing) is ReloadOutcome.SUCCESS
    assert failing.in_force == [10_000, 10_000]
    assert watched.watch.status.last_error == ""
