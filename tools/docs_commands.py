"""Command lines of other programs in the documentation, held against what they name in this repository.

A program that is not here (docker, kubectl, systemctl, spark-submit) is not asked: its subcommand and options
must be among those that the page's reader needs, and what they name of ours must be there: the Dockerfile's
stages, the examples' services, units and scripts, requirement files, addresses of the admin port with their
parameters, a `sluice` command within. Pure but for reads of the repository.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import yaml

from sluice.proxy.admin.status.openapi import ENDPOINTS
from testkit.kafka.java_tools import MAIN_CLASSES

ROOT: Final = Path(__file__).resolve().parents[1]
_STAGE: Final = re.compile(r"^FROM \S+ AS (\S+)", re.M)
_ASSIGNMENT: Final = re.compile(r"[A-Z_]+=")
_PATHS: Final = (
    "/metrics", "/metrics/kafka", "/livez", "/readyz", "/startupz", "/status", "/top", "/replication",
    "/connections",
)  # fmt: skip
_KUBECTL: Final = {
    "exec": {"-c"},
    "logs": {"-c", "--previous"},
    "delete": set[str](),
    "port-forward": set[str](),
}
_DOCKER_RUN: Final = {"--network", "--read-only", "--cap-drop", "--security-opt", "-v", "-p", "-e", "--rm"}
_DOCKER_BUILD: Final = {"-t", "--target", "--build-arg"}
_COMPOSE: Final = {
    "up": {"--build", "--detach"},
    "down": {"--volumes"},
    "logs": set[str](),
    "exec": set[str](),
}
_SYSTEMCTL: Final = {"daemon-reload", "enable", "disable", "status", "reload", "list-timers"}
_HARMLESS: Final = {
    "mkdir": {"-p"},
    "install": {"-D", "-m", "-t"},
    "seq": set[str](),
    "systemd-sysusers": set[str](),
}
_XARGS: Final = {"-P", "-I"}
"""options that have a value"""
_EXAMPLES: Final = ROOT / "deploy" / "examples"
_SPARK: Final = {"--master", "--deploy-mode", "--conf", "--jars"}
_SERVER_SCRIPTS: Final = {"kafka-server-start.sh", "kafka-storage.sh"}
Sluice = Callable[[list[str]], None]
"""given the words behind `sluice`: raises what is wrong with them"""


class NotJudged(ValueError):
    """Nobody here knows whether a command line is right."""


def check_other(command: Sequence[str], sluice: Sluice) -> None:
    """Raises ValueError for a command line that is wrong, NotJudged for a program that is not known here."""
    words = list(command)
    while words and _ASSIGNMENT.match(words[0]):
        del words[0]
    program = Path(words[0]).name if words else ""
    rest = words[1:]
    match program:
        case "docker":
            _docker(rest)
        case "kubectl":
            _kubectl(rest, sluice)
        case "pip":
            _pip(rest)
        case "python3":
            _expect(rest[:2] == ["-m", "venv"] and len(rest) == 3, command)
        case "curl":
            _curl(rest)
        case "jq":
            _expect(len(rest) == 1, command)
        case "spark-submit":
            _spark(rest, sluice)
        case "sh":
            _expect(len(rest) == 1 and (_EXAMPLES / rest[0]).is_file(), command)
        case "systemctl":
            _systemctl(rest)
        case "xargs":
            check_other(_behind_options(rest), sluice)
        case "mkdir" | "install" | "seq" | "systemd-sysusers":
            _options(rest, _HARMLESS[program])
        case _:
            tool = program.removeprefix("kafka-").removesuffix(".sh")
            _expect(
                program in _SERVER_SCRIPTS or (program.startswith("kafka-") and tool in MAIN_CLASSES), command
            )


def _expect(is_right: bool, command: Sequence[str]) -> None:
    if not is_right:
        raise NotJudged(f"not judged: {shlex.join(command)}")


def _options(words: Sequence[str], known: set[str]) -> None:
    for word in words:
        if word.startswith("-") and word.split("=")[0] not in known:
            raise ValueError(f"no option {word} is known here")


def _docker(words: list[str]) -> None:
    if words[:1] == ["compose"]:
        _compose(words[1:])
        return
    if words[:1] == ["run"]:
        _options(words[1:], _DOCKER_RUN)
        return
    _expect(words[:1] == ["build"] and words[-1] == ".", ["docker", *words])
    _options(words[1:], _DOCKER_BUILD)
    if "--target" in words:
        stages = _STAGE.findall((ROOT / "Dockerfile").read_text(encoding="utf-8"))
        target = words[words.index("--target") + 1]
        if target not in stages:
            raise ValueError(f"the Dockerfile has no stage {target}")


def _compose(words: list[str]) -> None:
    """`exec SERVICE COMMAND`: of the broker's container one of Kafka's tools."""
    known = _COMPOSE.get(words[0]) if words else None
    if known is None:
        raise NotJudged(f"not judged: docker compose {shlex.join(words)}")
    if words[0] != "exec":
        _options(words[1:], known)
        return
    services = yaml.safe_load((_EXAMPLES / "compose/compose.yaml").read_text(encoding="utf-8"))["services"]
    if words[1] not in services:
        raise ValueError(f"the compose file has no service {words[1]}")
    _expect(words[2].startswith("/opt/kafka/bin/kafka-"), words)
    check_other(words[2:], lambda _: None)


def _systemctl(words: list[str]) -> None:
    _expect(words[:1] != [] and words[0] in _SYSTEMCTL, ["systemctl", *words])
    _options(words[1:], {"--now"})
    for name in words[1:]:
        if not name.startswith("-") and not (_EXAMPLES / "systemd" / name).is_file():
            raise ValueError(f"there is no unit {name}")


def _behind_options(words: list[str]) -> list[str]:
    """The command that xargs is given."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        _options(rest[:1], _XARGS)
        del rest[:2]
    return rest


