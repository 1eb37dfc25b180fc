"""What bench-scrape compares says the same: each way writes all series of the page, with their values."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from prometheus_client.samples import Sample

from bench.scrape.__main__ import COUNTS, Page, Scrape, measured, rows_of, ways


def read(way: str, body: bytes) -> list[Sample]:
    families = openmetrics_families if "OpenMetrics" in way else text_families
    return [sample for family in families(body.decode()) for sample in family.samples]


@pytest.mark.parametrize("series", COUNTS[:2])
def test_each_way_writes_every_series_of_the_page(series: int) -> None:
    page = Page(series)
    wanted = [sample for family in page.registry.collect() for sample in family.samples]
    assert len(wanted) == series
    for way, scrape in ways(page).items():
        found = read(way, asyncio.run(_body(scrape)))
        assert [(s.name, s.labels, s.value) for s in found] == [
            (s.name, s.labels, s.value) for s in wanted
        ], way


async def _body(scrape: Scrape) -> bytes:
    return await scrape()


def test_a_scrape_that_holds_the_loop_is_seen_as_a_wait() -> None:
    async def holds() -> bytes:
        until_s = asyncio.get_running_loop().time() + 0.05
        while asyncio.get_running_loop().time() < until_s:
            pass
        return b"page"

    size_bytes, cpu_ms, wait_ms = asyncio.run(measured(holds))
    assert size_bytes == 4
    assert cpu_ms > 0.0
    assert wait_ms >= 50.0


def test_a_repeat_gives_a_row_of_each_way() -> None:
    page = Page(10)
    rows = asyncio.run(rows_of(10, 1))
    assert [row.way for row in rows] == list(ways(page))
    assert all(row.size_bytes > 500 for row in rows)
