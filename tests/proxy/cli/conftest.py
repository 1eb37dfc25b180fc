"""A folder with a configuration and a quota file, and the command `sluice` in it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from sluice.proxy.cli.main import main
from testkit.proxy.sluice_command import CONFIG, QUOTAS, Sluice


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sluice.yaml").write_text(CONFIG)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    return tmp_path


@pytest.fixture
def sluice(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sluice:
    """The command's entry point, called in `folder` (a process each would take half a second)."""

    def call(*arguments: str, stdin: str = "", environ: dict[str, str] | None = None) -> tuple[int, str, str]:
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            monkeypatch.delenv(name)
        for name, value in {"NO_COLOR": "1", "COLUMNS": "200", **(environ or {})}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["sluice", *arguments])
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode(errors="surrogateescape")))
        )
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return call
