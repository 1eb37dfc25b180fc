"""An address that cannot be listened on → an error that says which it is, and what was to listen there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UNRESOLVED: Final = "it does not resolve"


class CannotListen(OSError):
    """`place`: fields of a log line that say what was to listen, and where."""

    def __init__(self, error: OSError, place: dict[str, str | int]) -> None:
        known = os.strerror(error.errno) if error.errno else str(error)
        super().__init__(error.errno, UNRESOLVED if is_unresolved(error) else known)
        self.place = place

    @property
    def reason(self) -> str:
        """`address already in use`, without what the event loop puts around it."""
        return (self.strerror or str(self)).lower()

    @property
    def remedy(self) -> str:
        """What to do; empty where it is not known."""
        if is_unresolved(self):
            return unresolved_remedy(str(self.place["host"]))
        port = self.place.get("port")
        return listening_remedy(self.errno, port) if isinstance(port, int) else ""


def is_unresolved(error: OSError) -> bool:
    """It is a resolver's. Their numbers are below 0, also where `socket.create_server` has wrapped them."""
    return error.errno is not None and error.errno < 0


def unresolved_remedy(host: str) -> str:
    """What to do if `host`, to be listened on, does not resolve."""
    return f"write an address of this machine, or a name of one: getent hosts {host}"


def listening_remedy(number: int | None, port: int) -> str:
    """What to do if nothing can listen on `port`, by the error's number."""
    if number == errno.EACCES:
        return "choose a port from 1024 on, or allow it: CAP_NET_BIND_SERVICE (systemd: AmbientCapabilities)"
    if number == errno.EADDRNOTAVAIL:
        return "choose an address of this machine: ip address"
    return f"choose another address or port, or end what holds it: ss -ltnp 'sport = :{port}'"


@contextmanager
def listening(**place: str | int) -> Iterator[None]:
    """Raises CannotListen for an OSError inside, which it tells with `place`."""
    try:
        yield
    except OSError as error:
        raise CannotListen(error, place) from None
