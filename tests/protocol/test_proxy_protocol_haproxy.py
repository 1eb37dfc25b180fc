"""HAProxy as the other side of PROXY v2: Sluice reads what it sends, and it reads what Sluice writes."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sluice.protocol.proxy_protocol import LOCAL_HEADER, Endpoint, ProxyHeader, build_v2, parse_v2
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_ports

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed")


class Balancer(NamedTuple):
    """A running HAProxy, and this test's server behind it."""

    sending_port: int
    """passes a connection on to `behind`, with a header"""
    checked: socket.socket
    """is asked by its health checks, with a header"""
    taking_port: int
    """wants a header, and answers HTTP with the ends that it read"""
    behind: socket.socket


@pytest.fixture(scope="module")
def balancer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balancer]:
    folder = tmp_path_factory.mktemp("haproxy")
    sending_port, taking_port = free_ports(2)
    with socket.create_server((LOOPBACK, 0)) as behind, socket.create_server((LOOPBACK, 0)) as checked:
        behind.settimeout(20)
        checked.settimeout(20)
        (folder / "haproxy.cfg").write_text(f"""
defaults
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend sending
    mode tcp
    bind {LOOPBACK}:{sending_port}
    default_backend behind
backend behind
    mode tcp
    server behind {LOOPBACK}:{behind.getsockname()[1]} send-proxy-v2 proxy-v2-options crc32c
backend checked
    mode tcp
    server checked {LOOPBACK}:{checked.getsockname()[1]} send-proxy-v2 check inter 500
frontend taking
    mode http
    bind {LOOPBACK}:{taking_port} accept-proxy
    http-request return status 200 content-type text/plain lf-string "%[src] %[src_port] %[dst] %[dst_port]"
""")
        assert HAPROXY is not None
        process = GuardedProcess([HAPROXY, "-db", "-f", folder / "haproxy.cfg"], output=folder / "log")
        try:
            for port in (sending_port, taking_port):
                await_port(port, process, folder / "log")
            yield Balancer(sending_port, checked, taking_port, behind)
        finally:
            process.close()


def await_port(port: int, process: GuardedProcess, log: Path) -> None:
    for _ in range(200):
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
        except ConnectionRefusedError:
            assert process.exit_code() is None, log_tail(log, 20)
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"HAProxy does not listen: {log_tail(log, 20)}")


def header_from(connection: socket.socket) -> tuple[ProxyHeader, bytes]:
    """The header that comes first, and what came behind it; nothing more is read than is wanted."""
    data = b""
    while (found := parse_v2(data, 0, len(data))) is None:
        more = connection.recv(1)
        assert more, "HAProxy closed before its header was whole"
        data += more
    assert found.end == len(data)
    return found, data


def test_the_client_of_a_connection_that_haproxy_passes_on(balancer: Balancer) -> None:
    with socket.create_connection((LOOPBACK, balancer.sending_port), timeout=20) as client:
        client.sendall(b"the client's own bytes")
        here, there = Endpoint(*client.getsockname()), Endpoint(*client.getpeername())
        for _ in range(100):  # the connections that waited for the port were passed on, too
            with balancer.behind.accept()[0] as passed_on:
                passed_on.settimeout(20)
                header, raw = header_from(passed_on)
                if header.source != here:
                    continue
                assert header == (here, there, 16 + 12 + 7)
                assert raw[28:31] == b"\x03\x00\x04", "a TLV: HAProxy's checksum"
                assert passed_on.recv(3) == b"the"
                return
    raise AssertionError("HAProxy named another client")


def test_the_health_check_of_haproxy_has_nobody_behind_it(balancer: Balancer) -> None:
    with balancer.checked.accept()[0] as check:
        check.settimeout(20)
        header, _ = header_from(check)
    assert (header.source, header.destination) == (None, None)


def ends_read_by(balancer: Balancer, header: bytes) -> list[str]:
    with socket.create_connection((LOOPBACK, balancer.taking_port), timeout=20) as client:
        client.sendall(header + b"GET / HTTP/1.0\r\n\r\n")
        answer = b""
        while more := client.recv(4096):
            answer += more
    return answer.partition(b"\r\n\r\n")[2].decode().split()


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (("10.1.2.3", 40_000), ("192.168.0.1", 9092)),
        (("2001:db8::1", 1), ("2001:db8::ff", 65_535)),
    ],
)
def test_haproxy_reads_the_ends_that_sluice_writes(
    balancer: Balancer, source: tuple[str, int], destination: tuple[str, int]
) -> None:
    read = ends_read_by(balancer, build_v2(source, destination))
    assert read == [source[0], str(source[1]), destination[0], str(destination[1])]


def test_haproxy_takes_a_local_header_for_the_connection_itself(balancer: Balancer) -> None:
    read = ends_read_by(balancer, LOCAL_HEADER)
    assert (read[0], read[2], read[3]) == (LOOPBACK, LOOPBACK, str(balancer.taking_port))
