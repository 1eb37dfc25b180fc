"""The command that runs a client's driver: Python's as modules, Go's built here, Node's with npm's packages.

Go and Node are the machine's, as for the tests: without one its clients cannot run, and the reason says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import confluent_kafka

from bench.clients.cases import GO, NODE, PYTHON, STREAM, Client
from sluice.recalibration.spark.maven_jars import JarError
from testkit.kafka.added_jars import STREAMS
from testkit.kafka.dist import cache_folder, ensure_kafka
from testkit.kafka.lock import CURRENT

HERE: Final = Path(__file__).parent
BUILD_WITHIN_S: Final = 600
NODE_AT_LEAST: Final = 20
GO_ENVIRONMENT: Final = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}


class NoProgramError(Exception):
    """A language's clients cannot run here; the message says what is missing."""


class Programs:
    """How to run each client; what must be built is built when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, Sequence[str] | NoProgramError] = {}

    def command(self, client: Client) -> list[str]:
        """All but the file with the work. Raises NoProgramError."""
        if client.language == PYTHON:
            if STREAM in client.roles:
                _fetch_streams()
            return [sys.executable, "-m", f"bench.clients.drivers.{client.module}"]
        if client.language not in self._found:
            try:
                self._found[client.language] = MAKERS[client.language](self._folder)
            except NoProgramError as error:
                self._found[client.language] = error
        found = self._found[client.language]
        if isinstance(found, NoProgramError):
            raise found
        return list(found)


def versions() -> dict[str, str]:
    """Each library's version, as it is pinned or installed; Java's clients are of Kafka's jars."""
    go = dict(re.findall(r"^\s+(\S+) v([\d.]+)$", (HERE / "go" / "go.mod").read_text(), re.MULTILINE))
    node = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
    return {
        "java": CURRENT.version,
        "librdkafka": confluent_kafka.libversion()[0],
        "aiokafka": metadata.version("aiokafka"),
        "kafka-python": metadata.version("kafka-python"),
        "franz-go": go["github.com/twmb/franz-go"],
        "sarama": go["github.com/IBM/sarama"],
        "kafka-go": go["github.com/segmentio/kafka-go"],
        "kafkajs": node["kafkajs"],
        "platformatic": node["@platformatic/kafka"],
        "node": node_version(),
    }


def node_version() -> str:
    """The machine's Node; empty if there is none."""
    return "" if shutil.which("node") is None else _run(["node", "--version"], HERE, os.environ).strip()


def _fetch_streams() -> None:
    try:
        STREAMS.beside(ensure_kafka())
    except JarError as error:
        raise NoProgramError(str(error)) from error


def _go(folder: Path) -> Sequence[str]:
    if shutil.which("go") is None:
        raise NoProgramError(
            "there is no Go here (apt-get install golang-go, or newer: see bench/clients/go/go.mod)"
        )
    program = folder / "go-clients"
    print("building the Go clients", flush=True)
    _run(["go", "build", "-o", str(program), "."], HERE / "go", GO_ENVIRONMENT)
    return [str(program)]


def _node(_folder: Path) -> Sequence[str]:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NoProgramError(
            f"there is no Node {NODE_AT_LEAST} or newer with npm here (apt-get install nodejs npm)"
        )
    said = node_version()
    if int(said.lstrip("v").split(".")[0]) < NODE_AT_LEAST:
        raise NoProgramError(f"Node {NODE_AT_LEAST} or newer is needed, and here is {said}")
    sources = sorted(path for path in (HERE / "node").iterdir() if path.suffix in (".mjs", ".json"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:8]
    home = cache_folder() / f"bench-clients-node-{digest}"
    if not (home / "node_modules" / ".package-lock.json").is_file():
        home.mkdir(parents=True, exist_ok=True)
        for path in sources:
            shutil.copy(path, home)
        print("installing the clients for Node", flush=True)
        _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], home, os.environ)
    return ["node", str(home / "main.mjs")]


def _run(command: Sequence[str], where: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=where,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=BUILD_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoProgramError(f"{' '.join(command[:2])} took more than {BUILD_WITHIN_S} s") from error
    if done.returncode:
        raise NoProgramError(f"{' '.join(command[:2])}: {done.stderr.strip()[-500:]}")
    return done.stdout


MAKERS: Final[Mapping[str, Callable[[Path], Sequence[str]]]] = {GO: _go, NODE: _node}
