"""Which code the bytes of a connection take: a session, a connection and a poller that belong together."""

from __future__ import annotations

from typing import Final, NamedTuple

from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.poller import Poller
from sluice.proxy.session.session import Session
from sluice.usage.tallies import Counting


class DataPath(NamedTuple):
    """What a listener makes for each client."""

    name: str
    """as the metric tells it"""
    session: type[Session]
    connection: type[Connection]
    poller: type[Poller]
    """one for all of them"""
    counting: Counting | None
    """of what they recorded; None: Python counts it all"""


PURE: Final = DataPath("pure", Session, Connection, Poller, None)
"""Python alone: complete, and what runs where the pump is not built or not wanted"""
