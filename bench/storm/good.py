"""The good client of the storm benchmark: librdkafka, idempotent, records by the clock, each answer timed.

    python -m bench.storm.good BOOTSTRAP USER PASSWORD TOPIC RATE OUTPUT

A process of its own, with the library's defaults but for `linger.ms` 0. Each line of OUTPUT: number,
monotonic time of sending in s, latency in s, or −1 for a record that failed. On SIGTERM it waits DRAIN_S for
what is under way; the last line of OUTPUT counts the records sent and acknowledged.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import confluent_kafka

RECORD_BYTES: Final = 200
DRAIN_S: Final = 10.0
FLUSH_S: Final = 0.25
READY: Final = "ready"
READY_WITHIN_S: Final = 20.0
END: Final = "end"
FAILED: Final = -1.0


class GoodClient:
    """One producer and what became of its records."""

    def __init__(self, bootstrap: str, user: str, password: str, topic: str, output: Path) -> None:
        self._topic = topic
        self._out = output.open("w", encoding="ascii")
        self._sent = self._acknowledged = self._answered = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": password,
                "client.id": "good",
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )

    def run(self, rate: float, ended: list[int]) -> None:
        """Until `ended` holds something. Exits when the first record is not acknowledged in time."""
        self._send(recorded=False)
        if self._producer.flush(READY_WITHIN_S):
            sys.exit(f"the first record was not acknowledged within {READY_WITHIN_S:.0f} s")
        print(READY, flush=True)
        due_s = flush_s = time.monotonic()
        while not ended:
            now_s = time.monotonic()
            if now_s >= due_s:
                self._send()
                due_s += 1 / rate
            elif now_s >= flush_s:
                self._out.flush()
                flush_s = now_s + FLUSH_S
            else:
                self._producer.poll(due_s - now_s)
        self._producer.flush(DRAIN_S)
        self._out.write(f"{END} {self._sent} {self._acknowledged}\n")
        self._out.close()

    def _send(self, *, recorded: bool = True) -> None:
        number, began_s = self._sent, time.monotonic()
        self._sent += 1

        def delivered(error: Any, _message: Any) -> None:
            latency_s = time.monotonic() - began_s if error is None else FAILED
            self._acknowledged += error is None
            if recorded:
                self._out.write(f"{number} {began_s:.6f} {latency_s:.6f}\n")

        self._producer.produce(
            self._topic, number.to_bytes(8) + bytes(RECORD_BYTES - 8), on_delivery=delivered
        )


def main(argv: Sequence[str]) -> None:
    bootstrap, user, password, topic, rate, output = argv
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    GoodClient(bootstrap, user, password, topic, Path(output)).run(float(rate), ended)


if __name__ == "__main__":
    main(sys.argv[1:])
