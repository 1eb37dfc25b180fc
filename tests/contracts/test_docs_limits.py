"""The table of limits (docs/limits.md) has the numbers that options and constants have."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sluice.protocol.parts import MAX_PARTS
from sluice.protocol.primitives import MAX_TAGS
from sluice.proxy.admin.http import MOST_WAITING_OF_ONE
from sluice.proxy.admin.status.model import MAX_LISTED
from sluice.proxy.config.config import Config
from sluice.proxy.config.listener import GatewayOptions
from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.proxy.connection.read_ahead import FAR_BYTES, LOOK_BYTES
from sluice.proxy.listener.dial_queue import MAX_DIALS
from sluice.proxy.metrics.throttle_log import LINE_INTERVAL_MS
from sluice.proxy.runtime.file_work import LIMIT_S
from sluice.proxy.session.arrivals import AHEAD_BYTES
from sluice.proxy.session.delays import LEAST_PATIENCE_S
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT
from sluice.proxy.session.request_time import IN_FLIGHT_IN_DEBT, IN_FLIGHT_WITHIN_QUOTA
from sluice.quotas.files.load import MAX_PLAN_BYTES, MAX_QUOTAS_BYTES, MAX_SMALL_BYTES
from sluice.quotas.limits.client_ids import MAX_CLIENT_ID
from testkit.repository.docs_tables import rows_below

UNITS = {"KiB": 1024, "MiB": 1024 * 1024}
OPTION = re.compile(r"option `([a-z_.]+)`")
ROWS = [row for row in rows_below("Every number", "limits.md") if not row[0].startswith("**")]
BY_NAME = {name: number for name, number, _ in ROWS}


def numbers(cell: str) -> list[float]:
    found = re.findall(r"(\d[\d,]*(?:\.\d+)?)(?: (KiB|MiB))?", cell)
    return [float(number.replace(",", "")) * UNITS.get(unit, 1) for number, unit in found]


def default_of(option: str) -> Any:
    if option.startswith("listeners.gateway."):
        return GatewayOptions.model_fields[option.rpartition(".")[2]].default
    if option.startswith("quotas.topic."):
        return QuotaTopicOptions.model_fields[option.rpartition(".")[2]].default
    section, _, name = option.partition(".")
    options: Any = Config.model_fields[section].annotation
    return options.model_fields[name].get_default(call_default_factory=True)


@pytest.mark.parametrize(("name", "cell", "where"), ROWS)
def test_a_limit_has_a_number_and_where_it_is_set(name: str, cell: str, where: str) -> None:
    assert numbers(cell) or cell == "no limit", name
    options = OPTION.findall(where)
    assert options or where.startswith(("fixed", "the longest wait", "[")) or not where, where


SET = [
    (name, cell, option)
    for name, cell, where in ROWS
    for option in OPTION.findall(where)
    if option != "pacing.client_patience"  # the share of it is fixed
]


@pytest.mark.parametrize(("name", "cell", "option"), SET)
def test_what_an_option_sets_is_its_default(name: str, cell: str, option: str) -> None:
    default = default_of(option)
    assert (numbers(cell)[0] if numbers(cell) else None) == default, (name, option)


def test_at_least_this_much_is_compared() -> None:
    assert len(SET) >= 20


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("requests of a connection in flight", [MAX_IN_FLIGHT]),
        (
            "… whose user has a `request_percentage` in force; while he owes",
            [IN_FLIGHT_WITHIN_QUOTA, IN_FLIGHT_IN_DEBT],
        ),
        ("bytes of a waiting connection that count as come", [AHEAD_BYTES]),
        (
            "characters of a client id that are kept; of a longer one these and a digest of the whole, by "
            "which it is apart from others",
            [MAX_CLIENT_ID],
        ),
        ("… that are read to see whether its client left", [FAR_BYTES, LOOK_BYTES]),
        (
            "topics, partitions and tagged fields in a Produce or a transaction's request that is looked "
            "into",
            [MAX_PARTS],
        ),
        ("tagged fields in one section of a request or answer that is looked into", [MAX_TAGS]),
        ("clients of one broker that are dialled for at a time", [MAX_DIALS]),
        ("… shortest patience that is believed", [LEAST_PATIENCE_S]),
        ("quota file", [MAX_QUOTAS_BYTES]),
        ("a plan's `plan.json`", [MAX_PLAN_BYTES]),
        ("configuration, credentials, certificates", [MAX_SMALL_BYTES]),
        ("one look at a file", [LIMIT_S]),
        ("rows of a list that the status page can page through", [MAX_LISTED]),
        ("connections at the admin port; at the probe port", [64, MOST_WAITING_OF_ONE]),
        ("log lines about throttling", [20, 1, LINE_INTERVAL_MS / 1000.0]),
    ],
)
def test_what_is_fixed_is_what_the_code_has(name: str, values: list[float]) -> None:
    assert numbers(BY_NAME[name]) == values
