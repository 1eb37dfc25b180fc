"""A changed quota file is in force at once, and a bad one never loses good limits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import structlog

from sluice.proxy.quota_store.file_watch import QuotaFile
from sluice.proxy.runtime import watched_file
from sluice.proxy.runtime.watched_file import ReloadOutcome, hash_of
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.quota_texts import BAD, GOOD, OTHER

pytestmark = pytest.mark.usefixtures("log_lines")


class Proxy:
    """A quota file that was loaded, and what a proxy that follows it has in force."""

    def __init__(self, path: Path) -> None:
        self.file = QuotaFile(path)
        self.limits = self.file.load()
        self.applied = 0

    def apply(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self.applied += 1

    def look(self) -> ReloadOutcome | None:
        return asyncio.run(self.file.check(self.apply))

    @property
    def rate(self) -> float | None:
        match = self.limits.resolve(QuotaKind.PRODUCE, "alice", "app-1")
        return match.limit if match else None

    def counts(self) -> dict[str, int]:
        return {str(outcome): count for outcome, count in self.file.status.outcomes.items() if count}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(GOOD)
    settle(file, 1)
    return file


def settle(file: Path, when: int) -> None:
    """Make the file look written long ago, at a time of its own."""
    os.utime(file, (when, when))


def rewrite(file: Path, text: str, when: int) -> None:
    file.write_text(text)
    settle(file, when)


def test_a_changed_file_puts_its_limits_in_force(path: Path) -> None:
    proxy = Proxy(path)
    assert proxy.rate == 1048576
    rewrite(path, OTHER, 2)
    assert proxy.look() is ReloadOutcome.SUCCESS
    assert proxy.rate == 2000000
    assert proxy.file.status.hash == hash_of(OTHER)
    assert proxy.counts() == {"success": 2}


def test_an_unchanged_file_is_not_even_read(path: Path) -> None:
    proxy = Proxy(path)
    path.write_text(GOOD.replace("1048576", "1048577"))  # same size; and the same time, inode and path:
    settle(path, 1)
    assert proxy.look() is None
    assert proxy.applied == 0


def test_a_file_written_twice_within_its_clocks_tick_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "SETTLED_S", 3600.0)  # however slow the machine is
    path.write_text(GOOD)
    proxy = Proxy(path)
    before = path.stat()
    path.write_text(GOOD.replace("1048576", "1048577"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert proxy.look() is ReloadOutcome.SUCCESS
    assert proxy.rate == 1048577


def test_a_file_written_anew_with_the_content_in_force_is_counted_but_changes_nothing(path: Path) -> None:
    proxy = Proxy(path)
    since_s = proxy.file.status.last_success_unix_s
    settle(path, 2)
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNCHANGED, None]
    assert proxy.applied == 0
    assert proxy.counts() == {"success": 1, "unchanged": 1}
    assert proxy.file.status.last_success_unix_s > since_s


def test_a_young_file_is_read_again_but_its_state_is_counted_once(path: Path) -> None:
    path.write_text(GOOD)
    proxy = Proxy(path)
    assert [proxy.look(), proxy.look()] == [None, None]
    path.write_bytes(b"\xff")
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNREADABLE, None]
    assert proxy.counts() == {"success": 1, "unreadable": 1}


def test_each_new_trouble_is_counted(path: Path) -> None:
    proxy = Proxy(path)
    rewrite(path, BAD, 2)
    outcomes = [proxy.look()]
    path.unlink()
    outcomes.append(proxy.look())
    rewrite(path, BAD, 3)
    outcomes.append(proxy.look())
    assert outcomes == [ReloadOutcome.INVALID, ReloadOutcome.UNREADABLE, ReloadOutcome.INVALID]


def test_a_swapped_configmap_link_is_noticed(tmp_path: Path) -> None:
    # As the kubelet does it: quotas.yaml -> ..data/quotas.yaml, ..data -> ..<time>, and ..data is exchanged.
    for version, text in (("..1", GOOD), ("..2", OTHER)):
        (tmp_path / version).mkdir()
        rewrite(tmp_path / version / "quotas.yaml", text, 1)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "quotas.yaml").symlink_to("..data/quotas.yaml")
    proxy = Proxy(tmp_path / "quotas.yaml")
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert proxy.look() is ReloadOutcome.SUCCESS
    assert proxy.rate == 2000000


def test_a_bad_file_keeps_the_last_good_limits_and_is_counted_and_logged_once(
    path: Path,
    log_lines: list[structlog.typing.EventDict],
) -> None:
    proxy = Proxy(path)
    rewrite(path, BAD, 2)
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.INVALID, None]
    settle(path, 3)
    assert proxy.look() is None
    assert proxy.rate == 1048576
    assert proxy.counts() == {"success": 1, "invalid": 1}
    assert proxy.file.status.hash == hash_of(GOOD)
    assert "quotas[0].producer_byte_rate" in proxy.file.status.last_error
    assert [line["event"] for line in log_lines] == ["quotas_not_applied"]
    assert "quotas.yaml:4: quotas[0].producer_byte_rate" in log_lines[0]["problems"][0]


def test_a_refused_file_that_is_put_back_as_it_was_is_told(
    path: Path, log_lines: list[structlog.typing.EventDict]
) -> None:
    """Whoever mended it looks into the log for an answer."""
    proxy = Proxy(path)
    outcomes = []
    for version, text in enumerate((BAD, GOOD, GOOD), start=2):
        rewrite(path, text, version)
        outcomes.append(proxy.look())
    assert outcomes == [ReloadOutcome.INVALID, ReloadOutcome.UNCHANGED, ReloadOutcome.UNCHANGED]
    assert [line["event"] for line in log_lines] == ["quotas_not_applied", "quotas_in_force_again"]
    assert log_lines[1]["hash"] == hash_of(GOOD)


def test_a_file_with_very_many_errors_makes_one_bounded_log_line(
    path: Path, log_lines: list[structlog.typing.EventDict]
) -> None:
    proxy = Proxy(path)
    rewrite(path, "quotas:\n" + "  - user:\n    producer_byte_rate: 1\n" * 25, 2)
    proxy.look()
    (line,) = log_lines
    assert (len(line["problems"]), line["problems_not_shown"]) == (20, 5)


def test_a_missing_file_keeps_the_last_good_limits_and_is_counted_once(path: Path) -> None:
    proxy = Proxy(path)
    path.unlink()
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNREADABLE, None]
    assert proxy.rate == 1048576
    assert proxy.counts() == {"success": 1, "unreadable": 1}


def test_a_new_reason_for_which_nothing_is_there_is_told(path: Path) -> None:
    proxy = Proxy(path)
    path.unlink()
    path.symlink_to(path)
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNREADABLE, None]
    assert "too many levels" in proxy.file.status.last_error
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNREADABLE, None]
    assert "no such file" in proxy.file.status.last_error


@pytest.mark.parametrize("trouble", ["missing", "bad"])
def test_the_good_content_come_back_clears_the_error_without_a_reload(path: Path, trouble: str) -> None:
    proxy = Proxy(path)
    path.unlink() if trouble == "missing" else rewrite(path, BAD, 2)
    proxy.look()
    assert proxy.file.status.last_error
    rewrite(path, GOOD, 3)
    assert proxy.look() is ReloadOutcome.UNCHANGED
    assert proxy.file.status.last_error == ""
    assert proxy.applied == 0


def test_the_same_bad_content_after_a_good_one_is_refused_anew(path: Path) -> None:
    proxy = Proxy(path)
    outcomes = []
    for when, text in enumerate((BAD, OTHER, BAD, GOOD), start=2):
        rewrite(path, text, when)
        outcomes.append(str(proxy.look()))
    assert outcomes == ["invalid", "success", "invalid", "success"]
    assert proxy.rate == 1048576


def test_a_file_that_is_not_utf_8_is_unreadable(path: Path) -> None:
    proxy = Proxy(path)
    path.write_bytes(b"\xff\xfe")
    assert proxy.look() is ReloadOutcome.UNREADABLE
    assert "not UTF-8" in proxy.file.status.last_error


def test_limits_that_cannot_be_put_in_force_are_told_as_refused_and_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(path)
    rewrite(path, OTHER, 2)
    fails = [True, False]

    def apply(limits: QuotaLimits) -> None:
        proxy.apply(limits)
        if fails and fails.pop(0):
            raise RuntimeError("boom")

    assert asyncio.run(proxy.file.check(apply)) is ReloadOutcome.INVALID
    assert (proxy.rate, proxy.applied) == (1048576, 2), "what was in force is so again"
    assert "could not be put in force: RuntimeError('boom')" in proxy.file.status.last_error
    assert proxy.file.status.hash == hash_of(GOOD)
    assert asyncio.run(proxy.file.check(apply)) is None, "not at once"
    monkeypatch.setattr(watched_file, "AGAIN_S", 0.0)
    for text, when in ((GOOD, 3), (OTHER, 4)):
        rewrite(path, text, when)
        fails = [text == OTHER, False]
        outcome = asyncio.run(proxy.file.check(apply))
    assert outcome is ReloadOutcome.INVALID
    assert asyncio.run(proxy.file.check(apply)) is ReloadOutcome.SUCCESS
    assert (proxy.rate, proxy.file.status.last_error) == (2000000, "")
    assert asyncio.run(proxy.file.check(apply)) is None


def test_the_watch_goes_on_looking_until_it_is_cancelled(path: Path) -> None:
    async def follow() -> float | None:
        proxy = Proxy(path)
        changed = asyncio.Event()

        def apply(limits: QuotaLimits) -> None:
            proxy.apply(limits)
            changed.set()

        watch = asyncio.ensure_future(proxy.file.watch(0.001, apply))
        for when, text in ((2, OTHER), (3, GOOD), (4, OTHER)):
            rewrite(path, text, when)
            await changed.wait()
            changed.clear()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        return proxy.rate

    assert asyncio.run(follow()) == 2000000


def test_the_event_loop_runs_between_the_steps_of_a_large_file(path: Path) -> None:
    text = "quotas:\n" + "".join(
        f"  - user: user-{index}\n    producer_byte_rate: {index + 1}\n" for index in range(1000)
    )

    async def turns_while_reloading() -> int:
        proxy = Proxy(path)
        rewrite(path, text, 2)
        check = asyncio.ensure_future(proxy.file.check(proxy.apply))
        turns = 0
        while not check.done():
            turns += 1
            await asyncio.sleep(0)
        assert check.result() is ReloadOutcome.SUCCESS
        return turns

    assert asyncio.run(turns_while_reloading()) > 25
