"""What was seen of machine and broker → findings. Pure: time and facts are arguments."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from sluice.proxy.cli.doctor.finding import Finding, Status
from sluice.proxy.runtime.listening import UNRESOLVED, listening_remedy, unresolved_remedy
from sluice.proxy.runtime.open_files import connections_of, files_of

_DAY_S: Final = 86_400.0
CERTIFICATE_WARNING_DAYS: Final = 14.0
CERTIFICATE_WARNING_SHARE: Final = 0.2
"""of its life, where that is less: one that lives for a day is made anew each day"""
BACKLOG: Final = 1_024
"""connections that may wait to be accepted: a fleet of clients comes at once after a restart"""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})
Endpoint = tuple[str, int]


def certificate(
    listener: str, side: str, begin_unix_s: float, end_unix_s: float, now_unix_s: float
) -> Finding:
    """`side`: towards whom the proxy shows it."""
    check = f"certificate of {listener} towards {side}"
    days = (end_unix_s - now_unix_s) / _DAY_S
    if days < 0.0:
        return Finding(Status.FAILED, check, "it has ended", "put a new one in its place; it is followed")
    told = f"ends in {days:,.0f} days" if days >= 2.0 else f"ends in {days * 24.0:.1f} hours"
    life_days = (end_unix_s - begin_unix_s) / _DAY_S
    if days < min(CERTIFICATE_WARNING_DAYS, CERTIFICATE_WARNING_SHARE * life_days):
        return Finding(Status.WARNING, check, told, "put a new one in its place; it is followed")
    return Finding(Status.OK, check, told)


def port(what: str, address: Endpoint, fault: str, *, is_ours: bool) -> Finding:
    """`fault`: why nothing can listen there, empty if it can. `is_ours`: a proxy of this configuration is
    alive, so that a port which is taken is most likely its."""
    host, number = address
    check = f"port {number} of {what}"
    if not fault:
        return Finding(Status.OK, check, "free" if not is_ours else "free, though a proxy runs here")
    if is_ours:
        return Finding(Status.OK, check, "held by the proxy that runs here")
    return Finding(Status.FAILED, check, f"{host}:{number}: {fault}", _port_todo(address, fault))


def ports(listener: str, host: str, numbers: range, faults: Mapping[int, str], *, is_ours: bool) -> Finding:
    """Whether a gateway can listen on its ports, one for each broker. `faults`: why nothing can on some."""
    check = f"ports {numbers[0]} to {numbers[-1]} for brokers of listener {listener}"
    if not faults:
        return Finding(Status.OK, check, "free" if not is_ours else "free, though a proxy runs here")
    if is_ours:
        return Finding(Status.OK, check, "held by the proxy that runs here")
    first = min(faults)
    more = f", and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    todo = _port_todo((host, first), faults[first])
    return Finding(Status.FAILED, check, f"{host}:{first}: {faults[first]}{more}", todo)


def _port_todo(address: Endpoint, fault: str) -> str:
    host, number = address
    if fault == UNRESOLVED:
        return unresolved_remedy(host)
    known = {os.strerror(code).lower(): code for code in (errno.EACCES, errno.EADDRNOTAVAIL)}
    return listening_remedy(known.get(fault), number)


def open_files(soft: float, hard: float, max_connections: int | None) -> Finding:
    """Descriptors that the process may have; `max_connections` as configured, None: as many as fit."""
    check = "open files"
    room = connections_of(soft)
    if max_connections is None or room >= max_connections:
        return Finding(Status.OK, check, f"{_count(soft)} are allowed, room for {room:,} connections")
    wanted = files_of(max_connections)
    todo = f"ulimit -n {wanted} before it starts (systemd: LimitNOFILE={wanted})"
    if hard < wanted:
        todo += f"; the hard limit is {_count(hard)} and has to rise, too"
    told = f"{_count(soft)} are allowed: room for {room:,} of max_connections {max_connections:,}"
    return Finding(Status.WARNING, check, told, todo)


def backlog(somaxconn: int | None) -> Finding:
    """The kernel's cap on connections that wait to be accepted; None: it is not told here."""
    check = "net.core.somaxconn"
    if somaxconn is None:
        return Finding(Status.NOT_ASKED, check, "the kernel does not tell it here")
    if somaxconn >= BACKLOG:
        return Finding(Status.OK, check, f"{somaxconn:,}")
    told = f"{somaxconn:,}: clients that come at once after a restart wait for a second try"
    return Finding(Status.WARNING, check, told, f"sysctl -w net.core.somaxconn={BACKLOG}")


def clock(is_synchronised: bool | None) -> Finding:
    """None: the kernel does not tell."""
    check = "clock"
    if is_synchronised is None:
        return Finding(Status.NOT_ASKED, check, "the kernel does not tell whether something sets it")
    if is_synchronised:
        return Finding(Status.OK, check, "set by NTP or the like")
    return Finding(
        Status.WARNING, check, "nothing sets it: schedules and the access log's times drift",
        "run chrony or systemd-timesyncd on the host",
    )  # fmt: skip


def upstream(listener: str, address: str, fault: str | None, newest: int | None) -> Finding:
    """`fault`: why it gave no answer; `newest`: the newest version of Produce that it offers."""
    check = f"broker of {listener}"
    if fault is not None:
        return Finding(
            Status.FAILED, check, f"{address}: {fault}",
            "is the broker up, is this its listener, and do upstream_security_protocol and upstream_tls fit?",
        )  # fmt: skip
    if newest is None:
        return Finding(
            Status.FAILED, check, f"{address} answers, but offers no Produce: a controller?",
            "name a broker's listener",
        )  # fmt: skip
    return Finding(Status.OK, check, f"{address} answers as a broker (Produce up to version {newest})")


