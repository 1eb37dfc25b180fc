"""A gateway's brokers: id ↔ the address it has in truth ↔ the address that clients are told. Pure.

Learnt from the answers of brokers as they pass to clients, and from the proxy's own poll
(protocol/addresses/metadata_poll.py); never from a client. What clients are told hangs on the id alone: port
= first_broker_port + (id − first_broker_id), or the name broker-<id>.<sni_domain>. So it is the same in every
instance and after every restart, whatever has been learnt, and a client's old metadata stays true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, TypeAlias

HostPort: TypeAlias = tuple[str, int]

_MAX_HOST_CHARS: Final = 255
"""RFC 1035; a longer one cannot be dialled, and would only be remembered."""
_MAX_PORT: Final = 2**16 - 1
_LEFT_MS: Final = 24 * 3_600_000.0
"""longer than a broker is down for repair: one that is not listed for so long has left the cluster"""
_MAX_CLAIMS: Final = 100
"""looked at at a time: a whole cluster that has moved; others are made again by the next answer"""
_MAX_OUT_OF_RANGE_IDS: Final = 100
"""remembered for the log; beyond, ids are counted and forgotten"""
_SMALL: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class BrokerMap:
    """The brokers of one gateway listener, shared by its sessions. Bounded by `max_brokers`."""

    def __init__(
        self,
        advertised_host: str,
        first_broker_port: int,
        first_broker_id: int = 0,
        max_brokers: int = 50,
        *,
        bind_port: int,
        sni_domain: str | None = None,
        bootstrap_upstreams: Iterable[HostPort] = (),
    ) -> None:
        """`bind_port`: where clients find the gateway at first; with `sni_domain` the only port.

        `bootstrap_upstreams` are only kept so that they are hidden too. Raises ValueError if the last
        broker's port would not exist.
        """
        if sni_domain is None and not 0 < first_broker_port <= _MAX_PORT - max_brokers + 1:
            raise ValueError(f"no room for {max_brokers} ports from {first_broker_port} on")
        self._host = advertised_host
        self._first_port = first_broker_port
        self._ids = range(first_broker_id, first_broker_id + max_brokers)
        self._domain = None if sni_domain is None else sni_domain.lower().strip(".")
        self.bootstrap: Final[HostPort] = (
            (advertised_host, bind_port) if self._domain is None else (f"bootstrap.{self._domain}", bind_port)
        )
        """what clients are told at first, and what stands for an address that has no other"""
        self._bootstrap_upstreams = tuple(bootstrap_upstreams)
        self._upstreams: dict[int, HostPort] = {}
        self.when_claimed: Callable[[int, HostPort], None] | None = None
        """Called once for each claim that a known broker has moved, until it is settled. None: nobody can ask
        the broker there, and each answer is believed."""
        self._claims: set[tuple[int, HostPort]] = set()
        self._unlisted_since_ms: dict[int, float] = {}
        self._left: set[int] = set()
        self._out_of_range: set[int] = set()
        self._real: re.Pattern[str] | None = None  # made when it is needed, as what follows
        self._told: dict[str, str] = {}  # real address, folded → what clients are told
        self.out_of_range_count = 0
        """how often an id outside the range was told as the bootstrap address"""

    def __repr__(self) -> str:
        return f"<BrokerMap of {len(self._upstreams)} brokers, ids {self._ids.start} to {self._ids.stop - 1}>"

    # Upstream -------------------------------------------------------------------------------------------

    def learn(self, node_id: int, host: str, port: int) -> None:
        """A broker said that `node_id` has this address.

        Nothing is ever unlearnt but by a new address for the same id: a Metadata answer lists the brokers
        that are alive, so that one missing there is only down. Its port stays bound and its clients dial it
        again; where it comes back is most often where it was, and if not, its next Metadata says so.
        That a known broker has moved is only a claim (`when_claimed`): a broker that is cut off from its
        controllers goes on telling what was, and its clients would mislead all others.
        An id out of the range, or what cannot be dialled, is not learnt.
        """
        if node_id not in self._ids or not (0 < len(host) <= _MAX_HOST_CHARS and 0 < port <= _MAX_PORT):
            return
        known, claim = self._upstreams.get(node_id), (node_id, (host, port))
        if known == claim[1]:
            return
        if known is None or self.when_claimed is None:
            self._set(*claim)
        elif claim not in self._claims and len(self._claims) < _MAX_CLAIMS:
            self._claims.add(claim)
            self.when_claimed(*claim)

    def settle(self, node_id: int, address: HostPort, *, is_true: bool) -> None:
        """What became of a claim: true if the broker at `address` says that it is `node_id`'s. It may be made
        again."""
        self._claims.discard((node_id, address))
        if is_true:
            self._set(node_id, address)

    def _set(self, node_id: int, address: HostPort) -> None:
        self._upstreams[node_id] = address
        self._real = None

    def upstream(self, node_id: int) -> HostPort | None:
        """Where the broker is now, or was last; None: it has not been heard of (dial a bootstrap
        upstream)."""
        return self._upstreams.get(node_id)

    @property
    def upstreams(self) -> dict[int, HostPort]:
        """All that have been learnt, by id."""
        return dict(sorted(self._upstreams.items()))

    def listed(self, node_ids: Collection[int], now_ms: float) -> None:
        """The gateway's own question was answered: these are alive. Who is not among them is down, and after
        a day has left (`present`), until it is listed again."""
        unlisted = self._upstreams.keys() - set(node_ids)
        self._unlisted_since_ms = {i: self._unlisted_since_ms.get(i, now_ms) for i in unlisted}
        self._left = {i for i, since_ms in self._unlisted_since_ms.items() if now_ms >= since_ms + _LEFT_MS}

    @property
    def present(self) -> dict[int, HostPort]:
        """Those of `upstreams` that have not left the cluster."""
        return {i: address for i, address in self.upstreams.items() if i not in self._left}

    # Advertised -----------------------------------------------------------------------------------------

    def advertised(self, node_id: int) -> HostPort:
        """What clients are told of a broker, known or not.

        An id outside the range has no port here. Its real address must not leak, so it is told as the
        bootstrap address: clients reach some broker there, which is not the one they look for. They go on
        asking, and `out_of_range` says which ids the configuration lacks.
        """
        if node_id not in self._ids:
            self.out_of_range_count += 1
            if len(self._out_of_range) < _MAX_OUT_OF_RANGE_IDS:
                self._out_of_range.add(node_id)
            return self.bootstrap
        if self._domain is not None:
            return f"broker-{node_id}.{self._domain}", self.bootstrap[1]
        return self._host, self._first_port + node_id - self._ids.start

    def mapping(self, node_id: int, _host: str, _port: int) -> HostPort:
        """`advertised` as an AddressMap of protocol/addresses/addresses.py."""
        return self.advertised(node_id)

    @property
    def out_of_range(self) -> tuple[int, ...]:
        """Ids seen in answers for which no port is configured, at most the first 100."""
        return tuple(sorted(self._out_of_range))

    def node_ids(self) -> range:
        """The ids that have a port or a name of their own."""
        return self._ids

    def node_of(self, server_name: str | None) -> int | None:
        """The broker that a client means by the TLS server name; None: the bootstrap.

        So is any other name, and none: a client may come by an alias or an IP address at first, and from
        then on uses the names that it is told.
        """
        if server_name is None or self._domain is None:
            return None
        name, _, domain = server_name.lower().rstrip(".").partition(".")
        found = re.fullmatch(r"broker-(0|[1-9]\d{0,9})", name, re.ASCII)
        if found is None or domain != self._domain or int(found[1]) not in self._ids:
            return None
        return int(found[1])

    # Text -----------------------------------------------------------------------------------------------

    def real_addresses(self) -> tuple[str, ...]:
        """Every real address known, as text: `host:port` (`[host]:port` for IPv6) and the hosts alone."""
        real = [*self._upstreams.values(), *self._bootstrap_upstreams]
        texts = [in_text(address) for address in real] + [host for host, _ in real]
        return tuple(dict.fromkeys(texts))

    def hide(self, value: str) -> str:
        """`value`, any text, with what clients are told in the place of every real address in it.

        A host without a port counts only if it has a dot or a colon: one like `kafka` may be part of a path
        or the name of a class.
        """
        pattern = self._real or self._compile()
        return pattern.sub(lambda found: self._told[_folded(found[0])], value)

    def known_as(self, address: str) -> str | None:
        """What clients are told in the place of `host:port` or a host; None if no such address is known."""
        if self._real is None:
            self._compile()
        return self._told.get(_folded(address))

    def _compile(self) -> re.Pattern[str]:
        brokers = [(real, self.advertised(node_id)) for node_id, real in self._upstreams.items()]
        told = {}
        for real, instead in [*((real, self.bootstrap) for real in self._bootstrap_upstreams), *brokers]:
            told[_folded(in_text(real))] = in_text(instead)
            told[_folded(real[0])] = instead[0]
        self._told = told
        telling = sorted((real for real in told if "." in real or ":" in real), key=len, reverse=True)
        anything = "|".join(map(re.escape, telling)) or r"(?!)"
        # As `_folded` does: Unicode's rules take the dotless i for an i, too, which no table of ours has.
        self._real = re.compile(rf"(?<![\w.\-])(?ai:{anything})(?![\w\-]|\.\w)")
        return self._real


def _folded(text: str) -> str:
    """In small letters, as hosts' names are compared (RFC 4343): those of ASCII alone."""
    return text.translate(_SMALL)


@lru_cache(maxsize=1_024)
def in_text(address: HostPort) -> str:
    """`host:port`, `[host]:port` for IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
