"""The file of request costs: ours, and one that a calibration wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.proxy.calibration.request_cost_file import (
    load_request_costs,
    parse_request_costs,
    shipped_request_costs,
)
from sluice.quotas.files.config_error import ConfigError
from sluice.usage.request_cost import Coefficients

PRODUCE = 0
FETCH = 1
METADATA = 3
GZIP = 1
GOOD = """\
measured: here
tls: {request_us: 8, response_kib_us: 1.024}
costs:
  - {api: Produce, compression: gzip, acks: all, request_us: 200, record_us: 2, batch_us: 30}
  - {api: Fetch, versions: 4-12, request_us: 80, request_kib_us: 2.048}
  - {api: Fetch, versions: 13, request_us: 70}
  - {request_us: 100}
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse_request_costs(text, "costs.yaml")
    return str(raised.value).splitlines()


def test_a_file_of_microseconds_and_kib_becomes_coefficients_of_ms_and_bytes() -> None:
    tables = parse_request_costs(GOOD, "costs.yaml")
    assert tables.plain.of(PRODUCE, 9, GZIP, acks_all=True) == Coefficients(0.2, 0, 0, 0.03, 0.002)
    assert tables.plain.of(PRODUCE, 9, GZIP, acks_all=False) == Coefficients(0.1)
    assert tables.plain.of(FETCH, 12) == pytest.approx(Coefficients(0.08, 0.000002))
    assert tables.plain.of(FETCH, 13) == Coefficients(0.07)
    assert tables.tls.of(METADATA, 12) == pytest.approx(Coefficients(0.108, 0.0, 0.000001))


def test_every_mistake_is_told_with_its_key_and_line() -> None:
    bad = GOOD.replace("request_us: 80", "request_us: -1").replace("gzip", "zip")
    assert [line.partition(": ")[0] for line in problems_of(bad)] == ["costs.yaml:4", "costs.yaml:5"]


def test_a_file_of_another_kind_lacks_what_is_required() -> None:
    assert "costs.yaml: costs: missing; it is required" in problems_of("a: 1")


def test_an_api_that_kafka_does_not_have_is_refused() -> None:
    assert "costs.yaml:5" in problems_of(GOOD.replace("Fetch, versions: 4-12", "Fetsch"))[0]


def test_a_file_without_an_entry_for_all_other_requests_is_refused() -> None:
    (problem,) = problems_of(GOOD.replace("  - {request_us: 100}\n", ""))
    assert problem.startswith("costs.yaml:3: costs: the last entry")


def test_what_is_shipped_has_a_price_for_every_request() -> None:
    shipped = shipped_request_costs()
    for codec in range(5):
        assert shipped.plain.of(PRODUCE, 12, codec).request_ms > 0.0
    for api_key in range(90):
        assert shipped.plain.of(api_key, 0).request_ms > 0.0
        assert shipped.tls.of(api_key, 0).request_ms >= shipped.plain.of(api_key, 0).request_ms


def test_a_file_that_is_named_takes_the_place_of_the_shipped_one(tmp_path: Path) -> None:
    file = tmp_path / "costs.yaml"
    file.write_text(GOOD)
    assert load_request_costs(file).plain.of(METADATA, 12) == Coefficients(0.1)
    assert load_request_costs(None) is shipped_request_costs()
