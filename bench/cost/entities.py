"""What a request costs with 10,000 entities in use against one, everything on: bench.entities has more."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import replace
from typing import Final

from bench.cost.cases import CONNECTIONS, ENTITIES, ENTITY_COUNTS, PRODUCER_ID, TOPIC, Case, Entities
from bench.cost.fleet import Setup, full_sluice
from bench.cost.rig import Rig
from bench.cost.scraper import scrape
from bench.entities.__main__ import client_id, limits_for
from bench.lib.load import Measured, Work
from bench.lib.placement import Placement, place_proxy
from bench.lib.stats import median
from testkit.frames import load_frames as frames
from testkit.processes.process import cpu_s
from testkit.proxy.proxies import SLUICE, Proxy

DEPTH: Final = 5
REQUESTS: Final = 40_000
AT_ONCE: Final = 250
SCRAPES: Final = 5
SETTLE_S: Final = 12.0
"""the access log's window in which all were used is over, and its rows are made"""


def measure(rig: Rig, setup: Setup, placement: Placement, rounds: int, scale: float) -> Entities:
    """50 connections × 5 in flight, each of an entity by chance; every entity has been used before.

    Metrics are asked for only behind the rounds, and counted apart: once a second would be fifteen times as
    often as usual, which with a page of 10,000 entities is no detail.
    """
    found = Entities({count: [] for count in ENTITY_COUNTS})
    chance = random.Random(1)
    with contextlib.ExitStack() as stack:
        running, admin_ports = {}, {}
        for count in ENTITY_COUNTS:
            proxy, admin_ports[count] = stack.enter_context(full_sluice(setup, limits_for(count)))
            place_proxy(placement, proxy.pid)
            running[count] = proxy
            for start in range(0, count, AT_ONCE):
                _run(rig, proxy, range(start, min(start + AT_ONCE, count)), 1, 1)
        time.sleep(SETTLE_S)
        for number in range(rounds):
            for count in ENTITY_COUNTS if number % 2 == 0 else reversed(ENTITY_COUNTS):
                chosen = chance.choices(range(count), k=CONNECTIONS)
                measured = _run(rig, running[count], chosen, DEPTH, int(REQUESTS * scale))
                found.samples[count].append(measured)
            print(f"{number + 1}/{rounds}  {found.newest()}", flush=True)
        for count in ENTITY_COUNTS:
            found.scrape_ms[count] = _scrape_ms(running[count], admin_ports[count])
    return found


def _scrape_ms(proxy: Proxy, admin_port: int) -> float:
    """CPU of one page, by the median of some."""
    spent = []
    for _ in range(SCRAPES):
        before_s = cpu_s(proxy.pid)
        scrape(admin_port)
        spent.append((cpu_s(proxy.pid) - before_s) * 1e3)
    return median(spent)


def _run(rig: Rig, proxy: Proxy, entities: range | list[int], depth: int, requests: int) -> Measured:
    batch = frames.record_batch(bytes(1000), producer_id=PRODUCER_ID, epoch=0, sequence=0)
    of_each = [bytes(frames.produce_request(client_id(i), TOPIC, batch, acks=-1)) for i in entities]
    work = Work(
        of_each[0], rig.broker.produce_answer, len(of_each), depth, requests, requests // 20, frames=of_each
    )
    return rig.measure(proxy, replace(_CASE, work=work))


_CASE: Final = Case(ENTITIES, SLUICE, Work(b"", b"", 0, 0, 0, 0))
