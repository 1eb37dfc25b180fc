"""A proxy that is stopped and started again on the same ports, and what an operator sees of it meanwhile.

Sluice as its users run it, or in its place HAProxy or a bare relay, which know nothing of Kafka: with them
the same restarts tell what a client makes of a lost connection, whoever lost it. One process for each.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from prometheus_client.parser import text_string_to_metric_families

from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError, rss_bytes
from testkit.proxy.proxies import ensure_haproxy

READY_WITHIN_S: Final = 20.0
END_WITHIN_S: Final = 40.0  # a drain takes 25 s at most
_POLL_S: Final = 0.05

_HAPROXY_CONFIG: Final = """\
global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen soak
  bind 127.0.0.1:{port}
  server broker 127.0.0.1:{upstream_port}
"""


class RestartableProxy(ABC):
    """One proxy process at a time, in one place. Its log goes on over restarts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that is run."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether it takes connections."""

    @property
    def pid(self) -> int:
        """Raises BenchError if it does not run."""
        if self._process is None:
            raise BenchError(f"{self.name} does not run")
        return self._process.pid

    def start(self) -> None:
        """Returns once it takes connections. Raises BenchError with its log's tail if it does not."""
        process = self._process = GuardedProcess(
            self.command(), output=self.log, remove_on_death=self.log.parent
        )
        deadline_s = time.monotonic() + READY_WITHIN_S
        while not self.is_ready():
            if process.exit_code() is not None or time.monotonic() > deadline_s:
                raise BenchError(f"{self.name} is not ready:\n{log_tail(self.log)}")
            time.sleep(_POLL_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code once it has ended."""
        if self._process is None:
            raise BenchError(f"{self.name} does not run")
        process, self._process = self._process, None
        code = process.stop(END_WITHIN_S)
        process.close()
        return code

    def close(self) -> None:
        """End it at once. May be called twice."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def check_alive(self) -> None:
        """Raises BenchError with its log's tail if it has ended by itself."""
        if self._process is not None and (code := self._process.exit_code()) is not None:
            raise BenchError(f"{self.name} ended with exit code {code}:\n{log_tail(self.log)}")

    def rss_bytes(self) -> int:
        """Resident memory of the process now."""
        return rss_bytes(self.pid)

    def open_files(self) -> int:
        """File descriptors open now, sockets included."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Sluice(RestartableProxy):
    """`sluice run` with these listeners and quotas; `options` are further keys of the configuration."""

    def __init__(
        self,
        name: str,
        folder: Path,
        admin_port: int,
        listeners: Sequence[Mapping[str, Any]],
        quotas: Sequence[Mapping[str, object]],
        **options: Any,
    ) -> None:
        super().__init__(name, folder)
        self._admin_port = admin_port
        self._config = folder / f"{name}.yaml"
        quota_file = folder / f"{name}-quotas.yaml"
        quota_file.write_text(json.dumps({"quotas": list(quotas)}))  # JSON is YAML
        config = {
            "listeners": [{"bind_host": LOOPBACK, **listener} for listener in listeners],
            "quotas": {"file": str(quota_file)},
            "admin": {"bind_host": LOOPBACK, "bind_port": admin_port, "probes": {"bind_port": 0}},
            **options,
        }
        self._config.write_text(json.dumps(config, indent=2))

    def command(self) -> list[str]:
        return [str(Path(sys.executable).with_name("sluice")), "run", "--config", str(self._config)]

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(self._url("startupz"), timeout=5):
            return True  # any code but 2xx raises
        return False

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every sample of this name on /metrics."""
        with urllib.request.urlopen(self._url("metrics"), timeout=30) as answer:
            text = answer.read().decode()
        return [
            (dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def metric(self, name: str) -> float:
        """The sum of all samples of this name."""
        return sum(value for _, value in self.samples(name))

    def disconnects(self) -> dict[str, int]:
        """How many client connections have ended, by cause; causes that never happened are left out."""
        samples = self.samples("sluice_disconnects_total")
        return {labels["cause"]: int(value) for labels, value in samples if value}

    def faults_logged(self) -> list[str]:
        """Lines of the log that tell of a fault of its own, over all its lives."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if "internal_error" in line or "Traceback" in line]

    def _url(self, page: str) -> str:
        return f"http://{LOOPBACK}:{self._admin_port}/{page}"


class Haproxy(RestartableProxy):
    """HAProxy in TCP mode; SIGTERM ends it at once, as it is."""

    def __init__(self, name: str, folder: Path, port: int, upstream_port: int) -> None:
        super().__init__(name, folder)
        self._port = port
        self._config = folder / f"{name}.cfg"
        self._config.write_text(_HAPROXY_CONFIG.format(port=port, upstream_port=upstream_port))

    def command(self) -> list[str]:
        return [ensure_haproxy(), "-db", "-f", str(self._config)]

    def is_ready(self) -> bool:
        return listens(self.pid, self._port)


class BareRelay(RestartableProxy):
    """The relay of bench.lib.relay; SIGTERM ends it at once."""

    def __init__(self, name: str, folder: Path, port: int, upstream_port: int) -> None:
        super().__init__(name, folder)
        self._ports = (port, upstream_port)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.lib.relay", *map(str, self._ports)]

    def is_ready(self) -> bool:
        return listens(self.pid, self._ports[0])


def listens(pid: int, port: int) -> bool:
    """Whether somebody in the process's network listens on this IPv4 port: seen without connecting to it.

    Source: proc(5), /proc/PID/net/tcp; state 0A is LISTEN.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False
