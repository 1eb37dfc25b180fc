"""The pump is built where it can be; elsewhere the reason is told, and nothing older is left behind."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

import hatch_build
from hatch_build import NotBuilt, build_in_place, compile_pump
from sluice.proxy.pump.built import is_built

ROOT = Path(hatch_build.__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the build needs of one, with an older pump in it."""
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    folder = tmp_path / "proxy" / "pump"
    folder.mkdir(parents=True)
    for path in (ROOT / "proxy" / "pump").iterdir():
        if path.suffix in {".py", ".pyi", ".pyx", ".pxi"}:
            shutil.copy(path, folder)
    (folder / f"core{SUFFIX}").write_bytes(b"of another day")
    for name in ("CC", "CFLAGS", hatch_build.OPTION):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def age(checkout: Path) -> Path:
    """The older pump is older than its sources."""
    pump = checkout / "proxy" / "pump" / f"core{SUFFIX}"
    os.utime(pump, (1, 1))
    return pump


def can_build() -> bool:
    include = sysconfig.get_paths()["include"]
    if os.environ.get(hatch_build.OPTION) == "no":
        return False
    return shutil.which("cc") is not None and Path(include, "Python.h").exists()


@pytest.mark.skipif(not can_build(), reason="no compiler, or no headers of Python")
def test_here_it_is_built() -> None:
    """Or the tests that want it would all be left out, and nobody would notice."""
    assert is_built(), "run `python hatch_build.py`"


@pytest.mark.slow  # as `make setup` and `make build-check` do
@pytest.mark.skipif(not can_build(), reason="no compiler, or no headers of Python")
def test_it_is_built_when_its_sources_are_newer(checkout: Path) -> None:
    assert build_in_place(checkout) == "built already"
    pump = age(checkout)
    assert build_in_place(checkout) == "built"
    assert pump.read_bytes()[:4] == b"\x7fELF" or sys.platform != "linux"
    assert build_in_place(checkout) == "built already"


def test_without_a_compiler(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pump = age(checkout)
    for compiler, why in (("false", "false failed"), ("no-such-compiler", "No such file")):
        monkeypatch.setenv("CC", compiler)
        told = build_in_place(checkout)
        assert told.startswith("not built (")
        assert why in told
        assert not pump.exists(), "it would do what its sources no longer say"


def test_without_headers(checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    age(checkout)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path / "none")})
    assert "Python's headers are missing" in build_in_place(checkout)


def test_without_cython(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Cython", None)
    with pytest.raises(NotBuilt, match="Cython is missing"):
        compile_pump(checkout, checkout)


def test_it_can_be_left_out(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hatch_build.OPTION, "no")
    assert build_in_place(checkout).startswith("not built (BUILD_PUMP=no)")
    assert not (checkout / "proxy" / "pump" / f"core{SUFFIX}").exists()


def test_it_can_be_insisted_on(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(checkout)
    monkeypatch.setenv(hatch_build.OPTION, "yes")
    monkeypatch.setenv("CC", "false")
    with pytest.raises(NotBuilt):
        build_in_place(checkout)
