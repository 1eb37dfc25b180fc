"""What is remembered of a request that creates, grows or deletes topics until its answer has come. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice.protocol.apis import ApiKey
from sluice.protocol.mutations.requests import MAX_PARTITIONS, TopicKey
from sluice.protocol.mutations.topic_sizes import TopicSize
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import Flow


@dataclass(slots=True)
class Outcome:
    """What the answer to a request that went on is to be given, and what that answer may put right."""

    api_key: int
    version: int
    sensor: Sensor
    charged: dict[TopicKey, int] = field(default_factory=dict)
    """partitions, by topic"""
    counted: int = 0
    """partitions of all that is charged, less those that the broker refused"""
    by_default: set[TopicKey] = field(default_factory=set)
    """of these the number was the broker's default, as far as it is known"""
    becomes: dict[TopicKey, int] = field(default_factory=dict)
    """how many partitions each topic will have, if all goes well"""
    sizes: Mapping[TopicKey, TopicSize] = field(default_factory=dict)
    """of the topics that exist, by name and by id: what the broker told before"""
    validate_only: bool = False
    """nothing is changed, whatever the answer says; it costs the same (as in ReplicationControlManager)"""
    unchanged: set[TopicKey] = field(default_factory=set)
    """of these there was nothing to count: as far as could be told the broker would change nothing"""
    refused: bytes = b""
    """topics for the answer"""
    refused_count: int = 0
    flow: Flow = field(default_factory=Flow)
    """of a request that went on"""
    eligible_at_ms: float = 0.0
    """when what the entity owed before this request is paid; ≤ when it came: nothing was owed"""
    clears_at_ms: float = 0.0
    """what the answer's throttle_time_ms lasts until"""

    @property
    def charged_partitions(self) -> int:
        """What the entity is charged for it. Of topics made or grown no more than a controller makes for one
        request: nobody may learn what became of it, and what was asked for is any number. Deletions are
        counted by what is there, all of which may go."""
        if self.api_key == ApiKey.DELETE_TOPICS:
            return self.counted
        return min(self.counted, MAX_PARTITIONS)

    def count(self, partitions: int) -> int:
        """So many more partitions count, or fewer. Returns by how many the charge changes.

        Worked example: 8,000 and 7,000 are charged as 8,000 and 2,000. The first is refused: 3,000 come back,
        and the 7,000 of the other stay.
        """
        before = self.charged_partitions
        self.counted += partitions
        return self.charged_partitions - before
