"""What an exempt rule lets through is no evidence for anybody's limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import make_plan, take_day
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.state.store import StateStore
from testkit.access_log.access_logs import DAY, row, write

RULES = (
    ExemptRule("alice", client_id="backfill"),
    ExemptRule("mirror"),
    ExemptRule("bob", network_of("10.0.0.0/8")),
    ExemptRule(network=network_of("10.9.0.0/16")),
)
JOB = JobSettings(policy=replace(PolicySettings(), min_traffic_s=30.0))


def limits(*exempt: ExemptRule) -> QuotaLimits:
    entries = [
        (QuotaEntity("alice"), {"producer_byte_rate": 10_000}),
        (QuotaEntity(DEFAULT), {"producer_byte_rate": 50_000}),
        (QuotaEntity(ip=DEFAULT), {"connection_creation_rate": 5}),
    ]
    return QuotaLimits(entries, exempt=exempt)


def test_exempt_traffic_counts_for_no_limit_and_who_is_wholly_exempt_is_in_no_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    """alice sends 5,000 B/s besides her backfill. The rules are a day old, and mirror's days are older."""
    logs, store = tmp_path / "logs", StateStore(str(tmp_path / "out"))
    for day, rules in ((DAY - timedelta(days=1), RULES[:1]), (DAY, RULES)):
        write(logs, [
            *(row(window, day=day, request_bytes=50_000, client_id="app") for window in range(9)),
            *(row(window, day=day, request_bytes=90_000, client_id="backfill") for window in range(9)),
            *(row(window, day=day, request_bytes=80_000, user="mirror") for window in range(9)),
            *(row(window, day=day, request_bytes=70_000, user="bob") for window in range(9)),
            *(
                row(window, day=day, user="", api_class="connection", address=address, connections_opened=9)
                for window in range(9)
                for address in ("10.9.0.1", "10.8.0.1")
            ),
        ], day=day)  # fmt: skip
        files = take_day(spark, str(logs), store, day, limits(*rules), JOB)
    plan = make_plan(spark, store, DAY, limits(*RULES), JOB, files)
    found = {entry.entity: entry.pooled_demand for entry in plan.entries}
    assert found.keys() == {'{"user": "alice"}', '{"user": "bob"}', '{"ip": "10.8.0.1"}'}
    assert found['{"user": "alice"}'] < 6_000
    assert found['{"user": "bob"}'] > 6_500, "the log does not tell from which addresses he came"
