"""An address that cannot be listened on → an error that says which it is, and what was to listen there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CannotListen(OSError):
    """`place`: fields of a log line that say what was to listen, and where."""

    def __init__(self, error: OSError, place: dict[str, str | int]) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.place = place


@contextmanager
def listening(**place: str | int) -> Iterator[None]:
    """Raises CannotListen for an OSError inside, which it tells with `place`."""
    try:
        yield
    except OSError as error:
        raise CannotListen(error, place) from None
