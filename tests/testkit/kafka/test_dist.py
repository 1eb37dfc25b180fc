"""Kafka's jars arrive once, whole, and only as the lock file says."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from testkit.kafka import dist as kafka_dist
from testkit.kafka.dist import KafkaDist, ensure_kafka
from testkit.kafka.lock import CURRENT, RELEASES, KafkaDistError, KafkaRelease, read_lock

VICTIM = "jopt-simple"


class Warehouse:
    """Stands where the network begins: serves jars out of the real cache, tells which were asked for."""

    def __init__(self, jars: Path) -> None:
        self.jars = jars
        self.asked: list[str] = []
        self.damaged: set[str] = set()
        self.failures_left = 0

    def download(self, group: str, artifact: str, version: str, home: Path) -> Path:
        self.asked.append(artifact)
        if self.failures_left:
            self.failures_left -= 1
            raise OSError("connection reset")
        home.mkdir(parents=True)
        target = home / f"{artifact}-{version}.jar"
        content = (self.jars / target.name).read_bytes()
        target.write_bytes(content[:-1] + b"?" if artifact in self.damaged else content)
        return target


@pytest.fixture
def warehouse(kafka_dist: KafkaDist, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Warehouse:
    """An empty cache folder, and a source to fill it from without network."""
    stand_in = Warehouse(kafka_dist.jars)
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sluice.recalibration.spark.maven_jars._download", stand_in.download)
    return stand_in


def silent(_line: str) -> None:
    """For runs whose progress is of no interest."""


def test_an_empty_cache_gets_every_jar_of_the_lock_file_once(warehouse: Warehouse) -> None:
    dist = ensure_kafka(silent)
    assert sorted(warehouse.asked) == sorted(jar.artifact for jar in read_lock())
    assert all(Path(jar).is_file() for jar in dist.classpath.split(os.pathsep))


def test_a_complete_cache_asks_for_nothing(warehouse: Warehouse) -> None:
    ensure_kafka(silent)
    warehouse.asked.clear()
    lines: list[str] = []
    ensure_kafka(lines.append)
    assert (warehouse.asked, lines) == ([], [])


@pytest.mark.parametrize("damage", ["removed", "changed", "cut short"])
def test_only_a_damaged_jar_is_fetched_again(warehouse: Warehouse, damage: str) -> None:
    (victim,) = ensure_kafka(silent).jars.glob(f"{VICTIM}-*.jar")
    content = victim.read_bytes()
    if damage == "removed":
        victim.unlink()
    else:
        victim.write_bytes(content[:-1] + (b"?" if damage == "changed" else b""))
    warehouse.asked.clear()
    ensure_kafka(silent)
    assert warehouse.asked == [VICTIM]
    assert victim.read_bytes() == content


def test_a_jar_with_a_wrong_checksum_is_named_and_never_installed(warehouse: Warehouse) -> None:
    warehouse.damaged.add(VICTIM)
    with pytest.raises(KafkaDistError, match=rf"net\.sf\.jopt-simple:{VICTIM}:\S+ has a wrong checksum"):
        ensure_kafka(silent)
    assert list(kafka_dist.cache_folder().rglob(f"{VICTIM}-*.jar")) == []


def test_a_download_that_fails_twice_is_tried_a_third_time(warehouse: Warehouse) -> None:
    warehouse.failures_left = 2
    ensure_kafka(silent)
    assert len(warehouse.asked) == len(read_lock()) + 2


def test_a_jar_that_cannot_be_had_is_named_with_the_cause(warehouse: Warehouse) -> None:
    warehouse.failures_left = 1_000
    with pytest.raises(KafkaDistError, match=r"could not be downloaded in 3 tries: connection reset"):
        ensure_kafka(silent)


def test_of_two_callers_at_once_one_downloads_and_the_other_waits(warehouse: Warehouse) -> None:
    callers = [threading.Thread(target=ensure_kafka, args=(silent,)) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(warehouse.asked) == len(read_lock())


def test_nothing_but_jars_is_left_behind_by_a_download(warehouse: Warehouse) -> None:
    jars = ensure_kafka(silent).jars
    assert {path.suffix for path in jars.iterdir()} == {".jar"}
    assert {path.name for path in jars.parent.iterdir()} == {"jars", "lock", "verified.json"}


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLUICE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kafka_dist.cache_folder() == tmp_path / "sluice"
    monkeypatch.setenv("SLUICE_CACHE", str(tmp_path / "elsewhere"))
    assert kafka_dist.cache_folder() == tmp_path / "elsewhere"


def test_a_broken_line_of_the_lock_file_is_named_by_its_number(tmp_path: Path) -> None:
    lock = tmp_path / "kafka-jars.lock"
    lock.write_text("# comment\ngroup:artifact sha256:00 12\n", encoding="utf-8")
    with pytest.raises(KafkaDistError, match=r"kafka-jars\.lock line 2 "):
        read_lock(KafkaRelease("1.0.0", lock))


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_a_lock_file_pins_its_releases_broker_and_tools_and_one_binding_of_the_log(
    release: KafkaRelease,
) -> None:
    jars = {jar.artifact: jar.version for jar in read_lock(release)}
    assert jars["kafka_2.13"] == jars["kafka-clients"] == jars["kafka-tools"] == release.version
    assert {name for name in jars if name.startswith("slf4j")} == {"slf4j-api", "slf4j-simple"}


def test_each_release_has_a_folder_of_its_own(warehouse: Warehouse, tmp_path: Path) -> None:
    other = tmp_path / "other.lock"
    other.write_text(CURRENT.lock_file.read_text().replace("# The jars", "# Some jars"))
    first = ensure_kafka(silent)
    second = ensure_kafka(silent, KafkaRelease("4.9.9", other))
    assert first.jars != second.jars
    assert (first.version, second.version) == (CURRENT.version, "4.9.9")
