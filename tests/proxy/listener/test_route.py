"""Which bootstrap upstream comes first, by what is learnt of them."""

from __future__ import annotations

from sluice.proxy.listener.circuit import Address, Circuits, Rotation
from sluice.proxy.listener.route import GatewayRoute
from sluice.proxy.session.gateway.broker_map import BrokerMap
from testkit.proxy.playbook import START_MS

A: Address = ("a", 9092)
B: Address = ("b", 9092)


def route_of(*addresses: Address) -> GatewayRoute:
    brokers = BrokerMap("gateway", 9093, 0, 3, bind_port=9092)
    return GatewayRoute(brokers, Rotation(addresses, Circuits()))


def test_a_dial_that_began_before_another_was_preferred_changes_nothing() -> None:
    """`a` takes connections and ends them, so its clients come again and again; `b` has answered."""
    route = route_of(A, B)
    turn = route.turn()
    route.reached(A, turn)
    route.reached(B)
    route.reached(A, turn)
    assert list(route.addresses(None, START_MS)) == [B, A]
    route.reached(A, route.turn())
    assert list(route.addresses(None, START_MS)) == [A, B], "b could not be had"


def test_the_next_comes_first_where_one_says_nothing_unless_another_was_preferred_since() -> None:
    c: Address = ("c", 9092)
    route = route_of(A, B, c)
    turn = route.turn()
    route.silent(A, turn)
    assert list(route.addresses(None, START_MS)) == [B, c, A]
    route.reached(A, turn)
    assert list(route.addresses(None, START_MS)) == [B, c, A], "a connection of before says nothing"
    turn = route.turn()
    route.reached(A)
    route.silent(B, turn)
    assert list(route.addresses(None, START_MS)) == [A, B, c]
    route.silent(c, route.turn())
    assert list(route.addresses(None, START_MS)) == [A, B, c], "behind the last stands the first"


def test_where_no_bootstrap_upstream_takes_connections_the_brokers_that_are_known_do() -> None:
    """Both were gone for good: the address of any broker, and the proxy's own question, came to nothing
    though it knew brokers that were well."""
    circuits = Circuits()
    brokers = BrokerMap("gateway", 9093, 0, 3, bind_port=9092)
    route = GatewayRoute(brokers, Rotation([A, B], circuits))
    brokers.learn(1, *B)
    brokers.learn(2, "c", 9092)

    def fails(address: Address) -> None:
        assert circuits.of(address).may_dial(START_MS)
        circuits.of(address).failed(START_MS, 0.0)

    fails(A)
    assert list(route.addresses(None, START_MS)) == [B, A], "one is there"
    fails(B)
    assert list(route.addresses(None, START_MS)) == [A, B, ("c", 9092)]
    assert circuits.of(A).may_dial(START_MS + 3_600_000.0)
    circuits.of(A).succeeded()
    assert list(route.addresses(None, START_MS)) == [A, B]


def test_the_only_one_stays_the_first_though_it_says_nothing() -> None:
    route = route_of(A)
    route.silent(A, route.turn())
    route.silent(B, route.turn())
    assert (list(route.addresses(None, START_MS)), route.turn()) == ([A], 0)
