"""The bench's nights are those that ship: held against the job and the command, night by night."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from bench.calibration.entities import NIGHTS, draw_entities, need
from bench.calibration.log import LOST, as_logged, is_incomplete
from bench.calibration.night import FIRST_DAY, KEY, Broker, history, unattended
from bench.calibration.score import _is_foreseen
from bench.calibration.traffic import day_state, pass_day
from sluice.proxy.cli.plan.apply import apply_unattended, read_plan
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.load import load_quotas
from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.night import Night, run_night
from sluice.recalibration.policy.plan import EntityDay, planned
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from testkit.access_log.access_logs import row, write
from testkit.spark.session import spark_for_few_rows

USERS = {"alice": 2_000.0, "bob": 80_000.0, "carol": 3_000.0} | {f"user-{n}": 4_000.0 for n in range(9)}
"""twelve: the shares of a night's guards count from ten on"""
WINDOWS = 200


def rates_of(user: str, day: int) -> tuple[np.ndarray, np.ndarray]:
    """(rates, throttled): alice grows and is throttled at times, bob is far below, carol is throttled."""
    drawn = np.random.default_rng((len(user), day))
    rates = np.round(1_000 * np.exp(drawn.normal(0, 0.3, WINDOWS)))
    if user == "alice":
        return rates * (1 + day % 3), rates > 1_400
    return rates, np.full(WINDOWS, user == "carol")


@pytest.mark.long
def test_the_fast_path_is_the_job_and_the_command_night_by_night(tmp_path: Path) -> None:
    logs, out, quotas = tmp_path / "logs", tmp_path / "out", tmp_path / "quotas.yaml"
    room = 60_000.0
    quotas.write_text(
        "quotas:\n" + "".join(f"  - user: {user}\n    {KEY}: {int(limit)}\n" for user, limit in USERS.items())
    )
    broker = Broker(dict(USERS), room)
    moved = 0
    with spark_for_few_rows({}) as spark:
        for day in range(4):
            before = dict(broker.limits)
            rows = []
            when = FIRST_DAY + timedelta(days=day)
            for user in USERS:
                rates, held = rates_of(user, day)
                state = day_state(rates, held)
                assert state is not None
                broker.states.setdefault(user, []).append(EntityDay("p1", day, state))
                rows += [
                    row(window, day=when, user=user, request_bytes=int(rate * 10), mutes=int(is_held),
                        throttle_ms=10_000.0 * is_held)
                    for window, (rate, is_held) in enumerate(zip(rates, held, strict=True))
                ]  # fmt: skip
            file = write(logs, rows, day=when)
            shutil.copy(file, file.with_name("again.parquet"))  # counted once (bench/calibration/log.py)
            broker.seen[when] = {"p1": {0}}
            unattended(broker, broker.plan_of(day), day, {})
            assert ship(spark, logs, out, quotas, day, room) == broker.limits, (
                f"night {day}: {broker.refused}"
            )
            moved += broker.limits != before
    assert moved >= 3


def ship(spark: SparkSession, logs: Path, out: Path, quotas: Path, day: int, room: float) -> dict[str, float]:
    """Through files: the job's night, then the command's choice, into the quota file."""
    when = FIRST_DAY + timedelta(days=day)
    job = JobSettings(room={KEY: room}, compact=False)
    outcome = run_night(spark, Night(str(logs), str(out), when), load_quotas(quotas), job, lambda line: None)
    plan = read_plan(Path(str(outcome.folder), "plan.json"))
    apply_unattended(plan, QuotaFilePlace(quotas), today=when + timedelta(days=1))
    listing = QuotaFilePlace(quotas).listing()
    return {json.loads(json.dumps(dict(whom)))["user"]: its[KEY] for whom, its in listing.limits.items()}


def test_days_whose_percentile_is_known_come_with_that_of_the_policy() -> None:
    policy = PolicySettings()
    state = day_state(np.array([1_000.0] * 995 + [9_000.0] * 5), np.zeros(1_000, bool))
    assert state is not None
    days = [EntityDay("p1", day, state) for day in range(10)]
    (known, *_), limit = history(days, 9, policy), 2_000.0
    assert not isinstance(known.state, type(state)), "the store gives totals where it can"
    by_totals = planned(QuotaKind.PRODUCE, "{}", limit, history(days, 9, policy), policy)
    assert by_totals == planned(QuotaKind.PRODUCE, "{}", limit, days, policy)


def test_need_is_what_lets_999_of_1000_bytes_pass_without_a_wait() -> None:
    bursts = np.zeros(86_400, np.float32)
    bursts[::10] = 10e6
    assert need(bursts) == 5e6
    demand = bursts[:, None]
    for limit, share in ((5e6, 0.0), (4.5e6, 1.0)):
        limits = np.array([[limit]])
        passed = pass_day(demand, limits, np.zeros((1, 1)), limits.copy())
        assert passed.waited.sum() / demand.sum() == share
        assert (passed.rate == np.float32(limit)).all(), "what the burst cannot take of its busiest second"


def test_what_is_lost_is_not_logged_and_a_week_with_it_is_incomplete() -> None:
    day, hours = 31, LOST[31]
    logged = as_logged(np.ones(8_640), day, 0).reshape(24, 360)
    assert {hour for hour in range(24) if not logged[hour].any()} == hours
    assert [is_incomplete(each) for each in (30, 31, 37, 38)] == [False, True, True, False]


def test_a_day_beyond_what_the_days_before_tell_is_not_foreseen() -> None:
    calm = np.full(30, 1_000.0)
    growing, stepped, late = calm * 1.03 ** np.arange(30), calm.copy(), np.append(np.zeros(20), calm)
    stepped[20:] *= 2
    assert [_is_foreseen(needs) for needs in (calm, growing, stepped, late)] == [True, True, False, True]


def test_demands_are_the_same_each_time_and_every_class_has_some() -> None:
    for entity in draw_entities(7, 1):
        busy = next(day for day in range(NIGHTS) if entity.demand(day).any())
        assert (entity.demand(busy) == entity.demand(busy)).all()
