"""`sluice run` as its users run it: a process with a configuration file, seen from outside only.

Its state is read from where an operator reads it: /metrics, /readyz, the log. Nothing is imported from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.node import KafkaNode
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_port_range

SLUICE: Final = Path(sys.executable).with_name("sluice")
READY_WITHIN_S: Final = 30.0
_ON_ITS_WAY_S: Final = 0.1
_LOOKS: Final = 6
SHOWN_WITHIN_S: Final = 15.0
"""how long what has happened may take to be seen, on a busy machine"""
Quota = Mapping[str, object]
"""an entry of the quota file"""
NO_QUOTAS: Final[tuple[Quota, ...]] = ({"client-id": "nobody-has-this-name", "producer_byte_rate": 1},)


@dataclass(frozen=True, slots=True)
class Door:
    """One listener of the proxy and what is behind it."""

    name: str
    port: int
    upstream: tuple[str, int] | None
    """the broker behind it; None: `options` say what is"""
    protocol: str = "PLAINTEXT"
    options: Mapping[str, Any] = field(default_factory=dict)
    """further keys of the listener's configuration"""

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def configuration(self) -> dict[str, Any]:
        """Its entry in the configuration file."""
        listener = {
            "name": self.name,
            "bind_host": LOOPBACK,
            "bind_port": self.port,
            "security_protocol": self.protocol,
        }
        if self.upstream is not None:
            listener |= {"upstream_host": self.upstream[0], "upstream_port": self.upstream[1]}
        return listener | dict(self.options)


def doors_of(kafka: KafkaNode, names: Sequence[str] = ("SLUICE", "SLUICE_SASL")) -> list[Door]:
    """Where clients of these listeners of the broker are told to connect, and what stands behind it."""
    return [
        Door(name, kafka.advertised(name)[1], kafka.address(name), kafka.listeners[name].protocol)
        for name in names
    ]


def doors_of_cluster(cluster: KafkaCluster, name: str = "SLUICE") -> list[Door]:
    """Mode broker: a door before each node, named after the listener and the node's id."""
    return [
        Door(
            f"{name}-{node.node_id}",
            node.advertised(name)[1],
            node.address(name),
            node.listeners[name].protocol,
        )
        for node in cluster.nodes
    ]


def gateway_door(
    cluster: KafkaCluster, listener: str = "PLAINTEXT", name: str = "GATEWAY", **gateway: Any
) -> Door:
    """Mode gateway: one door for the whole cluster, which it reaches at this listener of the nodes.

    `gateway`: further keys of the listener's gateway section.
    """
    first_id, count = min(cluster.ids), len(cluster.nodes)
    bind_port = free_port_range(1 + count)
    section = {
        "bootstrap_upstreams": [node.bootstrap_of(listener) for node in cluster.nodes],
        "advertised_host": LOOPBACK,
        "first_broker_port": bind_port + 1,
        "first_broker_id": first_id,
        "max_brokers": count,
        **gateway,
    }
    protocol = cluster.nodes[0].listeners[listener].protocol
    return Door(name, bind_port, None, protocol, {"gateway": section})


