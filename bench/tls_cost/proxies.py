"""Sluice and HAProxy where TLS ends, with the same certificate, before the same plaintext broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.proxies import HAPROXY
from testkit.proxy.soak_proxy import Haproxy, RestartableProxy, Sluice

GENEROUS: Final = 10**13
# One thread as Sluice has; the rest, ciphers too, as Debian ships it. No session is kept: every handshake is
# a whole one on both sides, whatever a client offers.
_HAPROXY_CONFIG: Final = """\
global
  nbthread 1
  maxconn 2000
  tune.ssl.cachesize 0
defaults
  mode tcp
  timeout connect 10s
  timeout client 1h
  timeout server 1h
listen bench
  bind 127.0.0.1:{port} ssl crt {pem}
  server broker 127.0.0.1:{upstream_port}
"""


class TlsHaproxy(Haproxy):
    """`pem`: certificate and key in one file."""

    def __init__(self, name: str, folder: Path, port: int, upstream_port: int, pem: Path) -> None:
        super().__init__(name, folder, port, upstream_port)
        self._config.write_text(_HAPROXY_CONFIG.format(port=port, upstream_port=upstream_port, pem=pem))


def tls_proxy(
    name: str, folder: Path, upstream_port: int, certificate: Path, key: Path
) -> tuple[RestartableProxy, int]:
    """The named proxy, not started yet, and the port where clients speak TLS."""
    port, admin_port = free_ports(2)
    if name.startswith(HAPROXY):
        pem = folder / f"{name}.pem"
        pem.write_bytes(certificate.read_bytes() + key.read_bytes())
        return TlsHaproxy(name, folder, port, upstream_port, pem), port
    listener = {
        "name": "bench",
        "bind_port": port,
        "upstream_host": LOOPBACK,
        "upstream_port": upstream_port,
        "security_protocol": "SSL",
        "tls": {"certificate_file": str(certificate), "key_file": str(key)},
        # The principal is ANONYMOUS without client certificates; a plaintext broker sees nobody else anyway.
        "accept_shared_upstream_identity": True,
    }
    quota = {"client-id": "<default>", "producer_byte_rate": GENEROUS, "consumer_byte_rate": GENEROUS}
    return Sluice(name, folder, admin_port, [listener], [quota]), port
