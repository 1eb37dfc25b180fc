"""What the status page shows in its check: a real Kafka, Sluice before it, clients at and below their limits.

Half of the clients have names that are markup; those with `shop` in theirs can be in a picture.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SluiceProcess, doors_of

ROOT: Final = Path(__file__).resolve().parents[2]
HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "שלום עולם",
    "invoice\u202egpj.exe",
    "</table><style>body{display:none}</style>",
)
QUOTAS: Final = (
    {"client-id": "<default>", "producer_byte_rate": 60_000, "consumer_byte_rate": 500_000},
    {"client-id": "shop-orders", "producer_byte_rate": 40_000},
    {"client-id": "shop-web", "producer_byte_rate": 400_000},
    {"client-id": "shop-reports", "producer_byte_rate": 20_000, "shadow": ["producer_byte_rate"]},
    {"user": "ANONYMOUS", "producer_ids_rate": 3},
)


class Load(threading.Thread):
    """A producer that sends as fast as it may, until it is told to stop."""

    def __init__(self, bootstrap: str, client_id: str, bytes_per_s: float, *, idempotent: bool) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "enable.idempotence": idempotent,
                "batch.size": 4_000,
                "linger.ms": 20,
                "queue.buffering.max.kbytes": 256,
                "log_level": 0,
            }
        )
        self._pause_s = 1_000 / bytes_per_s
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._pause_s):
            if len(self._producer) < 100:
                self._producer.produce("status", b"x" * 1_000)
            self._producer.poll(0)

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._producer.purge()
        self._producer.flush(5.0)


def plan() -> dict[str, Any]:
    """As the nightly job writes it."""
    entries = [
        {
            "key": "producer_byte_rate",
            "entity": json.dumps({"client-id": name}),
            "current": 40_000.0,
            "proposed": 40_000.0 * share,
            "reason": reason,
            "needs_review": share > 1.4,
            "confidence": 0.93,
        }
        for name, share, reason in (
            ("shop-orders", 1.5, "step_up"),
            ("shop-web", 0.7, "step_down"),
            (HOSTILE[0], 1.2, "demand"),
            ("shop-reports", 1.0, "unchanged"),
        )
    ]
    return {"version": 1, "date": "2026-11-20", "log_files": 288, "damaged_files": [], "entries": entries}


@contextmanager
def proxy_under_load(plans: Path) -> Iterator[SluiceProcess]:
    """Sluice before a Kafka; clients that are throttled, nearly, in shadow, and wait for producer ids.

    `plans`: a folder for the plan that its page shows.
    """
    with KafkaNode(advertised={"SLUICE": (LOOPBACK, free_port())}) as kafka:
        folder = plans / "plans" / "2026-11-20-1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(json.dumps(plan(), indent=1))
        (plans / "LATEST").write_text("2026-11-20-1\n")
        port = free_port()
        status = {"plan": str(plans), "interval_s": 1}
        admin = {"bind_host": LOOPBACK, "bind_port": port, "probes": {"bind_port": 0}, "status": status}
        process = SluiceProcess(doors_of(kafka, ["SLUICE"]), QUOTAS, admin=admin)
        process.admin_port = port
        with process as sluice:
            wanted = {"shop-orders": 120_000, "shop-web": 350_000, "shop-reports": 60_000}
            wanted |= dict.fromkeys(HOSTILE, 70_000)
            loads = [Load(sluice.bootstrap(), name, rate, idempotent=False) for name, rate in wanted.items()]
            loads += [Load(sluice.bootstrap(), f"worker-{n}", 5_000, idempotent=True) for n in range(5)]
            try:
                for load in loads:
                    load.start()
                time.sleep(8.0)
                yield sluice
            finally:
                for load in loads:
                    load.stop()
