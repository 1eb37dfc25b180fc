"""A real Kafka with the properties of an example, as they stand but for ports and paths.

Nothing of testkit/kafka/config.py is added: what an example forgets is missing here, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from testkit.kafka.config import NATIVE
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port

USERS: Final[Mapping[str, str]] = {name: f"{name}-secret" for name in ("alice", "bob", "carol", "sluice")}
"""whom deploy/examples/README.md makes when it formats the broker's storage"""
_ENDPOINT: Final = re.compile(r"(\w+)://([\w.-]*):(\d+)")
_VARIABLE: Final = re.compile(r"KAFKA_(\w+)")


def properties_of(text: str) -> dict[str, str]:
    """A properties file of one-line entries."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def properties_of_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """What the image apache/kafka makes of its variables: KAFKA_LOG_DIRS is log.dirs; nothing is added."""
    found = ((_VARIABLE.fullmatch(name), value) for name, value in environment.items())
    return {name[1].lower().replace("_", "."): value for name, value in found if name is not None}


class ExampleBroker(KafkaNode):
    """One node. A listener that tells another port than its own has a proxy before it (`advertised`).

    `ports` has what stands in the place of each port of the example.
    """

    def __init__(
        self, dist: KafkaDist, properties: Mapping[str, str], certificates: Path | None = None
    ) -> None:
        """`certificates`: the folder that the properties call by that name."""
        own = _ports(properties["listeners"])
        told = _ports(properties["advertised.listeners"])
        self._native = properties["inter.broker.listener.name"]
        self._example = properties
        self._certificates = certificates
        proxied = {name: (LOOPBACK, free_port()) for name, port in told.items() if port != own[name]}
        native = [name for name in told if name not in proxied and name != self._native]
        super().__init__(
            dist, advertised=proxied, native=native, users=USERS, node_id=int(properties["node.id"])
        )
        controller = properties["controller.listener.names"]
        self.ports: dict[int, int] = {own[controller]: self._config.voters[self.node_id]}
        for name, port in told.items():
            listener = self.listeners[self._known_as(name)]
            self.ports |= {own[name]: listener.port, port: listener.advertised[1]}

    def properties_text(self) -> str:
        found = {}
        for key, value in self._example.items():
            if key in {"listeners", "advertised.listeners"}:
                found[key] = _ENDPOINT.sub(self._endpoint, value)
            elif key == "controller.quorum.voters":
                voter, _, port = value.rpartition(":")
                found[key] = f"{voter}:{self.ports[int(port)]}"
            elif key == "log.dirs":
                found[key] = str(self.folder / "data")
            elif value.startswith("certificates/"):
                assert self._certificates is not None, f"{key}: needs certificates"
                found[key] = str(self._certificates / value.removeprefix("certificates/"))
            else:
                found[key] = value
        return "".join(f"{key}={value}\n" for key, value in found.items())

    def _known_as(self, name: str) -> str:
        return NATIVE if name == self._native else name

    def _endpoint(self, found: re.Match[str]) -> str:
        return f"{found[1]}://{found[2]}:{self.ports[int(found[3])]}"


def _ports(endpoints: str) -> dict[str, int]:
    return {name: int(port) for name, _, port in _ENDPOINT.findall(endpoints)}
