"""What is known of topics besides what a broker says when it is asked: shared by the process's connections.

How many partitions a new topic has where nobody says; and what has just been done through this proxy, for a
broker hears of it from the controller only after a while (a second, on a busy machine). Pure; time is given.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.mutations.requests import TopicKey

RECENT_MS: Final = 10_000.0
"""for so long what was done here counts more than what a broker says"""
_MAX_RECENT: Final = 10_000


class TopicDefaults:
    """Bounded: the oldest of what has just been done is forgotten first."""

    __slots__ = ("_recent", "partitions")

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        """of a new topic (Kafka: num.partitions): as configured, then as the last answer told"""
        self._recent: dict[TopicKey, tuple[int, float]] = {}

    def remember(self, topic: TopicKey, partitions: int, now_ms: float) -> None:
        """A broker has just said that the topic now has so many; 0: it is deleted."""
        recent = self._recent
        recent.pop(topic, None)
        while recent:
            oldest = next(iter(recent))
            if len(recent) < _MAX_RECENT and now_ms - recent[oldest][1] < RECENT_MS:
                break
            del recent[oldest]
        recent[topic] = partitions, now_ms

    def recent(self, topic: TopicKey, now_ms: float) -> int | None:
        """How many it has by what was done lately; None: nothing was."""
        known = self._recent.get(topic)
        return None if known is None or now_ms - known[1] >= RECENT_MS else known[0]
