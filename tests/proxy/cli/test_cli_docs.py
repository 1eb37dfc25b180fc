"""docs/cli.md and the command say the same; the shell completes what the command has."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sluice.proxy.cli.main import app
from sluice.quotas.kinds import KIND_BY_KEY

DOCS = Path(__file__).resolve().parents[3] / "docs"
TEXT = (DOCS / "cli.md").read_text(encoding="utf-8")
SLUICE = Path(sys.executable).with_name("sluice")


def commands(group: Any = None, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """All commands by their words."""
    group = group or typer.main.get_command(app)
    found: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, (*path, name))
        else:
            found[*path, name] = command
    return found


def documented_lines() -> list[str]:
    """Each call in the shell blocks of the page."""
    lines = []
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S):
        for line in block.splitlines():
            lines += [part.strip() for part in line.split("#")[0].split("|") if part.strip()]
    return lines


@pytest.mark.parametrize("line", documented_lines())
def test_every_line_of_the_page_is_one_that_the_command_takes(line: str) -> None:
    words = shlex.split(line.split(">", maxsplit=1)[0])
    assert words[0] == "sluice"
    if words[1].startswith("-"):
        assert words[1] in {"--install-completion", "--show-completion"}
        return
    path = next(path for path in commands() if tuple(words[1 : 1 + len(path)]) == path)
    known = {option for param in commands()[path].params for option in param.opts}
    used = {word for word in words[1 + len(path) :] if word.startswith("-") and word != "-"}
    assert used <= known


def test_every_command_is_on_the_page() -> None:
    for path in commands():
        assert f"`sluice {path[0]}" in TEXT
        assert path[-1] in TEXT


def complete(line: str) -> list[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    environ = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_SLUICE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [SLUICE], env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.split()


def test_the_shell_completes_commands_types_and_keys() -> None:
    assert complete("sluice quotas e") == ["explain", "export"]
    assert complete("sluice configs --entity-type ") == ["users", "clients", "ips", "brokers", "topics"]
    assert complete("sluice configs --delete-config producer_byte_rate,con") == [
        f"producer_byte_rate,{key}" for key in KIND_BY_KEY if key.startswith("con")
    ]
    assert "producer_byte_rate=" in complete("sluice configs --add-config ")
    assert "--user-defaults" in complete("sluice configs --user")