def logins(
    name: str, address: str, taken: Sequence[str], refused: Mapping[str, str], untried: int
) -> Finding:
    """The proxy's own logins. `refused`: whose, and the broker's reason; `untried`: how many further."""
    check = f"login at the broker of {name}"
    more = f"; {untried:,} more were not tried" if untried else ""
    if refused:
        whose, reason = next(iter(refused.items()))
        others = f", and {len(refused) - 1:,} more that are refused" if len(refused) > 1 else ""
        return Finding(
            Status.FAILED, check, f"{address}, {whose}: {reason}{others}{more}",
            "mend the credentials file, which is followed, or the user at the broker",
        )  # fmt: skip
    return Finding(Status.OK, check, f"{address} takes {_some(taken)}{more}")


def name_of_gateway(listener: str, host: str, addresses: Sequence[str], fault: str) -> Finding:
    """`host`: told to clients; `fault`: why it does not resolve."""
    check = f"advertised host of {listener}"
    if fault:
        return Finding(
            Status.WARNING, check, f"{host} does not resolve here: {fault}",
            "right only if clients have another DNS: they connect to it",
        )  # fmt: skip
    return Finding(Status.OK, check, f"{host} is {_some(addresses)}")


def sasl(name: str, address: str, *, wants_login: bool, passes_logins: bool) -> Finding:
    """A broker whose listener wants a login where the configuration has none, or the reverse.

    `passes_logins`: a client's own login goes to the broker all the same.
    """
    check = f"login at the broker of {name}"
    if not wants_login:
        return Finding(
            Status.FAILED, check, f"{address} speaks no SASL at this listener: nobody can log in there",
            "name a listener with SASL, or configure this one without (security_protocol)",
        )  # fmt: skip
    return Finding(
        Status.WARNING if passes_logins else Status.FAILED,
        check,
        f"{address} wants a login: who brings none can do nothing",
        "configure SASL towards this broker (security_protocol), or name a listener without",
    )


def advertised(
    listener: str,
    bind_port: int,
    upstream_address: Endpoint,
    told: Collection[Endpoint],
    addresses: Mapping[str, Collection[str]],
) -> Finding:
    """Where clients are led by the addresses that the broker's listener tells. Mode broker: to the proxy's
    own port, or they connect past it.

    `addresses`: what the names lead to, as far as that is known.
    """
    check = f"way of clients to {listener}"
    names = ", ".join(sorted(f"{host}:{number}" for host, number in told)) or "nobody"
    if any(_is_same(one, upstream_address, bind_port, addresses) for one in told):
        return Finding(
            Status.FAILED, check, f"the broker tells clients {names}: its own listener, past the proxy",
            f"advertise the proxy's port: advertised.listeners=…://HOST:{bind_port} for this listener",
        )  # fmt: skip
    if bind_port in {number for _, number in told}:
        return Finding(Status.OK, check, f"the broker tells clients {names}: the proxy's port")
    return Finding(
        Status.WARNING, check, f"the broker tells clients {names}, and not this listener's port {bind_port}",
        "right only if something leads from there to the proxy (a Service, a load balancer)",
    )  # fmt: skip


def _is_same(
    one: Endpoint, upstream_address: Endpoint, bind_port: int, addresses: Mapping[str, Collection[str]]
) -> bool:
    """Whether `one`, which clients are told, is the broker's own listener."""
    if one == upstream_address:
        return True
    (host, number), (upstream_host, upstream_port) = one, upstream_address
    if number != upstream_port:
        return False
    its, upstreams = set(addresses.get(host, ())), set(addresses.get(upstream_host, ()))
    if number == bind_port:  # the proxy has the same port at another address, which may be among its names
        return bool(its) and its <= upstreams
    return bool(its & upstreams) or bool(its & _LOOPBACK and upstreams & _LOOPBACK)


def past_the_proxy(listener: str, host: str, addresses: Collection[str]) -> Finding:
    """Can a client that knows the broker's address go past the proxy? `addresses`: what `host` leads to."""
    check = f"way past {listener}"
    if addresses and all(ip_address(one).is_loopback for one in addresses):
        return Finding(Status.OK, check, f"the broker's listener is at {host}: from this machine alone")
    return Finding(
        Status.WARNING, check, f"who can reach {host} can connect to the broker past the proxy",
        "bind the broker's listener to localhost, or let only the proxy reach it (NetworkPolicy)",
    )  # fmt: skip


def broker_quotas(name: str, limits: Sequence[str]) -> Finding:
    """Quotas that the broker itself enforces beside the proxy's."""
    check = f"quotas at {name}"
    if not limits:
        return Finding(Status.OK, check, "none: the proxy's alone count")
    told = f"{len(limits):,} at the broker itself, too ({_some(limits)})"
    return Finding(
        Status.WARNING, check, f"{told}; both apply, the lower rules",
        "sluice quotas explain --bootstrap-server shows which; kafka-configs --delete-config removes them",
    )  # fmt: skip


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{', …' * (len(names) > 3)}"


def _count(files: float) -> str:
    return "any number" if files == float("inf") else f"{files:,.0f}"
