"""A window of a calendar begins and ends while traffic flows: the limits are switched, nothing is dropped."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from testkit.clients.traffic import about, flowing
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]
SLOW, QUICK = 100_000, 400_000
"""bytes per second"""
WINDOW_S = 15
"""a flow's rate takes four seconds to be seen"""


@pytest.mark.slow
def test_limits_change_when_a_window_begins_and_when_it_ends(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    normal = {"client-id": client_id, "producer_byte_rate": SLOW}
    sluice.set_quotas(normal)
    with flowing(kafka, sluice, unique("topic"), client_id) as flow:
        assert flow.comes_to(about(SLOW))
        begin = datetime.now(UTC) + timedelta(seconds=2)
        window = {
            "date": str(begin.date()),
            "from": f"{begin:%H:%M:%S}",
            "to": f"{begin + timedelta(seconds=WINDOW_S):%H:%M:%S}",
            "producer_byte_rate": QUICK,
        }
        text = json.dumps({"quotas": [{**normal, "schedule": [window]}]})
        sluice.exchange_quota_file(text)
        sluice.await_quotas(text)
        assert flow.comes_to(about(QUICK))
        assert flow.comes_to(about(SLOW))
    assert [line["entities"] for line in sluice.log_lines("quotas_scheduled")[-2:]] == [1, 0]
