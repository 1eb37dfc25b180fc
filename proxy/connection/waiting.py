"""For what a connection waits, as it stands now: the question that timeouts.py asks once a second."""

from __future__ import annotations

from typing import Final

from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.timeouts import WaitsFor
from sluice.proxy.connection.undialled import Undialled
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.session import Session

# Reaching an enum member through its class costs 40 ns each time, and there may be 5,000 connections.
_NOTHING: Final = WaitsFor.NOTHING
_CLIENT_REQUEST: Final = WaitsFor.CLIENT_REQUEST
_FIRST_REQUEST: Final = WaitsFor.FIRST_REQUEST
_AWAITING_BROKER: Final = State.AWAITING_BROKER


def what_it_waits_for(
    session: Session, client: Peer, broker: Peer, client_kept_bytes: int
) -> tuple[WaitsFor, int]:
    """What must happen next, and the bytes that have moved there. Asks the kernel only about clients behind a
    broker that takes or answers nothing: whether they have left shows nowhere else."""
    is_undialled = type(broker) is Undialled
    if is_undialled and broker.out is not None:  # it is dialled now, which ends by itself
        return _NOTHING, 0
    pace = session.pace
    if not session.identity.authenticated:
        has_left = pace.state is _AWAITING_BROKER and client.has_left  # it is not read then
        return WaitsFor.BROKER_CLIENT_LEFT if has_left else WaitsFor.AUTHENTICATION, 0
    if client.out is not None:
        return WaitsFor.CLIENT_READS, session.bytes_to_client - len(client.out)
    if broker.out is not None or pace.state is _AWAITING_BROKER:
        kept = 0 if broker.out is None else len(broker.out)
        waits_for = WaitsFor.BROKER_CLIENT_LEFT if client.has_left else WaitsFor.BROKER
        return waits_for, session.bytes_from_client + session.bytes_to_client - kept
    if pace.state:  # held, muted or ending
        return _NOTHING, 0
    if client_kept_bytes or not session.at_boundary:
        return WaitsFor.CLIENT_FRAME, session.bytes_from_client + client_kept_bytes
    if session.in_flight:
        return _NOTHING, 0
    waits_for = _FIRST_REQUEST if is_undialled else _CLIENT_REQUEST
    return waits_for, session.bytes_from_client + session.bytes_to_client
