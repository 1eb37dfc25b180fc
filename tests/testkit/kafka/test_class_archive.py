"""Archives of classes make a JVM start sooner, and are missed by nothing where there are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.kafka.class_archive import WHAT, make_archives
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import BROKER, MAIN_CLASSES, java_command, run_tool
from testkit.kafka.node import KafkaNode


@pytest.fixture
def dist(kafka_dist: KafkaDist, tmp_path: Path) -> KafkaDist:
    """The jars are where they are; archives are beside a folder of the test's own."""
    return replace(kafka_dist, jars=tmp_path / "jars")


def archives_of(dist: KafkaDist) -> list[str]:
    """What a broker and a tool are started with."""
    commands = [java_command(dist, main_class) for main_class in (BROKER, MAIN_CLASSES["topics"])]
    return [option for command in commands for option in command if "SharedArchiveFile" in option]


def test_each_kind_of_jvm_gets_its_own_if_it_is_there(dist: KafkaDist) -> None:
    assert archives_of(dist) == []
    for what in WHAT:
        dist.class_archive(what).touch()
    assert archives_of(dist) == [f"-XX:SharedArchiveFile={dist.class_archive(what)}" for what in WHAT]


def test_another_java_has_another(dist: KafkaDist, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.touch()
    assert replace(dist, java=java).class_archive("tools") != dist.class_archive("tools")


def test_a_damaged_one_stops_nothing_and_nothing_is_said_of_it(dist: KafkaDist) -> None:
    dist.class_archive("tools").write_bytes(bytes(range(256)) * 100)
    told = run_tool(dist, "storage", "random-uuid")
    assert (len(told.stdout.strip()), told.stderr) == (22, "")


@pytest.mark.kafka
@pytest.mark.slow
def test_they_are_made_once_and_taken_by_broker_and_tools(dist: KafkaDist) -> None:
    made = make_archives(dist)
    if not made:
        pytest.skip("this Java makes no archives")
    assert made == [dist.class_archive(what) for what in WHAT]
    before = [path.stat().st_mtime_ns for path in made]
    with KafkaNode(dist, java_options=["-Xshare:on"]) as node:  # on: it ends if it cannot take it
        where = ("--bootstrap-server", node.bootstrap)
        assert run_tool(dist, "topics", *where, "--list").stdout == "\n"
    assert make_archives(dist) == made
    assert [path.stat().st_mtime_ns for path in made] == before
    assert sorted(dist.jars.parent.iterdir()) == sorted(made)