class SluiceProcess:
    """A proxy process that can be stopped and started again in the same place.

    `options` are further keys of the configuration. Ends with the `with` block: by SIGTERM, which it must
    obey with exit code 0, after a life without an error of its own.
    """

    def __init__(
        self,
        doors: Sequence[Door],
        quotas: Sequence[Quota] = NO_QUOTAS,
        *,
        quota_file: Path | None = None,
        quota_options: Mapping[str, Any] | None = None,
        program: Sequence[str | Path] = (SLUICE,),
        probes: bool = True,
        **options: Any,
    ) -> None:
        """`quota_options`: further keys of its section `quotas`; with a source of topic there is no file.

        `program`: the command that is Sluice, maybe of another version; it may be exchanged between two
        starts. `probes`: with their section, which the first version does not know.
        """
        self.program = program
        self.doors = {door.name: door for door in doors}
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-test-"))
        self.log = self.folder / "log"
        self.quota_file = quota_file or self.folder / "quotas.yaml"
        self.admin_port = free_port_range(2)  # without their section the probes are behind it
        if quota_file is None:
            self._write_quotas(quotas)
        from_topic = quota_options is not None and quota_options.get("source") == "topic"
        file_option = {} if from_topic and quota_file is None else {"file": str(self.quota_file)}
        config = {
            "listeners": [door.configuration() for door in doors],
            "quotas": {"reload_interval_s": 0.05, **file_option, **(quota_options or {})},
            "admin": {"bind_host": LOOPBACK, "bind_port": self.admin_port}
            | ({"probes": {"bind_port": 0}} if probes else {}),
            **options,
        }
        (self.folder / "sluice.yaml").write_text(json.dumps(config, indent=2))  # JSON is YAML
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, failed: type[BaseException] | None, *_exc_info: object) -> None:
        try:
            if failed is not None:
                print(f"--- the end of Sluice's log ---\n{log_tail(self.log)}\n---", file=sys.stderr)
            elif self._process is not None:
                self.check_unharmed()
                assert self.stop() == 0
        finally:
            self.close()

    def start(self) -> None:
        """Start it and wait until it is ready for connections."""
        assert self._process is None
        command = [*self.program, "run", "--config", self.folder / "sluice.yaml"]
        self._process = GuardedProcess(command, output=self.log, remove_on_death=self.folder)
        self.wait_until(self.has_started, "started", READY_WITHIN_S)

    def stop(self, within_s: float = 40.0) -> int:
        """SIGTERM; returns the exit code once it has ended."""
        process, self._process = self.process, None
        code = process.stop(within_s)
        process.close()
        return code

    def kill(self) -> None:
        """SIGKILL: no drain, no good-bye."""
        process, self._process = self.process, None
        process.kill()
        process.close()

    def close(self) -> None:
        """End it at once and remove its folder. May be called twice."""
        if self._process is not None:
            self._process.close()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def process(self) -> GuardedProcess:
        """The process, while it runs."""
        assert self._process is not None, "the proxy does not run"
        return self._process

    def bootstrap(self, door: str = "SLUICE") -> str:
        """The address for clients, as `host:port`."""
        return self.doors[door].bootstrap

    @property
    def bootstraps(self) -> str:
        """`host:port,…` of all doors."""
        return ",".join(door.bootstrap for door in self.doors.values())

    # Quotas -----------------------------------------------------------------------------------------------

    def set_quotas(self, *quotas: Quota) -> None:
        """Exchange the whole quota file; returns once the proxy has put it in force."""
        text = self._write_quotas(quotas or NO_QUOTAS)
        self.await_quotas(text)

    def await_quotas(self, text: str) -> None:
        """Wait until the proxy says that a quota file with this content is in force."""
        wanted = {"file": "quotas", "hash": hashlib.sha256(text.encode()).hexdigest()[:12]}
        self.wait_until(lambda: self.metric("sluice_config_generation_info", **wanted) == 1.0, "new quotas")

    def exchange_quota_file(self, text: str) -> None:
        """In one step, as a ConfigMap is: a file that is written in place may be read half-written."""
        new = self.quota_file.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.quota_file)

    def _write_quotas(self, quotas: Sequence[Quota]) -> str:
        text = json.dumps({"quotas": list(quotas)})
        self.exchange_quota_file(text)
        return text

    # What an operator sees --------------------------------------------------------------------------------

    def has_started(self) -> bool:
        """What /startupz says; of the broker behind it knows nothing."""
        with contextlib.suppress(OSError), urllib.request.urlopen(self._url("startupz"), timeout=5):
            return True  # any code but 2xx raises
        return False

    def page(self, path: str = "metrics") -> Iterator[Sample]:
        """Every sample of a page of metrics."""
        with urllib.request.urlopen(self._url(path), timeout=30) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            yield from family.samples

    def samples(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The labels and value of every sample of this name on /metrics."""
        for sample in self.page():
            if sample.name == name:
                yield sample.labels, sample.value

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that have these labels."""
        return sum(
            value for sample_labels, value in self.samples(name) if labels.items() <= sample_labels.items()
        )

    def disconnects(self, cause: str) -> int:
        """How many client connections ended for this cause."""
        return int(self.metric("sluice_disconnects_total", cause=cause))

    def log_lines(self, event: str, **fields: object) -> list[dict[str, Any]]:
        """The log's lines of this event that have these fields, since the first start."""
        return self.lines_behind(0, event, fields)

    def lines_behind(
        self, count: int, event: str, fields: Mapping[str, object] = MappingProxyType({})
    ) -> list[dict[str, Any]]:
        """Those of them behind the first `count`.

        A thread writes them: one that there is none of yet may be on its way, behind an answer or a metric.
        """
        for _ in range(_LOOKS):
            if found := self._lines_there(event, fields)[count:]:
                return found
            time.sleep(_ON_ITS_WAY_S)
        return self._lines_there(event, fields)[count:]

    def _lines_there(self, event: str, fields: Mapping[str, object]) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event and fields.items() <= line.items()]

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def wait_until(self, seen: Callable[[], bool], what: str, within_s: float = SHOWN_WITHIN_S) -> None:
        """Wait until something can be seen; AssertionError with the log's tail if it cannot in time."""
        deadline_s = time.monotonic() + within_s
        while not seen():
            code = self.process.exit_code()
            assert code is None, f"sluice ended with exit code {code}:\n{log_tail(self.log)}"
            assert time.monotonic() < deadline_s, f"not {what} in {within_s} s:\n{log_tail(self.log)}"
            time.sleep(0.02)

    def not_ready(self) -> str:
        """What /readyz has against it; empty: nothing."""
        try:
            with urllib.request.urlopen(self._url("readyz"), timeout=5.0):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def check_unharmed(self) -> None:
        """It runs, and nothing that happened was a fault of its own."""
        assert self.process.exit_code() is None
        assert self.disconnects("internal_error") == 0
        text = self.log.read_text()
        assert "Traceback" not in text, text[-5000:]

    def _url(self, page: str) -> str:
        return f"http://{LOOPBACK}:{self.admin_port}/{page}"
