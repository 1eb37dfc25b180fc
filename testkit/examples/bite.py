"""Whether a quota was felt: how long traffic took, beside how long it must take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from testkit.clients.client_security import NO_SECURITY, Security
from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import Record, assert_exactly, create_topic, stored
from testkit.examples.broker import ExampleBroker
from testkit.proxy.sluice_process import SluiceProcess

MIB: Final = 1_048_576
BATCH_BYTES: Final = 16_384
_AHEAD_BYTES: Final = 8 * BATCH_BYTES
"""the request that passes the limit, and those that are sent with it"""


def least_s(sent_bytes: float, bytes_per_s: float, burst_s: float = 1.0) -> float:
    """What so many bytes take at least: a second's worth goes at once, and the request that passes it."""
    return (sent_bytes - _AHEAD_BYTES) / bytes_per_s - burst_s


def produced_exactly(
    broker: ExampleBroker,
    proxy: SluiceProcess,
    topic: str,
    records: Sequence[Record],
    *,
    client_id: str = "app",
    security: Security = NO_SECURITY,
) -> float:
    """Through the proxy into a new topic, and read back through it; the seconds that producing took."""
    (door,) = proxy.doors.values()
    create_topic(broker, topic)
    options = Options(client_id=client_id, batch_bytes=BATCH_BYTES, security=security, within_s=25.0)
    begun_s = time.monotonic()
    CONFLUENT.produce(door.bootstrap, topic, records, options)
    took_s = time.monotonic() - begun_s
    assert_exactly(records, stored(broker, topic), "at the broker")
    found = CONFLUENT.consume(door.bootstrap, topic, f"group-{topic}", len(records), options)
    assert_exactly(records, found, "through the proxy")
    return took_s


def throttled_s(proxy: SluiceProcess, **labels: str) -> float:
    """How long Produces of these were delayed."""
    return proxy.metric("sluice_throttled_seconds_total", quota="produce", **labels)
