"""Which code the bytes of a connection take: a session and a connection that belong together."""

from __future__ import annotations

from typing import Final, NamedTuple

from sluice.proxy.connection.connection import Connection
from sluice.proxy.session.session import Session


class DataPath(NamedTuple):
    """What a listener makes for each client."""

    name: str
    """as the metric tells it"""
    session: type[Session]
    connection: type[Connection]


PURE: Final = DataPath("pure", Session, Connection)
"""Python alone: complete, and what runs where the pump is not built or not wanted"""
