"""A record of the access log's topic is a file of the log, or is none: nothing is written elsewhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from sluice.proxy.access_log.columns import FilePart, encoded
from sluice.proxy.access_log.fetch import BrokersSilent, fetch_to_end, file_of
from sluice.proxy.access_log.sinks.directory import WRITING, DirectorySink
from sluice.proxy.access_log.sinks.sink import DirectorySettings
from sluice.usage.access_record import ROLLUP
from testkit.access_log.access_rows import columns, read, rows
from testkit.processes.ports import free_ports

SLUICE = Path(sys.executable).with_name("sluice")
FOLDER = "rollup/date=2026-11-20/hour=10"
NAME = "proxy-1-0a1b2c3d-20261120T105958Z-000001.parquet"


def content() -> bytes:
    part = FilePart(ROLLUP)
    part.add(columns(rows(3)))
    return bytes(encoded(ROLLUP, part.finish()))


def headers(**told: str) -> list[tuple[str, bytes]]:
    given = {"table": ROLLUP, "folder": FOLDER, "name": NAME, "rows": "3", **told}
    return [(key, value.encode()) for key, value in given.items()]


def test_a_record_that_the_sink_wrote_is_a_file() -> None:
    file = file_of(headers(), content())
    assert file is not None
    assert (file.table, file.folder, file.name, file.rows) == (ROLLUP, FOLDER, NAME, 3)
    assert len(read(bytes(file.data))) == 3


@pytest.mark.parametrize(
    "told",
    [
        {"folder": "../../etc"},
        {"folder": f"{FOLDER}/.."},
        {"folder": f"/{FOLDER}"},
        {"folder": f"x/{FOLDER}"},
        {"folder": f"{FOLDER}\n"},
        {"folder": "plans/date=2026-11-20/hour=10"},
        {"folder": ""},
        {"name": "../x.parquet"},
        {"name": ".x.parquet"},
        {"name": "_x.parquet"},
        {"name": "a/b.parquet"},
        {"name": "x.parquet\n"},
        {"name": "x.parquet.part"},
        {"name": "x" * 300 + ".parquet"},
        {"name": ""},
    ],
)
def test_a_record_that_names_another_place_is_none(told: dict[str, str]) -> None:
    assert file_of(headers(**told), content()) is None


@pytest.mark.parametrize("value", [None, b"", b"PAR1PAR1", b'{"json": 1}', content()[:-1], content()[1:]])
def test_a_record_that_is_no_whole_parquet_is_none(value: bytes | None) -> None:
    assert file_of(headers(), value) is None


@pytest.mark.parametrize("left", [f"{NAME}.part", f"{NAME}.0a1b2c3d.part"])
def test_a_part_that_a_killed_fetch_has_left_is_replaced(left: str, tmp_path: Path) -> None:
    """The next fetch failed at it, and the night behind that one had no log."""
    file = file_of(headers(), content())
    assert file is not None
    writing = tmp_path / WRITING
    writing.mkdir()
    (writing / left).write_bytes(content()[:10])
    (writing / f"x{left}").write_bytes(b"of another file")
    DirectorySink(DirectorySettings(tmp_path)).write(file)
    assert (tmp_path / FOLDER / NAME).read_bytes() == content()
    assert [path.name for path in writing.iterdir()] == [f"x{left}"]


def test_of_two_fetches_at_once_none_puts_half_a_file_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins and ends while the first, which has written its part, is about to rename it."""
    file = file_of(headers(), content())
    assert file is not None
    first, second = (DirectorySink(DirectorySettings(tmp_path)) for _ in range(2))
    rename, seen = os.replace, []

    def second_meanwhile(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", rename)
        second.write(file)
        seen.append(target.read_bytes())
        rename(source, target)

    monkeypatch.setattr(os, "replace", second_meanwhile)
    with pytest.raises(FileNotFoundError):
        first.write(file)
    assert seen == [content()]
    assert (tmp_path / FOLDER / NAME).read_bytes() == content()
    assert list((tmp_path / WRITING).iterdir()) == []


def test_a_record_without_headers_is_none() -> None:
    assert file_of([], content()) is None


@pytest.mark.parametrize("told", ["", "many", "-1", "9" * 30])
def test_a_count_that_is_none_costs_no_file(told: str) -> None:
    file = file_of(headers(rows=told), content())
    assert file is not None
    assert file.rows == 0


ONE, OTHER = TopicPartition("log", 0), TopicPartition("log", 1)


class _Leaderless:
    """An aiokafka consumer of a topic of two records a partition; `OTHER` has no leader, and the answer that
    `silent` names does not come."""

    def __init__(self, silent: str) -> None:
        self._silent = silent
        self._at = {ONE: 0, OTHER: 0}
        self.committed: list[int] = []

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2)

    async def position(self, partition: TopicPartition) -> int:
        await self._answers("position")
        return self._at[partition]

    async def getmany(self, *partitions: TopicPartition, **_: int) -> dict[TopicPartition, list[str]]:
        await self._answers("getmany")
        if ONE not in partitions:
            await asyncio.sleep(0)
            return {}
        self._at[ONE] += 1
        return {ONE: [f"record {self._at[ONE]}"]}

    async def commit(self) -> None:
        await self._answers("commit")
        self.committed.append(self._at[ONE])

    async def _answers(self, what: str) -> None:
        if what == self._silent:
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("silent", "kept", "committed", "left"),
    [
        ("", 2, [1, 2], "1"),
        ("commit", 1, [], "0, 1"),
        ("getmany", 0, [], "0, 1"),
        ("position", 0, [], "0, 1"),
    ],
)
def test_a_fetch_ends_when_brokers_answer_nothing_that_is_left(
    silent: str, kept: int, committed: list[int], left: str
) -> None:
    """Also where one partition alone has no leader: what the others had is fetched, and committed, first."""
    consumer, records = _Leaderless(silent), list[Any]()
    with pytest.raises(BrokersSilent, match=f"left: partition {left}$"):
        asyncio.run(fetch_to_end(cast(AIOKafkaConsumer, consumer), [ONE, OTHER], records.append, 0.2))
    assert (len(records), consumer.committed) == (kept, committed)


def called(config: Path, *arguments: str) -> tuple[int, str]:
    """The command's exit code and what it says."""
    command = [str(SLUICE), "access-log", "fetch", *arguments, "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_the_command_wants_a_topic_in_the_configuration_and_tells_when_it_is_down(tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    config = tmp_path / "sluice.yaml"
    listener = "listeners: [{name: a, bind_port: 9, upstream_host: kafka, upstream_port: 9}]\n"
    config.write_text(f"{listener}quotas: {{file: quotas.yaml}}\n")
    code, told = called(config, str(tmp_path))
    assert (code, "access_log.topic" in told) == (2, True), told
    (port,) = free_ports(1)
    topic = f"access_log: {{topic: {{bootstrap: ['127.0.0.1:{port}'], request_timeout_s: 1}}}}\n"
    config.write_text(f"{listener}quotas: {{file: quotas.yaml}}\n{topic}")
    code, told = called(config, str(tmp_path))
    assert (code, "access-log fetch: KafkaConnectionError" in told) == (1, True), told
    assert "Traceback" not in told
    code, told = called(config, str(tmp_path / "nowhere"))
    assert (code, "there is no folder" in told) == (2, True), told
