"""The compose file of the examples, read: services, what they mount and publish, the broker's properties.

Knows Compose's short forms as far as that file uses them; deploy/checks/compose.py has Compose's own loader
read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from testkit.examples.broker import properties_of_variables
from testkit.examples.proxy import EXAMPLES

FILE: Final = EXAMPLES / "compose" / "compose.yaml"


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the repository in a container."""

    source: Path
    target: str
    options: str


@dataclass(frozen=True, slots=True)
class Published:
    """A port of the host that leads to one of a container."""

    address: str
    port: int
    target: int


def services(file: Path = FILE) -> dict[str, Any]:
    """By name, as they are written."""
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
    return found


def mounts(service: dict[str, Any], folder: Path = FILE.parent) -> list[Mount]:
    """Those of files; named volumes are left out."""
    parts = [entry.split(":") for entry in service.get("volumes", ())]
    return [
        Mount((folder / source).resolve(), target, "".join(options))
        for source, target, *options in parts
        if source.startswith(".")
    ]


def published(service: dict[str, Any]) -> list[Published]:
    """Its ports; without an address it would be every one of the host."""
    found = []
    for entry in service.get("ports", ()):
        *address, port, target = entry.split(":")
        found.append(Published(address[0] if address else "", int(port), int(target)))
    return found


def broker_properties() -> dict[str, str]:
    """What the container's variables are as server.properties."""
    return properties_of_variables(services()["kafka"]["environment"])
