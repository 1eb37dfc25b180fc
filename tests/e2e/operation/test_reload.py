"""Other quotas while traffic flows: the new limit holds, nothing is dropped, a bad file changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from testkit.clients.traffic import SETTLE_S, about, flowing
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]
SLOW, QUICK = 100_000, 400_000
"""bytes per second"""


@pytest.mark.long
def test_a_new_limit_holds_at_once_and_drops_nothing(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    with flowing(kafka, sluice, unique("topic"), client_id) as flow:
        for quota in (SLOW, QUICK, SLOW):
            sluice.set_quotas({"client-id": client_id, "producer_byte_rate": quota})
            assert flow.comes_to(about(quota)), quota


def test_a_limit_that_is_taken_away_lets_a_waiting_client_go(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    with flowing(kafka, sluice, unique("topic"), client_id) as flow:
        time.sleep(SETTLE_S)
        sluice.set_quotas()
        assert flow.comes_to(lambda rate: rate > 3 * SLOW)


def test_a_file_that_cannot_be_used_changes_nothing_and_is_counted(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    before = {
        outcome: sluice.metric("sluice_config_reloads_total", file="quotas", outcome=outcome)
        for outcome in ("invalid", "unreadable")
    }

    def is_counted(outcome: str) -> bool:
        return (
            sluice.metric("sluice_config_reloads_total", file="quotas", outcome=outcome)
            == before[outcome] + 1
        )

    with flowing(kafka, sluice, unique("topic"), client_id) as flow:
        sluice.exchange_quota_file("quotas: [{client-id: x, producer_bite_rate: 1}]")
        sluice.wait_until(lambda: is_counted("invalid"), "counted")
        sluice.quota_file.unlink()
        sluice.wait_until(lambda: is_counted("unreadable"), "counted")
        assert flow.comes_to(about(SLOW))
    problems = sluice.log_lines("quotas_not_applied", outcome="invalid")[-1]["problems"]
    assert "producer_bite_rate" in problems[0]
