"""Which bootstrap upstream comes first, by what is learnt of them."""

from __future__ import annotations

from sluice.proxy.listener.circuit import Address, Circuits, Rotation
from sluice.proxy.listener.route import GatewayRoute
from sluice.proxy.session.gateway.broker_map import BrokerMap
from testkit.proxy.playbook import START_MS

A: Address = ("a", 9092)
B: Address = ("b", 9092)


def test_a_dial_that_began_before_another_was_preferred_changes_nothing() -> None:
    """`a` takes connections and ends them, so its clients come again and again; `b` has answered."""
    route = GatewayRoute(BrokerMap("gateway", 9093, 0, 3, bind_port=9092), Rotation([A, B], Circuits()))
    turn = route.turn()
    route.reached(A, turn)
    route.reached(B)
    route.reached(A, turn)
    assert list(route.addresses(None, START_MS)) == [B, A]
    route.reached(A, route.turn())
    assert list(route.addresses(None, START_MS)) == [A, B], "b could not be had"
