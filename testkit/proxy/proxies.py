"""Starts the proxies under test on loopback: HAProxy, Sluice, and a bare relay for comparison.

Each is one process, in front of one upstream, in a temporary folder; its output is kept there until the end.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_port_range, free_ports
from testkit.processes.process import BenchError, wait_for_port

SLUICE: Final = "sluice"
SLUICE_WITH_IDS: Final = "sluice with producer_ids_rate"
SLUICE_BEFORE_FOLLOWERS: Final = "sluice before followers"
HAPROXY: Final = "haproxy"
RELAY: Final = "relay"
OURS: Final = Path(sys.executable).with_name("sluice")

# Nothing special: no log, one thread as the others, time-outs that no idle connection reaches, buffers and
# splicing as Debian ships them.
_HAPROXY_CONFIG: Final = """\
global
  nbthread 1
  maxconn {max_connections}
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen bench
  bind 127.0.0.1:{port}
  server broker 127.0.0.1:{upstream_port}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that runs, of whatever make."""

    name: str
    pid: int
    port: int


def ensure_haproxy() -> str:
    """Path of the haproxy command, installed from Debian when this process may do so.

    Raises BenchError that names the package when it is missing and cannot be installed.
    """
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("haproxy is missing: installing Debian's package", flush=True)
        env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-yq", "haproxy"]):
            subprocess.run(command, env=env, check=False, stdout=subprocess.DEVNULL)
        found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise BenchError("haproxy is missing; install it: apt-get install haproxy")
    return found


def haproxy_version(haproxy: str) -> str:
    """First line of `haproxy -v`, without its link."""
    shown = subprocess.run([haproxy, "-v"], capture_output=True, text=True, check=True).stdout
    return shown.splitlines()[0].split(" - ")[0]


@contextlib.contextmanager
def start(name: str, upstream_port: int, max_connections: int, program: Path = OURS) -> Iterator[Proxy]:
    """The named proxy in front of a loopback port, ready for connections; stopped when the block ends.

    `program` is the command `sluice`, if it is not to be this checkout's.
    Sluice runs with everything on: quotas that charge every request and that no benchmark exceeds. (But new
    producer ids are limited only in SLUICE_WITH_IDS, for most users do without, and followers' sessions
    mirrored only in SLUICE_BEFORE_FOLLOWERS, which finds no broker to ask for throttles.)
    Raises BenchError with the end of its log when it does not come up or ends with an error.
    """
    if name in {SLUICE, SLUICE_WITH_IDS, SLUICE_BEFORE_FOLLOWERS}:
        quotas: list[Mapping[str, object]] = [
            {"client-id": "<default>", "producer_byte_rate": 10**13, "consumer_byte_rate": 10**13}
        ]
        if name == SLUICE_WITH_IDS:
            quotas.append({"user": "<default>", "producer_ids_rate": 1000})
        options: dict[str, Any] = {}
        if name == SLUICE_BEFORE_FOLLOWERS:
            nobody = f"{LOOPBACK}:{free_ports(1)[0]}"
            options["replication"] = {
                "listener": "bench0",
                "leader_id": 1,
                "bootstrap": [nobody],
                "refresh_interval_s": 3600,
            }
        with sluice([upstream_port], quotas, program=program, **options) as (pid, ports):
            yield Proxy(name, pid, ports[0])
        return
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        if name == HAPROXY:
            config = Path(folder, "haproxy.cfg")
            config.write_text(
                _HAPROXY_CONFIG.format(
                    port=port, upstream_port=upstream_port, max_connections=max_connections
                )
            )
            command: Sequence[str] = [ensure_haproxy(), "-db", "-f", str(config)]
        else:
            command = [sys.executable, "-m", "bench.lib.relay", str(port), str(upstream_port)]
        with _logged(name, command, Path(folder, "log")) as process:
            wait_for_port(port, process, name)
            yield Proxy(name, process.pid, port)


@contextlib.contextmanager
def sluice(
    upstream_ports: Sequence[int],
    quotas: Sequence[Mapping[str, object]],
    ports: Sequence[int] | None = None,
    *,
    quota_file: Path | None = None,
    program: Path = OURS,
    **options: Any,
) -> Iterator[tuple[int, list[int]]]:
    """`sluice run` with one listener for each upstream port, ready (/startupz): its pid and listening ports.

    `quotas` are the entries of the quota file, which is made at `quota_file`, else where nobody finds it;
    `ports` are to listen on, else free ones are taken; `options` are further keys of the configuration.
    """
    bind_ports = list(ports) if ports else free_ports(len(upstream_ports))
    admin_port = free_port_range(2)  # and the probes' behind it: an older version does not know that option
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        file = quota_file or Path(folder, "quotas.yaml")
        file.write_text(json.dumps({"quotas": list(quotas)}))  # JSON is YAML
        config = {
            "listeners": [
                {
                    "name": f"bench{index}",
                    "bind_host": LOOPBACK,
                    "bind_port": port,
                    "upstream_host": LOOPBACK,
                    "upstream_port": upstream_port,
                }
                for index, (port, upstream_port) in enumerate(zip(bind_ports, upstream_ports, strict=True))
            ],
            "quotas": {"file": str(file)},
            "admin": {"bind_host": LOOPBACK, "bind_port": admin_port},
            **options,
        }
        Path(folder, "sluice.yaml").write_text(json.dumps(config, indent=2))
        command = [
            str(program),
            "run",
            "--config",
            str(Path(folder, "sluice.yaml")),
        ]
        with _logged(SLUICE, command, Path(folder, "log")) as process:
            _wait_until_ready(admin_port, process)
            yield process.pid, bind_ports


@contextlib.contextmanager
def _logged(name: str, command: Sequence[str], log: Path) -> Iterator[GuardedProcess]:
    with GuardedProcess(command, output=log) as process:
        try:
            yield process
        except BaseException:
            print(f"--- the end of {name}'s log ---\n{log_tail(log)}\n---", file=sys.stderr)
            raise
        if process.exit_code() is not None:
            raise BenchError(f"{name} ended with exit code {process.exit_code()}:\n{log_tail(log)}")
        process.stop()


def _wait_until_ready(admin_port: int, process: GuardedProcess, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if process.exit_code() is not None:
            raise BenchError(f"sluice ended with exit code {process.exit_code()} before it was ready")
        url = f"http://{LOOPBACK}:{admin_port}/startupz"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2):  # any code but 2xx raises
            return
        time.sleep(0.05)
    raise BenchError(f"sluice is not ready after {within_s:.0f} s")
