"""The copy of the quota topic on disk: kept whole, read again, and refused where it is none."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from sluice.proxy.config.quotas import QuotaOptions, QuotaTopicOptions
from sluice.proxy.quota_store import source as quota_source
from sluice.proxy.quota_store.source import QuotaSource
from sluice.proxy.quota_store.topic_copy import Copied, QuotaCopy
from sluice.proxy.quota_store.topic_records import Stored
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.local_proxy import until

COPIED = Copied(
    {
        QuotaEntity("alice", DEFAULT): Stored({"producer_byte_rate": 5}, frozenset({"producer_byte_rate"})),
        QuotaEntity(ip="::1"): Stored({"connection_creation_rate": 9}),
    },
    bytes(range(16)),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "copy.json"
    QuotaCopy(file, "quotas").write(COPIED)
    assert QuotaCopy(file, "quotas").read() == COPIED
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_at_the_very_first_there_is_none(tmp_path: Path) -> None:
    assert QuotaCopy(tmp_path / "copy.json", "quotas").read() is None


@pytest.mark.parametrize("damage", ["cut", "changed", "other_version", "empty", "binary", "list"])
def test_one_that_is_damaged_is_moved_aside_and_not_believed(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "copy.json"
    QuotaCopy(file, "quotas").write(COPIED)
    text = file.read_bytes()
    outer = json.loads(text)
    file.write_bytes(
        {
            "cut": text[:-20],
            "changed": text.replace(b"alice", b"mallo"),
            "other_version": json.dumps({**outer, "version": 2}).encode(),
            "empty": b"",
            "binary": b"\xff\xfe",
            "list": b"[]",
        }[damage]
    )
    assert QuotaCopy(file, "quotas").read() is None
    assert not file.exists()
    assert (tmp_path / "copy.json.refused").exists()


def test_an_entry_that_an_earlier_version_took_is_left_out_and_the_others_hold(tmp_path: Path) -> None:
    file = tmp_path / "copy.json"
    zoned = QuotaEntity(ip="fe80::1%lo"), QuotaEntity(ip="::ffff:7f00:1")
    limits = Stored({"connection_creation_rate": 5})
    QuotaCopy(file, "quotas").write(Copied({**dict.fromkeys(zoned, limits), **COPIED.entries}))
    assert QuotaCopy(file, "quotas").read() == Copied(COPIED.entries)


def test_one_of_another_topic_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "copy.json"
    QuotaCopy(file, "quotas").write(COPIED)
    assert QuotaCopy(file, "other").read() is None


def test_a_place_where_none_can_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="copy_file"):
        QuotaCopy(tmp_path / "nowhere" / "copy.json", "quotas")


# When it is written -----------------------------------------------------------------------------------------

BOB = QuotaEntity("bob")


class Disk:
    """In the place of a QuotaCopy: may fail, and may take its time."""

    def __init__(self) -> None:
        self.fails = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.begun = 0
        self.written: list[Copied] = []

    def write(self, copied: Copied) -> None:
        self.begun += 1
        assert self.may_go_on.wait(30.0)
        if self.fails:
            raise OSError(28, "No space left on device")
        self.written.append(copied)


class Kept:
    """A source whose topic has been read, with one entity, and a disk for its copy."""

    def __init__(self, folder: Path) -> None:
        options = QuotaTopicOptions(bootstrap=("127.0.0.1:1",), copy_file=folder / "copy.json")
        self.source = QuotaSource(QuotaOptions(source="topic", topic=options))
        self.limits = cast(Any, self.source.topic)
        self.disk = self.limits._copy = Disk()
        self.limits.topic.is_known = True
        self.sets(1.0)

    def sets(self, rate: float) -> None:
        self.limits.topic._log.entries[BOB] = Stored({"producer_byte_rate": rate})
        self.limits._changed()

    @property
    def rates(self) -> list[float]:
        return [copied.entries[BOB].limits["producer_byte_rate"] for copied in self.disk.written]


@pytest.mark.asyncio
async def test_after_a_failure_the_copy_is_written_again_without_another_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_source, "_COPY_AGAIN_S", 0.01, raising=False)
    kept = Kept(tmp_path)
    kept.disk.fails = True
    task = asyncio.ensure_future(kept.limits._keep_copy())
    await until(lambda: kept.disk.begun >= 2)
    kept.disk.fails = False
    await until(lambda: kept.rates == [1.0])
    task.cancel()


@pytest.mark.asyncio
async def test_a_copy_that_failed_is_written_at_the_end(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.disk.fails = True
    assert not await kept.limits.keep()
    kept.disk.fails = False
    for _ in range(2):
        await kept.source.close()
        assert kept.rates == [1.0]


@pytest.mark.asyncio
async def test_what_is_kept_and_not_in_force_yet_is_in_the_copy_that_is_written_at_the_end(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    assert await kept.limits.keep()
    kept.sets(2.0)
    await kept.source.close()
    assert kept.rates == [1.0, 2.0]
    assert BOB not in kept.source.limits.entries


@pytest.mark.asyncio
async def test_what_a_file_adds_has_no_copy_written(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert await kept.limits.keep()
    kept.limits.add_file(QuotaLimits())
    await kept.source.close()
    assert kept.rates == [1.0]


@pytest.mark.asyncio
async def test_at_the_end_the_last_state_is_written_behind_a_copy_under_way(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.disk.may_go_on.clear()
    task = asyncio.ensure_future(kept.limits._keep_copy())
    await until(lambda: kept.disk.begun == 1)
    kept.sets(2.0)
    task.cancel()
    end = asyncio.ensure_future(kept.source.close())
    await asyncio.sleep(0)
    kept.disk.may_go_on.set()
    await end
    assert kept.rates == [1.0, 2.0]
