"""A plan applied where quotas are kept: at the broker, and at a proxy with a topic by either of its doors."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, read_plan, roll_back
from sluice.proxy.cli.quotas.client_properties import ClientSettings
from sluice.proxy.cli.quotas.places import Place
from sluice.proxy.cli.quotas.remote import SocketPlace
from sluice.proxy.cli.quotas.server import QuotaServer
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = pytest.mark.kafka
KEY = "producer_byte_rate"


def plan_of(folder: Path, user: str, current: float, proposed: float) -> Path:
    document = {
        "version": 1,
        "date": str(datetime.now(UTC).date() - timedelta(days=1)),
        "policy": {"max_step_up": 2.0, "max_step_down": 0.7},
        "entries": [
            {
                "key": KEY,
                "entity": json.dumps({"user": user}),
                "current": current,
                "proposed": proposed,
                "reason": "demand",
                "needs_review": False,
            }
        ],
    }
    file = folder / "plan.json"
    file.write_text(json.dumps(document))
    return file


def limit(place: Place, user: str) -> float | None:
    return place.listing().limits.get((("user", user),), {}).get(KEY)


def await_limit(place: Place, user: str, bytes_per_s: float) -> None:
    """A broker tells of a change once it has come back to it from the controller."""
    deadline_s = time.monotonic() + 30.0
    while (found := limit(place, user)) != bytes_per_s:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)


def assert_applied_and_rolled_back(place: Place, folder: Path, user: str) -> None:
    place.alter({(("user", user),): {KEY: 1_000.0}})
    await_limit(place, user, 1_000)
    file = plan_of(folder, user, 1_000, 1_500)
    assert len(apply_plan(read_plan(file), place).found) == 1
    await_limit(place, user, 1_500)
    assert apply_plan(read_plan(file), place).found == []
    assert len(roll_back(file, place).found) == 1
    await_limit(place, user, 1_000)
    place.alter({(("user", user),): {KEY: None}})


def test_at_a_broker(kafka: KafkaNode, tmp_path: Path) -> None:
    assert_applied_and_rolled_back(QuotaServer(kafka.bootstrap, ClientSettings()), tmp_path, "plan-at-broker")


def test_at_a_proxy_with_a_topic_by_its_socket_and_by_kafkas_api_and_on_record(
    kafka: KafkaNode, tmp_path: Path
) -> None:
    topic = {"bootstrap": [kafka.bootstrap], "name": "__plan_quotas"}
    options = {"source": "topic", "topic": topic, "admins": ["ANONYMOUS"]}
    port = free_port()
    admin = {"bind_host": LOOPBACK, "bind_port": port, "probes": {"bind_port": 0}, "socket": "admin.socket"}
    process = SluiceProcess(doors_of(kafka, ("SLUICE",)), quota_options=options, admin=admin)
    process.admin_port = port
    with process as sluice:
        (tmp_path / "socket").mkdir()
        assert_applied_and_rolled_back(
            SocketPlace(sluice.folder / "admin.socket"), tmp_path / "socket", "by-socket"
        )
        assert_applied_and_rolled_back(
            QuotaServer(sluice.bootstrap(), ClientSettings()), tmp_path, "by-kafkas-api"
        )
        lines = sluice.log_lines("quota_changed", entity="user 'by-socket'")
        assert [line["by"] for line in lines] == ["local admin"] * 4
        assert [line["new"].get(KEY) for line in lines] == [1_000, 1_500, 1_000, None]
        assert {line["by"] for line in sluice.log_lines("quota_changed", entity="user 'by-kafkas-api'")} == {
            "ANONYMOUS"
        }
