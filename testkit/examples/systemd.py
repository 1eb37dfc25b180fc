"""The units of the systemd example, read, and their commands as systemd would start them, with other paths.

Knows of unit files what these need: sections, keys that come several times, lines that go on.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from testkit.examples.proxy import EXAMPLES, ExampleProxy
from testkit.processes.guarded_process import GuardedProcess
from testkit.proxy.sluice_process import READY_WITHIN_S, SLUICE

FOLDER: Final = EXAMPLES / "systemd"
INSTALLED: Final = "/opt/sluice/bin/sluice"
CONFIGURATION: Final = "/etc/sluice"


def unit(name: str) -> dict[str, list[str]]:
    """Every key of a unit file with all its values."""
    found: dict[str, list[str]] = {}
    for line in _lines(FOLDER / name):
        if not line.startswith("["):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def command(name: str, key: str, folder: Path) -> list[str]:
    """The unit's command, of this checkout's program, its configuration in `folder`."""
    (line,) = unit(name)[key]
    program, *words = shlex.split(line)
    assert program == INSTALLED
    return [str(SLUICE), *(word.replace(CONFIGURATION, str(folder)) for word in words)]


def environment(name: str, folder: Path) -> dict[str, str]:
    """The variables that EnvironmentFile sets."""
    (file,) = unit(name)["EnvironmentFile"]
    lines = _lines(FOLDER / Path(file).relative_to(CONFIGURATION))
    pairs = (line.partition("=") for line in lines)
    return {key: value.replace(CONFIGURATION, str(folder)) for key, _, value in pairs}


def _lines(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.startswith(("#", ";")):
            yield line.strip()


class UnitProxy(ExampleProxy):
    """The proxy as sluice.service starts it: its command and variables; `before`: a command before that."""

    def __init__(self, ports: Mapping[int, int], before: tuple[str, ...] = ()) -> None:
        super().__init__(FOLDER, ports)
        self._before = before

    def start(self) -> None:
        words = [*self._before, *command("sluice.service", "ExecStart", self.folder)]
        variables = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "FOLDER": str(self.folder),
            **environment("sluice.service", self.folder),
        }
        self._process = GuardedProcess(words, output=self.log, env=variables, remove_on_death=self.folder)
        self.wait_until(self.has_started, "started", READY_WITHIN_S)
