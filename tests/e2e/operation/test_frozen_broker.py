"""A real broker is stopped in its tracks (SIGSTOP): it accepts connections, and answers nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testkit.clients.kafka_clients import CONFLUENT, LEAVES_SOCKETS, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = [*LEAVES_SOCKETS]


@contextmanager
def stopped(kafka: KafkaNode) -> Iterator[float]:
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        yield time.monotonic()
    finally:
        os.kill(kafka.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_frozen_broker_is_not_ready_from_30_s_on_and_its_clients_lose_nothing() -> None:
    at = {"SLUICE": (LOOPBACK, free_port())}
    with KafkaNode(advertised=at) as kafka, SluiceProcess(doors_of(kafka, ["SLUICE"])) as proxy:
        topic = create_topic(kafka, "frozen")
        proxy.wait_until(lambda: not proxy.not_ready(), "ready", 30.0)
        with stopped(kafka) as since_s:
            while time.monotonic() < since_s + 25.0:
                assert not proxy.not_ready(), "a long pause is not called frozen"
                time.sleep(1.0)
            proxy.wait_until(lambda: "has not answered for" in proxy.not_ready(), "not ready", 30.0)
            assert time.monotonic() - since_s >= 30.0
        proxy.wait_until(lambda: not proxy.not_ready(), "ready again", 30.0)
        records = numbered(100, size_bytes=100)
        CONFLUENT.produce(proxy.bootstrap(), topic, records, Options())
        assert_exactly(records, stored(kafka, topic))
        assert len(proxy.log_lines("upstream_does_not_answer")) == 1
        assert len(proxy.log_lines("upstream_answers_again")) == 1
        assert not proxy.log_lines("upstream_unreachable"), "silence opens no circuit"
