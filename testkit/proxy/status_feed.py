"""A proxy's inside with traffic that nobody sends: what the status page is made from, with hostile names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.server import AdminServer, Health
from sluice.proxy.config.admin import AdminOptions
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.watched_file import ReloadStatus
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import produce_of
from testkit.proxy.playbook import Shell

HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt;b&gt; &amp; <!-- -->",
    "שלום עולם",
    "invoice\u202egpj.exe",
    "zero\u200bwidth\x1b[31m\nline",
    "</table></main><style>body{display:none}</style>",
    "x" * 300,
    "😀 naïve ユーザー",
)
"""what clients may call themselves"""
LIMITS: Final = QuotaLimits(
    [
        (QuotaEntity(DEFAULT), {"producer_byte_rate": 100_000, "consumer_byte_rate": 200_000}),
        (QuotaEntity("alice"), {"producer_byte_rate": 50_000, "producer_ids_rate": 20}),
        (QuotaEntity("carol"), {"producer_byte_rate": 25_000}),
        (QuotaEntity("rogue"), {"producer_ids_rate": 2, "request_percentage": 50}),
        (QuotaEntity(None, "etl-1"), {"producer_byte_rate": 500_000, "controller_mutation_rate": 5}),
    ],
    shadow={QuotaEntity("carol"): ["producer_byte_rate"]},
)


@dataclass
class Client:
    """A connection, as far as it is looked at."""

    peer: str
    session: Session


def now_ms() -> float:
    """As the proxy counts."""
    return monotonic() * 1000.0


class Feed:
    """Quotas, sessions and meter of one process."""

    def __init__(self, limits: QuotaLimits = LIMITS, replication: Replication | None = None) -> None:
        self.shared = SharedState(QuotaManager(limits), Recorder())
        self.meter = UsageMeter(self.shared.recorder, self.shared.quotas, self.shared.producer_ids)
        self.clients: list[Client] = []
        self.desk = AdminDesk(
            self.shared.quotas,
            self.shared.producer_ids,
            lambda: self.clients,  # type: ignore[arg-type, return-value]
            None,
            None,
            self.meter.throttle_log,
            replication,
        )

    def client(self, user: str) -> Shell:
        """One more connection of a user."""
        number = len(self.clients) + 1
        shell = Shell(Session(self.shared, SessionPolicy(), "10.0.0.9", user), now_ms=now_ms())
        self.clients.append(
            Client(f"10.0.{number // 250}.{number % 250 + 1}:{40_000 + number}", shell.session)
        )
        return shell

    def produces(self, user: str, frame_bytes: int, client_id: str = "app", producer_id: int = -1) -> Shell:
        """A new connection sends one request."""
        shell = self.client(user)
        shell.client_sends(produce_of(frame_bytes, client_id=client_id, producer_id=producer_id))
        return shell

    def uses(self, user: str, client_id: str, amount: float, kind: QuotaKind = QuotaKind.PRODUCE) -> None:
        """Usage of a bucket without a connection."""
        sensor = self.shared.quotas.sensor(kind, user, client_id, now_ms())
        assert sensor is not None
        sensor.charge(amount, now_ms())

    def drain(self) -> None:
        """What sessions have recorded reaches meter and log."""
        self.meter.drain(now_ms())

    def fill(self) -> None:
        """Something of everything: throttled, near, calm, in shadow, waiting for ids, hostile."""
        self.produces("alice", 300_000, "orders")
        self.produces("alice", 2_000, "orders")
        self.produces("carol", 90_000, "reports")
        self.produces("bob", 40_000, "web")
        for producer_id in range(100, 106):
            self.produces("rogue", 2_000, f"worker-{producer_id}", producer_id)
        self.produces("alice", 500, "ids", 7)
        self.uses("dave", "etl-1", 450_000)
        self.uses("dave", "etl-1", 3, QuotaKind.CONTROLLER_MUTATION)
        for number, name in enumerate(HOSTILE):
            self.produces(name, 110_000 + 20_000 * number, name)
        self.drain()


def admin_server(feed: Feed, **status: Any) -> AdminServer:
    """An admin server of the feed, on a port of loopback that the system chooses. `status`: options of
    admin.status."""
    health = Health()
    health.started = True
    options = AdminOptions.model_validate({"bind_host": "127.0.0.1", "bind_port": 0, "status": status})
    collector = SluiceCollector(feed.meter, feed.shared.quotas, Gauges(), {"quotas": [ReloadStatus()]})
    return AdminServer(options, health, collector, None, feed.desk)


@asynccontextmanager
async def served(feed: Feed, **status: Any) -> AsyncIterator[AdminServer]:
    """The admin port, during the block."""
    server = admin_server(feed, **status)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        await asyncio.sleep(0)
