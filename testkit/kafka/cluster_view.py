"""What the nodes of a cluster say of it: who is alive, who leads what, whose copies are in sync.

Every broker answers from its own copy of the metadata, and one may be behind another by as long as it waits
for the processor. A client asks any of them: what it was told once, it may be told otherwise later. Here each
node is asked by itself.
"""

from __future__ import annotations

import socket
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

with warnings.catch_warnings():
    # It reads its schemas with functions of importlib.resources that Python 3.11 and 3.12 call deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.metadata import MetadataRequest, MetadataResponse

_VERSION: Final = 9  # names topics, is flexible, wants no topic ids
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Copies:
    """One partition: node ids as in Metadata, the preferred leader first in `replicas`."""

    leader: int
    """-1: none"""
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One node's answer. Equal when two nodes say the same."""

    live_ids: frozenset[int]
    topics: Mapping[str, Mapping[int, Copies]]
    """name → partition → copies; internal topics too"""

    @classmethod
    def of(cls, address: tuple[str, int], timeout_s: float) -> Self:
        """Ask the node at `address`. Raises OSError when it does not answer."""
        request = MetadataRequest(topics=None, version=_VERSION, allow_auto_topic_creation=False)
        request.with_header(correlation_id=1, client_id="cluster-view")
        with socket.create_connection(address, timeout=timeout_s) as sock:
            sock.sendall(request.encode(header=True, framed=True))
            with sock.makefile("rb") as answer:
                head = answer.read(_SIZE.size)
                (size,) = _SIZE.unpack(head) if len(head) == _SIZE.size else (0,)
                body = answer.read(size)
        if not body or len(body) < size:
            raise ConnectionResetError(f"{address} closed the connection instead of an answer")
        told = MetadataResponse.decode(body, version=_VERSION, header=True)
        return cls(
            frozenset(broker.node_id for broker in told.brokers),
            {
                topic.name: {
                    partition.partition_index: Copies(
                        partition.leader_id, tuple(partition.replica_nodes), frozenset(partition.isr_nodes)
                    )
                    for partition in topic.partitions
                }
                for topic in told.topics
            },
        )

    def copies(self, topic: str, partition: int) -> Copies:
        """One partition's. Raises KeyError, with the topic's name, if there is none."""
        try:
            return self.topics[topic][partition]
        except KeyError:
            raise KeyError(f"{topic}-{partition}: no such partition") from None
