"""What kafka-python's consumers need to get their share of a group and to live through a broker's absence."""

from __future__ import annotations

from typing import Any, Final

import kafka as kafka_python

KAFKA_PYTHON_METADATA_MAX_AGE_MS: Final = 2000
"""It may take the answer to an older metadata request for that to its subscription's, join its group without
a partition of the topic, and look again only when its metadata is old: after five minutes by default."""


def subscribe_knowingly(consumer: Any, topic: str, **listener: Any) -> None:
    """Have a kafka-python consumer know its topic before it joins its group.

    Else it joins again once it does, and then some stay without partitions for ever (3.0.12, without a proxy
    too). What it asked for before it subscribed does not count for it; `topics` always asks anew.
    """
    consumer.subscribe([topic], **listener)
    assert topic in consumer.topics()


def poll_patiently(consumer: Any) -> dict[Any, Any]:
    """What came within half a second, by partition: nothing while there is no broker."""
    try:
        polled: dict[Any, Any] = consumer.poll(timeout_ms=500)
    except (kafka_python.errors.KafkaConnectionError, kafka_python.errors.UnknownBrokerIdError):
        # It raises when a connection ends while it asks for the broker's versions, as it does when there is
        # no broker behind a proxy, and when it is to ask a broker of which the cluster has ceased to tell. Of
        # a refused connection it says nothing, and tries again.
        return {}
    return polled
