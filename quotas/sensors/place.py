"""One connection's place in the turns of one bucket."""

from __future__ import annotations

from math import inf


class Place:
    """One connection's in the turns of one bucket."""

    __slots__ = ("kept_tag", "kept_until_ms", "tag")

    def __init__(self) -> None:
        self.tag = 0.0
        """of its last request that went"""
        self.kept_tag = 0.0
        self.kept_until_ms = -inf
        """until then it has its place, though it does not wait here: it was told to come again"""

    def keep(self, tag: float, until_ms: float) -> None:
        """Its client was told to come again: it loses nothing to those who do not wait as they are told."""
        self.kept_tag, self.kept_until_ms = tag, until_ms


class Expected:
    """Requests that are to come from clients who were told to wait: bytes, and until when they count."""

    __slots__ = ("_places", "total_bytes")

    def __init__(self) -> None:
        self._places: dict[Place, tuple[float, float]] = {}
        self.total_bytes = 0.0

    def add(self, place: Place, request_bytes: float, until_ms: float) -> None:
        """As many bytes again as it has sent last."""
        self.came(place)
        self._places[place] = (request_bytes, until_ms)
        self.total_bytes += request_bytes

    def bytes_to(self, tag: float) -> float:
        """Bytes expected whose tag will be no higher than this one."""
        return sum(
            request_bytes
            for place, (request_bytes, _) in self._places.items()
            if place.kept_tag + request_bytes <= tag
        )

    def came(self, place: Place) -> None:
        """Its request is here, or will not come."""
        known = self._places.pop(place, None)
        if known is not None:
            self.total_bytes -= known[0]
            if not self._places:
                self.total_bytes = 0.0

    def forget(self, now_ms: float) -> None:
        """Who has not come by now is not waited for. (By the first of them: they are mostly in order.)"""
        while self._places:
            place, (_, until_ms) = next(iter(self._places.items()))
            if until_ms > now_ms:
                break
            self.came(place)
