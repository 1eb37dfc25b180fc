"""What the status page costs the event loop with 10,000 buckets: its longest gaps, and its share of time.

A ticker in the loop wakes every millisecond; what it finds that the loop's thread has worked since the last
time (of the processor, so that other programs do not count) is a gap. First nobody looks, then somebody does
as the page's script does: six questions every 2 s, and the page itself. Last line: JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import urllib.request
from typing import Any, Final

import uvloop

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.status_feed import Client, Feed, served

BUCKETS: Final = 10_000
CONNECTIONS: Final = 5_000
SPAN_S: Final = 20.0
POLL_S: Final = 2.0
ASKED: Final = (
    "/api/v1/summary",
    "/api/v1/principals?history=true",
    "/api/v1/principals?search=user-99&sort=who",
    "/api/v1/events",
    "/api/v1/connections",
    "/api/v1/producer-ids",
    "/status",
)


class Ticker:
    """How long the loop was at work in one go."""

    def __init__(self) -> None:
        self.gaps_ms: list[float] = []

    async def run(self) -> None:
        last_s = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now_s = time.thread_time()
            self.gaps_ms.append((now_s - last_s) * 1000.0)
            last_s = now_s

    def figures(self) -> dict[str, float]:
        """The delays of the loop, in ms."""
        gaps, self.gaps_ms = sorted(self.gaps_ms), []
        names = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
        found = {name: round(gaps[int(len(gaps) * share)], 2) for name, share in names.items()}
        return {**found, "max": round(gaps[-1], 2), "ticks": len(gaps)}


def filled() -> Feed:
    """Buckets of which a tenth is in debt, and connections of one of them."""
    feed = Feed(QuotaLimits([(QuotaEntity(DEFAULT), {"producer_byte_rate": 1_000_000})]))
    for number in range(BUCKETS):
        feed.uses(f"user-{number}", "app", 40_000_000 if number % 10 == 0 else 500_000)
    session = feed.produces("user-1", 1_000).session
    feed.clients = [Client(f"10.0.0.1:{number}", session) for number in range(CONNECTIONS)]
    return feed


def look(port: int, over: threading.Event, took_ms: dict[str, list[float]]) -> None:
    """Ask as a browser does, in a thread of its own."""
    while not over.wait(POLL_S):
        for path in ASKED:
            begun_s = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                answer.read()
            took_ms.setdefault(path, []).append((time.perf_counter() - begun_s) * 1000.0)


async def measure() -> dict[str, Any]:
    """Both spans, in one process."""
    feed, ticker = filled(), Ticker()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)  # as the proxy does once it has started
    took_ms: dict[str, list[float]] = {}
    async with served(feed) as server:
        ticking = asyncio.ensure_future(ticker.run())
        await asyncio.sleep(1.0)
        found: dict[str, Any] = {"buckets": BUCKETS, "connections": CONNECTIONS}
        for name in ("nobody looks", "somebody looks"):
            ticker.gaps_ms.clear()
            cpu_s = time.thread_time()
            over = threading.Event()
            looking = threading.Thread(target=look, args=(server.port, over, took_ms))
            if name == "somebody looks":
                looking.start()
            await asyncio.sleep(SPAN_S)
            over.set()
            if name == "somebody looks":
                await asyncio.to_thread(looking.join)
            found[name] = {"gaps_ms": ticker.figures(), "loop_s": round(time.thread_time() - cpu_s, 2)}
        ticking.cancel()
    found["answers_ms"] = {path: round(sorted(took)[len(took) // 2], 1) for path, took in took_ms.items()}
    return found


def main() -> None:
    found = uvloop.run(measure())
    print(json.dumps(found, indent=1))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
