"""What brokers do where a request for topics does not say: shared by the connections of a process. Pure."""

from __future__ import annotations


class TopicDefaults:
    """As configured, then as the last answer told."""

    __slots__ = ("partitions",)

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        """of a new topic (Kafka: num.partitions)"""
