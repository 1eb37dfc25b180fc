"""The ports that a configuration binds and the addresses that it dials: do they contradict each other?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from sluice.proxy.config.admin import AdminOptions
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.options import host_and_port
from sluice.proxy.config.quotas import QuotaOptions


def port_contradictions(
    listeners: Sequence[ListenerOptions], admin: AdminOptions, quotas: QuotaOptions
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Two that want one port, and listeners that would dial this proxy itself: (path of the key to change,
    what is wrong and the remedy)."""
    binds: list[tuple[str, str, int]] = []
    for index, listener in enumerate(listeners):
        for key, port in _ports_of(listener):
            for label, host, taken in binds:
                if _same_port(host, taken, listener.bind_host, port):
                    yield (
                        ("listeners", index, *key),
                        f"port {port} is taken by {label} already; give each its own",
                    )
            label = f"listener {listener.name!r}" + (" for a broker" if len(key) > 1 else "")
            binds.append((label, listener.bind_host, port))
    for label, host, port in binds:
        if _same_port(host, port, admin.bind_host, admin.bind_port):
            yield ("admin", "bind_port"), f"port {port} is taken by {label} already; give each its own"
    binds.append(("the admin port", admin.bind_host, admin.bind_port))
    probe_host, probe_port = admin.probe_address
    for label, host, port in binds:
        if _same_port(host, port, probe_host, probe_port):
            yield (
                ("admin", "probes", "bind_port"),
                f"port {probe_port} is taken by {label} already; give each its own",
            )
    binds.append(("the probe port", probe_host, probe_port))
    for place, upstream_host, upstream_port in _dialled(listeners, quotas):
        for label, host, port in binds:
            if _leads_to(upstream_host, upstream_port, host, port):
                address = f"{upstream_host}:{port}"
                yield place, f"{address} is {label} of this proxy itself; name the broker's own"


def _ports_of(listener: ListenerOptions) -> Iterator[tuple[tuple[str, ...], int]]:
    """(key, port) of every port that the listener binds."""
    yield ("bind_port",), listener.bind_port
    gateway = listener.gateway
    if gateway is not None and gateway.sni_domain is None and gateway.first_broker_port is not None:
        for port in range(gateway.first_broker_port, gateway.first_broker_port + gateway.max_brokers):
            yield ("gateway", "first_broker_port"), port


def _dialled(
    listeners: Sequence[ListenerOptions], quotas: QuotaOptions
) -> Iterator[tuple[tuple[str | int, ...], str, int]]:
    """(path of the key, host, port) of every address that the process is told to dial."""
    for index, listener in enumerate(listeners):
        at = ("listeners", index)
        if listener.upstream_host is not None and listener.upstream_port is not None:
            yield (*at, "upstream_port"), listener.upstream_host, listener.upstream_port
        if listener.gateway is not None:
            for number, address in enumerate(listener.gateway.bootstrap_upstreams):
                yield (*at, "gateway", "bootstrap_upstreams", number), *host_and_port(address)
    for number, address in enumerate(quotas.topic.bootstrap if quotas.topic else ()):
        yield ("quotas", "topic", "bootstrap", number), *host_and_port(address)


def _same_port(host: str, port: int, other_host: str, other_port: int) -> bool:
    """Whether binding the second address would fail after the first."""
    if port != other_port or port == 0:
        return False
    return host == other_host or _is_wildcard(host) or _is_wildcard(other_host)


def _leads_to(upstream_host: str, upstream_port: int, bind_host: str, bind_port: int) -> bool:
    """Whether dialling the upstream surely reaches the bound address. No name is resolved but `localhost`."""
    if upstream_port != bind_port:
        return False
    if upstream_host == bind_host:
        return True
    return _is_wildcard(bind_host) and (_is_loopback(upstream_host) or _is_wildcard(upstream_host))


def _is_wildcard(host: str) -> bool:
    return host in {"0.0.0.0", "::", "*"}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
