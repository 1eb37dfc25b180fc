"""A Dockerfile → its stages and their steps, by BuildKit's own parser; and which files .dockerignore lets in.

Knows only what our Dockerfile uses. What it does not know raises UnknownStep: a step that is silently left
out would make the check of the image worthless.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dockerfile

DEFAULT_SHELL: Final = ("/bin/sh", "-c")
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""of an image that sets none"""
_STEPS: Final = frozenset(
    {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "RUN", "SHELL"}
    | {"STOPSIGNAL", "USER", "WORKDIR"}
)


class UnknownStep(Exception):
    """The Dockerfile has something that this module would have to be taught."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction. `words`: its value as BuildKit splits it, variables not put in yet."""

    name: str
    words: tuple[str, ...]
    flags: Mapping[str, str]
    is_json: bool
    line: int


@dataclass(frozen=True, slots=True)
class Stage:
    """FROM and what follows until the next. `base`: a stage's name, or an image's."""

    name: str
    base: str
    steps: tuple[Step, ...]


@dataclass(slots=True)
class ImageConfig:
    """What an image says of the processes in it; grows step by step, starts as a copy of its base's."""

    env: dict[str, str] = field(default_factory=lambda: {"PATH": DEFAULT_PATH})
    workdir: str = "/"
    user: str = "0"
    shell: tuple[str, ...] = DEFAULT_SHELL
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    ports: tuple[str, ...] = ()
    args: dict[str, str] = field(default_factory=dict)
    """build arguments declared so far in this stage; not inherited"""

    def from_here(self) -> ImageConfig:
        """What a stage begins with that is built FROM this one: all but the build arguments."""
        return ImageConfig(
            dict(self.env),
            self.workdir,
            self.user,
            self.shell,
            self.entrypoint,
            self.cmd,
            self.healthcheck,
            dict(self.labels),
            self.ports,
        )

    def apply(self, step: Step) -> None:
        """Take over what a step says; RUN and COPY say nothing of this."""
        words = [expanded(word, {**self.args, **self.env}) for word in step.words]
        if step.name in {"ENV", "LABEL"}:
            pairs = zip(words[::2], (unquoted(word) for word in words[1::2]), strict=True)
            (self.env if step.name == "ENV" else self.labels).update(pairs)
        elif step.name == "ARG":
            for word in words:
                name, _, default = word.partition("=")
                self.args[name] = unquoted(default)
        elif step.name == "WORKDIR":
            (folder,) = words
            self.workdir = folder if folder.startswith("/") else f"{self.workdir.rstrip('/')}/{folder}"
        elif step.name == "USER":
            (self.user,) = words
        elif step.name == "EXPOSE":
            self.ports += tuple(words)
        elif step.name in {"SHELL", "ENTRYPOINT", "CMD"}:
            argv = step.words if step.is_json else (*self.shell, step.words[0])
            setattr(self, step.name.lower(), argv)
        elif step.name == "HEALTHCHECK":
            if step.words[0] != "CMD" or not step.is_json:
                raise UnknownStep(f"line {step.line}: HEALTHCHECK {step.words[0]}, not CMD with a JSON array")
            self.healthcheck = step.words[1:]


def read_stages(path: Path) -> list[Stage]:
    """The stages in their order. Raises UnknownStep."""
    stages: list[Stage] = []
    for command in dockerfile.parse_file(str(path)):
        if command.cmd == "FROM":
            image, *alias = command.value
            if command.flags or "$" in image or (alias and alias[0].upper() != "AS"):
                raise UnknownStep(f"line {command.start_line}: {command.original}")
            stages.append(Stage(alias[1] if alias else str(len(stages)), image, ()))
            continue
        if command.cmd not in _STEPS or command.heredocs or not stages:
            raise UnknownStep(f"line {command.start_line}: {command.original}")
        flags = dict(flag.removeprefix("--").split("=", 1) for flag in command.flags)
        step = Step(command.cmd, tuple(command.value), flags, command.json, command.start_line)
        last = stages[-1]
        stages[-1] = Stage(last.name, last.base, (*last.steps, step))
    return stages


def needed(stages: Sequence[Stage], target: str) -> list[Stage]:
    """The stages that a build of `target` runs, in order: it, its base, and those that it copies from."""
    by_name = {stage.name: stage for stage in stages}
    wanted: set[str] = set()
    open_names = [target]
    while open_names:
        name = open_names.pop()
        if name in wanted or name not in by_name:
            continue
        wanted.add(name)
        stage = by_name[name]
        open_names += [stage.base, *(step.flags.get("from", "") for step in stage.steps)]
    return [stage for stage in stages if stage.name in wanted]


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` put in; unknown ones are empty, as in Docker."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], ""), text)


def unquoted(word: str) -> str:
    """A word without the quotes that BuildKit's parser leaves on."""
    return "".join(shlex.split(word)) if word[:1] in {'"', "'"} else word


def let_in(paths: Iterable[str], ignore: str) -> Iterator[str]:
    """Those of the files (relative, `/`) that a .dockerignore does not keep out of the build's context.

    The last line that matches a file or a folder above it decides; `!` in front of it lets it in.
    """
    lines = [line.strip() for line in ignore.splitlines()]
    rules = [
        (line.startswith("!"), line.lstrip("!").strip("/").split("/"))
        for line in lines
        if line and not line.startswith("#")
    ]
    for path in paths:
        parts = path.split("/")
        is_in = True
        for lets_in, pattern in rules:
            if any(_matches(parts[:end], pattern) for end in range(1, len(parts) + 1)):
                is_in = lets_in
        if is_in:
            yield path


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[skip:], pattern[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
