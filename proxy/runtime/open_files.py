"""How many connections the files that a process may open have room for."""

from __future__ import annotations

from math import inf
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Final

from sluice.proxy.connection.limits import FILES_EACH

_OF_OURS: Final = 48
"""files and sockets that no client made, with room for a few more"""
_MOST: Final = 2.0**33


def allowed() -> tuple[float, float]:
    """(soft, hard) limit of this process; inf: any number"""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    return (inf if soft == RLIM_INFINITY else soft), (inf if hard == RLIM_INFINITY else hard)


def for_clients(files: float) -> int:
    """Those of so many that clients may take; at least 0."""
    return max(0, int(min(files, _MOST) - _OF_OURS))


def connections_of(files: float) -> int:
    """That fit into so many files; at least 0."""
    return for_clients(files) // FILES_EACH


def files_of(connections: int) -> int:
    """That so many connections want."""
    return FILES_EACH * connections + _OF_OURS
