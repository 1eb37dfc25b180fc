"""The ports that a configuration binds and the addresses that it dials: do they contradict each other?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    binds: list[_Bind] = []
    for index, listener in enumerate(listeners):
        for key, ports in _ports_of(listener):
            label = f"listener {listener.name!r}" + (" for a broker" if len(key) > 1 else "")
            bind = _Bind(label, listener.bind_host, ports)
            for message in bind.refused_beside(binds):
                yield ("listeners", index, *key), message
            binds.append(bind)
    probe_host, probe_port = admin.probe_address
    for at, bind in (
        (("admin", "bind_port"), _Bind("the admin port", admin.bind_host, _one(admin.bind_port))),
        (("admin", "probes", "bind_port"), _Bind("the probe port", probe_host, _one(probe_port))),
    ):
        for message in bind.refused_beside(binds):
            yield at, message
        binds.append(bind)
    for place, upstream_host, upstream_port in _dialled(listeners, quotas):
        for bind in binds:
            if upstream_port in bind.ports and _leads_to(upstream_host, bind.host):
                address = f"{upstream_host}:{upstream_port}"
                yield place, f"{address} is {bind.label} of this proxy itself; name the broker's own"


@dataclass(frozen=True, slots=True)
class _Bind:
    """Ports of one address, bound one by one."""

    label: str
    host: str
    ports: range

    def refused_beside(self, others: Iterable[_Bind]) -> Iterator[str]:
        """A message for each of `others`, which are bound before, that has a port of this one."""
        for other in others:
            both = range(max(self.ports.start, other.ports.start), min(self.ports.stop, other.ports.stop))
            if both and both[-1] and _same_host(self.host, other.host):
                which = f"port {both[0]} is" if len(both) == 1 else f"ports {both[0]} to {both[-1]} are"
                yield f"{which} taken by {other.label} already; give each its own"


def _one(port: int) -> range:
    return range(port, port + 1)


def _ports_of(listener: ListenerOptions) -> Iterator[tuple[tuple[str, ...], range]]:
    """(key, ports) of all that the listener binds."""
    yield ("bind_port",), _one(listener.bind_port)
    if listener.broker_ports:
        yield ("gateway", "first_broker_port"), listener.broker_ports


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


def _same_host(host: str, other_host: str) -> bool:
    """Whether a port of the second could not be bound after the same of the first."""
    return host == other_host or _is_wildcard(host) or _is_wildcard(other_host)


def _leads_to(upstream_host: str, bind_host: str) -> bool:
    """Whether dialling the upstream surely reaches the bound address. No name is resolved but `localhost`."""
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
