"""An address that cannot be listened on → an error that says which it is, and what was to listen there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager


class CannotListen(OSError):
    """`place`: fields of a log line that say what was to listen, and where."""

    def __init__(self, error: OSError, place: dict[str, str | int]) -> None:
        super().__init__(error.errno, os.strerror(error.errno) if error.errno else str(error))
        self.place = place

    @property
    def reason(self) -> str:
        """`address already in use`, without what the event loop puts around it."""
        return (self.strerror or str(self)).lower()

    @property
    def remedy(self) -> str:
        """What to do; empty where it is not known."""
        port = self.place.get("port")
        return listening_remedy(self.errno, port) if isinstance(port, int) else ""


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
