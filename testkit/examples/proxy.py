"""`sluice run` with the files of an example, as they stand but for ports, hosts and absolute paths."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from testkit.processes.ports import LOOPBACK, free_port_range
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "deploy" / "examples"
CERTIFICATES: Final = "../certificates/"


class ExampleProxy(SluiceProcess):
    """The proxy of one example, in a copy of its folder.

    `ports`: what stands in the place of the example's ports (ExampleBroker.ports); a port of its
    configuration that is not there fails, for no broker leads to it. `certificates`: what stands in the place
    of `../certificates`.
    """

    def __init__(self, example: Path, ports: Mapping[int, int], *, certificates: Path | None = None) -> None:
        """Absolute paths (`/var/log/sluice`) are moved into the copy, as folders that are there."""
        self._ports = dict(ports)
        self._certificates = certificates
        self.gateway_ports: dict[str, int] = {}
        """of each gateway's listener: the first broker's port"""
        config: dict[str, Any] = yaml.safe_load((example / "sluice.yaml").read_text(encoding="utf-8"))
        doors = [self._door(listener) for listener in config["listeners"]]
        super().__init__(doors)
        shutil.copytree(example, self.folder, dirs_exist_ok=True)
        config["admin"] = {
            **config.get("admin", {}),
            "bind_host": LOOPBACK,
            "bind_port": self.admin_port,
            "probes": {"bind_port": 0},
        }
        (self.folder / "sluice.yaml").write_text(json.dumps(self._moved(config), indent=2))

    @property
    def first_bootstrap(self) -> str:
        """`host:port` of its one listener."""
        (door,) = self.doors.values()
        return door.bootstrap

    def top(self) -> str:
        """What `sluice top --once --why` prints, as the READMEs ask for it."""
        command = [str(SLUICE), "top", "--once", "--why", "--config", str(self.folder / "sluice.yaml")]
        wide = {**os.environ, "COLUMNS": "160"}
        done = subprocess.run(command, env=wide, capture_output=True, text=True, check=True)
        return done.stdout

    def _door(self, listener: dict[str, Any]) -> Door:
        """Gives the entry other ports, in place."""
        gateway = listener.get("gateway")
        if gateway is None:
            listener["bind_port"] = self._ports[listener["bind_port"]]
            listener["upstream_port"] = self._ports[listener["upstream_port"]]
            upstream = (LOOPBACK, listener["upstream_port"])
        else:
            upstream = None
            listener["bind_port"] = free_port_range(1 + gateway["max_brokers"])
            gateway["first_broker_port"] = listener["bind_port"] + 1
            self.gateway_ports[listener["name"]] = gateway["first_broker_port"]
            gateway["bootstrap_upstreams"] = [
                f"{host}:{self._ports[int(port)]}"
                for host, _, port in (each.rpartition(":") for each in gateway["bootstrap_upstreams"])
            ]
        listener["bind_host"] = LOOPBACK
        return Door(listener["name"], listener["bind_port"], upstream, listener.get("security_protocol", ""))

    def _moved(self, value: Any) -> Any:
        """Paths of other folders, moved to where these are."""
        if isinstance(value, dict):
            return {key: self._moved(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._moved(each) for each in value]
        if isinstance(value, str) and value.startswith(CERTIFICATES):
            assert self._certificates is not None
            return str(self._certificates / value.removeprefix(CERTIFICATES))
        if isinstance(value, str) and value.startswith("/"):
            moved = self.folder / value[1:]
            moved.mkdir(parents=True, exist_ok=True)
            return str(moved)
        return value
