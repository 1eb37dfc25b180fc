"""What is known of topics besides what a broker says when it is asked: shared by the process's connections.

How many partitions a new topic has where nobody says; and what has just been done through this proxy, for a
broker hears of it from the controller only after a while: a second on a busy machine, minutes where 10,000
partitions were made at once. Pure; time is given.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.apis import ApiKey
from sluice.protocol.mutations.requests import TopicKey

RECENT_MS: Final = 10_000.0
"""for so long what was done here counts more than what a broker says"""
UNHEARD_MS: Final = 600_000.0
"""for so long it is held against what brokers say that have not been seen to have heard of it"""
_MAX_RECENT: Final = 10_000


class TopicDefaults:
    """Bounded: the oldest of what has just been done is forgotten first."""

    __slots__ = ("_recent", "partitions")

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        """of a new topic (Kafka: num.partitions): as configured, then as the last answer told"""
        self._recent: dict[TopicKey, tuple[int, float, float]] = {}  # partitions, since when, until when

    def remember(self, topic: TopicKey, partitions: int, now_ms: float) -> None:
        """A broker has just said that the topic now has so many; 0: it is deleted."""
        recent = self._recent
        recent.pop(topic, None)
        while recent:
            oldest = next(iter(recent))
            if len(recent) < _MAX_RECENT and now_ms < recent[oldest][2]:
                break
            del recent[oldest]
        recent[topic] = partitions, now_ms, now_ms + UNHEARD_MS

    def heard(self, topic: TopicKey, partitions: int) -> None:
        """A broker that was asked says that the topic has so many; 0: that there is none."""
        known = self._recent.get(topic)
        if known is not None and known[0] == partitions:
            self._recent[topic] = partitions, known[1], known[1] + RECENT_MS

    def recent(self, topic: TopicKey, now_ms: float) -> int | None:
        """How many it has by what was done lately; None: nothing was."""
        known = self._recent.get(topic)
        return None if known is None or now_ms - known[1] >= RECENT_MS else known[0]

    def present(self, topic: TopicKey, said: int, api_key: int, now_ms: float) -> int:
        """How many it has where a broker says so many; 0: there is none.

        What was done here and not heard of since may still be on its way to the broker, or changed elsewhere:
        of the two what costs more counts.
        """
        known = self._recent.get(topic)
        if known is None or now_ms >= known[2]:
            return said
        done, since_ms, _ = known
        if now_ms - since_ms < RECENT_MS:
            return done
        if api_key == ApiKey.DELETE_TOPICS:
            return max(done, said)
        if api_key == ApiKey.CREATE_TOPICS:
            return min(done, said)
        return min(done, said) or max(done, said)