def _kubectl(words: list[str], sluice: Sluice) -> None:
    known = _KUBECTL.get(words[0]) if words else None
    if known is None:
        raise NotJudged(f"not judged: kubectl {shlex.join(words)}")
    own, inner = words, list[str]()
    if "--" in words:
        at = words.index("--")
        own, inner = words[:at], words[at + 1 :]
    _options(own, known)
    if own[0] == "exec":
        _expect(inner[:1] == ["sluice"], ["kubectl", *words])  # the image has no other program
        sluice(inner[1:])


def _pip(words: list[str]) -> None:
    _expect(words[:1] == ["install"], ["pip", *words])
    _options(words, {"--require-hashes", "-r", "--no-deps"})
    if "-r" in words:
        file = words[words.index("-r") + 1]
        if not (ROOT / file).is_file():
            raise ValueError(f"there is no {file}")


def _curl(words: list[str]) -> None:
    _options(words, {"-s", "-H"})
    url = urlsplit(words[-1] if "//" in words[-1] else f"//{words[-1]}")
    if url.path in _PATHS:
        return
    for endpoint in ENDPOINTS:
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", endpoint.path), url.path):
            unknown = parse_qs(url.query).keys() - endpoint.query.model_fields.keys()
            if unknown:
                raise ValueError(f"{url.path} has no parameter {', '.join(sorted(unknown))}")
            return
    raise ValueError(f"the admin port has no {url.path}")


def _spark(words: list[str], sluice: Sluice) -> None:
    """`spark-submit OPTIONS $(sluice recalibrate --job-file) OPTIONS OF THE JOB`"""
    begin = next((at for at, word in enumerate(words) if word.startswith("$(")), -1)
    end = next((at for at, word in enumerate(words) if word.endswith(")")), -1)
    _expect(0 <= begin <= end, ["spark-submit", *words])
    _options(words[:begin], _SPARK)
    inner = " ".join(words[begin : end + 1])[2:-1].split()
    _expect(inner[:1] == ["sluice"], ["spark-submit", *words])
    sluice(inner[1:])
    sluice([inner[1], *words[end + 1 :]])
