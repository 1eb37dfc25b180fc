"""Where the quick start's page is run: Kafka's scripts on the PATH, a home and a network of its own."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import MAIN_CLASSES, java_command

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = {"kafka-storage.sh": MAIN_CLASSES["storage"], "kafka-server-start.sh": "kafka.Kafka"}


def own_network() -> list[str]:
    """The command before a command that gets a network and process numbers of its own."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *as_root, "--net", "--pid", "--fork", "--kill-child"]


def page_environment(folder: Path, dist: KafkaDist) -> dict[str, str]:
    """The environment for it; what the page installs goes below `folder/home`."""
    scripts, home = folder / "bin", folder / "home"
    scripts.mkdir()
    home.mkdir()
    for name, main_class in SCRIPTS.items():
        command = shlex.join(java_command(dist, main_class, log_level="info"))
        (scripts / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (scripts / name).chmod(0o755)
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(home), "PYTHONPATH": str(ROOT)}
