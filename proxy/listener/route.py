"""Which addresses lead to the broker that a client wants: one, or those of a cluster as it is known. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sluice.proxy.listener.circuit import Address, Rotation
from sluice.proxy.session.gateway.broker_map import BrokerMap


class Route(Protocol):
    """Where one listener's clients are led. `node_id`: whose port or name was dialled; None: any broker will
    do."""

    def addresses(self, node_id: int | None, now_ms: float) -> Sequence[Address]:
        """To be tried in this order; not empty."""

    def node_of(self, server_name: str) -> int | None:
        """The broker that a TLS client means by this name (SNI)."""

    def upstream(self, node_id: int) -> Address | None:
        """Where this broker is, if that is known."""

    def brokers(self) -> Sequence[Address]:
        """All brokers that are known besides."""

    def turn(self) -> int:
        """Another one when another address comes first."""

    def reached(self, address: Address, turn: int | None = None) -> None:
        """A dial of it succeeded, which began at this `turn`; None: it answers, too."""

    def silent(self, address: Address, turn: int) -> None:
        """A question of the proxy's own that began at this `turn` had no answer in time there."""


class BrokerRoute:
    """Mode broker: always the same."""

    def __init__(self, address: Address) -> None:
        self._addresses = (address,)

    def addresses(self, node_id: int | None, now_ms: float) -> Sequence[Address]:
        """The broker behind the listener."""
        return self._addresses

    def node_of(self, server_name: str) -> int | None:
        """There is but one."""
        return None

    def upstream(self, node_id: int) -> Address | None:
        """None: the one broker never moves."""
        return None

    def brokers(self) -> Sequence[Address]:
        """There is but one."""
        return ()

    def turn(self) -> int:
        """Always the same: there is but one address."""
        return 0

    def reached(self, address: Address, turn: int | None = None) -> None:
        """Does nothing: there is nothing to learn."""

    def silent(self, address: Address, turn: int) -> None:
        """Does nothing: there is no other."""


class GatewayRoute:
    """Mode gateway: a broker where it was last seen; else any of the bootstrap upstreams.

    A client may come to the port of a broker that is not known, for after a restart of the proxy it still has
    the old addresses. Where the proxy cannot ask for the brokers itself any broker stands in, since the
    client's own Metadata is how the proxy learns; but a client that stays with the wrong one is told
    NOT_LEADER_OR_FOLLOWER for ever. So the listener ends such connections once the right one is known.
    """

    def __init__(self, brokers: BrokerMap, bootstrap: Rotation) -> None:
        self._brokers = brokers
        self._bootstrap = bootstrap

    def addresses(self, node_id: int | None, now_ms: float) -> Sequence[Address]:
        """One for a known broker: who wants it is not served by another. While no bootstrap upstream takes
        connections any broker that is known will do, behind them."""
        address = None if node_id is None else self._brokers.upstream(node_id)
        if address is not None:
            return (address,)
        first = self._bootstrap.order(now_ms)
        return first if self._bootstrap.is_there else list(dict.fromkeys([*first, *self.brokers()]))

    def node_of(self, server_name: str) -> int | None:
        """The broker whose name, `broker-<id>.<sni_domain>`, the client asked for."""
        return self._brokers.node_of(server_name)

    def upstream(self, node_id: int) -> Address | None:
        """Where it was last seen."""
        return self._brokers.upstream(node_id)

    def brokers(self) -> Sequence[Address]:
        """Where the brokers were last seen, but for those that have left the cluster."""
        return tuple(self._brokers.present.values())

    def turn(self) -> int:
        """How often another bootstrap upstream has become the first."""
        return self._bootstrap.turns

    def reached(self, address: Address, turn: int | None = None) -> None:
        """The next client that any broker serves begins with it, if it is a bootstrap upstream. A connection
        says less than an answer: one that began before it was known whom to prefer changes nothing."""
        if address in self._bootstrap and turn in (None, self._bootstrap.turns):
            self._bootstrap.good(address)

    def silent(self, address: Address, turn: int) -> None:
        """The next client that any broker serves begins with the next, unless another is preferred by now.
        Clients that the others serve would hide it, and each new one, and the proxy's own next question,
        come to who is frozen."""
        if address in self._bootstrap and turn == self._bootstrap.turns:
            self._bootstrap.silent(address)
