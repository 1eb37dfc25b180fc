"""One client of a fault: numbered records in, at a steady rate, and out again, both through the proxy.

    python -m bench.faults.client PLAN_FILE ENTRIES_FILE

librdkafka, idempotent, its own defaults. What the producer was told of each record goes to ENTRIES_FILE
(bench/soak/log.py). On SIGTERM it waits for what is under way, then until the consumer has come as far, and
prints one line of JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from bench.soak.client import Pace
from bench.soak.log import AnswerLog, client_and_number, value_of

RECORD_BYTES: Final = 500
TICK_S: Final = 0.02
LAST_ANSWERS_S: Final = 60.0
CATCH_UP_S: Final = 30.0


class Reader:
    """The consumer, in a thread of its own: it reads each partition from its beginning, without a group."""

    def __init__(self, properties: Mapping[str, Any], topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {**properties, "group.id": "reads-without-a-group", "enable.auto.commit": False, "log_level": 0}
        )
        self._consumer.assign([TopicPartition(topic, x, OFFSET_BEGINNING) for x in range(partitions)])
        self._next = dict.fromkeys(range(partitions), 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seen: set[int] = set()
        self.repeated = 0
        self.skipped = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            due = self._next[partition]
            self.repeated += offset < due
            self.skipped += max(0, offset - due)
            self._next[partition] = max(due, offset + 1)
            self.seen.add(client_and_number(message.value() or b"")[1])
        self._consumer.close()


def run(plan: Mapping[str, Any], log: AnswerLog) -> dict[str, object]:
    """Until SIGTERM and a little longer. Returns what is to be told at the end."""
    stopped_s: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped_s.append(time.monotonic()))
    acknowledged: set[int] = set()
    producer = Producer({**plan["properties"], "enable.idempotence": True, "log_level": 0})
    reader = Reader(plan["properties"], plan["topic"], plan["partitions"])
    reader.start()

    def send(number: int) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acknowledged.add(number)
                log.acknowledged(number, message.partition())
            else:
                log.failed(number, error)

        value = value_of(plan["index"], number, RECORD_BYTES)
        producer.produce(plan["topic"], value, partition=number % plan["partitions"], on_delivery=delivered)

    pace = Pace(plan["rate"])
    sent = 0
    while not stopped_s:
        while sent < pace.allowed(sent, log.answered):
            send(sent)
            sent = log.sent = sent + 1
        producer.poll(TICK_S)
        log.flush()
    while log.answered < sent and time.monotonic() < stopped_s[0] + LAST_ANSWERS_S:
        producer.poll(TICK_S)
        log.flush()
    deadline_s = time.monotonic() + CATCH_UP_S
    while not acknowledged <= reader.seen and time.monotonic() < deadline_s:
        time.sleep(TICK_S)
    reader.stop()
    return {
        "unread": len(acknowledged - reader.seen),
        "read_twice": reader.repeated,
        "skipped": reader.skipped,
    }


def main(argv: Sequence[str]) -> None:
    plan_file, entries = argv
    plan = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    with Path(entries).open("wb") as output:
        log = AnswerLog(output)
        end = run(plan, log)
        log.flush_now()
    told = {"errors": log.errors, "replaced": log.replaced, "unanswered": log.sent - log.answered}
    print(json.dumps(told | end), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
