"""Producers for the demo of recalibration: flat out or at a pace, counted by what the broker acknowledged."""

from __future__ import annotations

import threading
import time
from typing import Final, Self

from confluent_kafka import Producer

RECORD_BYTES: Final = 5_000
_QUEUED: Final = 60
"""records; flat out so many wait in the client"""
_FLUSH_S: Final = 30.0


class Load:
    """One producer, from `with` to its end."""

    def __init__(self, bootstrap: str, topic: str, client_id: str, bytes_per_s: float | None = None) -> None:
        """`bytes_per_s`: the pace that it tries; None: flat out."""
        self.bytes_per_s = bytes_per_s
        self._topic = topic
        self._acknowledged_bytes = 0
        self._failed: list[object] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": client_id, "batch.size": 16_384, "linger.ms": 5}
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(_FLUSH_S)

    def rate(self, seconds: float) -> float:
        """Bytes per second that are acknowledged during the next seconds."""
        before, begun_s = self._acknowledged_bytes, time.monotonic()
        time.sleep(seconds)
        return (self._acknowledged_bytes - before) / (time.monotonic() - begun_s)

    def _run(self) -> None:
        record = bytes(RECORD_BYTES)
        due_s = time.monotonic()
        while not self._stop.is_set():
            pace = self.bytes_per_s
            if len(self._producer) >= _QUEUED or (pace is not None and time.monotonic() < due_s):
                self._producer.poll(0.01)
                continue
            self._producer.produce(self._topic, record, on_delivery=self._delivered)
            self._producer.poll(0)
            due_s = max(due_s, time.monotonic() - 1.0) + (RECORD_BYTES / pace if pace else 0.0)

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self._acknowledged_bytes += RECORD_BYTES
