"""A night by a clock that was ahead: it leaves files of a date to come, and may remove nothing."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.plan import EntityDay, Known, PlanEntry, planned
from sluice.recalibration.policy.seasons import Peak
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.state.memory import ahead_of, remembered, write_standings
from sluice.recalibration.state.peaks import read_peaks, write_peaks
from sluice.recalibration.state.retention import forget
from testkit.access_log.access_logs import DAY, begin_ms

ALICE = '{"user": "alice"}'
PLACE = ("producer_byte_rate", ALICE)
FLOOD = EntityDay("p1", 0, DayState({}, {460: 8_000}, {480: 8_000}))


def after(days: int) -> date:
    return DAY + timedelta(days=days)


def night(out: str, day: date, limit: float) -> PlanEntry:
    """Of one who floods, by a clock that shows the day behind `day`."""
    known = remembered(out, day, day + timedelta(days=1))
    told = Known(known.before.get(PLACE), again=known.again.get(PLACE))
    found = planned(QuotaKind.PRODUCE, ALICE, limit, [FLOOD], PolicySettings(), told)
    write_standings(out, day, [found], known)
    return found


@pytest.mark.parametrize("at", [1, 2, 5])
@pytest.mark.parametrize("aheads", [(40,), (370,), (40, 41), (3,)])
def test_what_it_leaves_lets_no_limit_rise_beyond_twice_what_a_person_set(
    aheads: tuple[int, ...], at: int, tmp_path: Path
) -> None:
    """Its file was the newest for ever: no night wrote down what it had set itself, took that for a person's,
    and doubled it again: 63 times in ten nights. The nights go on until its date has come and gone."""
    out, limit = str(tmp_path), 1_000.0
    for number in range(50):
        if number == at:
            for ahead in aheads:
                limit = night(out, after(ahead), limit).proposed
        limit = night(out, after(number), limit).proposed
        assert limit <= 2_000
        assert ahead_of(out, after(number + 1)) == []
    assert limit == 2_000
    assert remembered(out, after(49)).again[PLACE].anchor == 1_000


def test_the_first_night_behind_it_run_again_gives_the_same_plan(tmp_path: Path) -> None:
    out = str(tmp_path)
    night(out, after(0), 1_000)
    assert night(out, after(40), 2_000).proposed == 2_000
    assert [(one.anchor, one.proposed) for one in (night(out, after(1), 2_000) for _ in range(3))] == (
        [(1_000, 2_000)] * 3
    )


def test_it_is_named_until_a_night_has_gone_on_from_it(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert ahead_of(out, DAY) == []
    for day in (0, 1, 40):
        night(out, after(day), 2_000)
    assert ahead_of(out, after(3)) == [f"{out}/standing/{after(40)}.json"]
    before = sorted(tmp_path.rglob("*.json"))
    known = remembered(out, after(0), after(3))
    write_standings(out, after(0), [], known)
    assert sorted(tmp_path.rglob("*.json")) == before, "an older date that is run again leaves all as it is"
    night(out, after(2), 2_000)
    assert [file.stem for file in sorted(tmp_path.rglob("*.json"))] == [str(after(n)) for n in (0, 1, 2)]


# What is kept ----------------------------------------------------------------------------------------------


def filled(folder: Path, days: range) -> tuple[Path, Path]:
    out, logs = folder / "out", folder / "logs"
    for day in map(after, days):
        for table in (out / "windows", out / "state", logs / "rollup"):
            (table / f"date={day}").mkdir(parents=True, exist_ok=True)
            (table / f"date={day}" / "a.parquet").write_bytes(b"PAR1")
        for name in ("standing", "beats"):
            (out / name).mkdir(exist_ok=True)
            (out / name / f"{day}.json").write_text("{}")
    return out, logs


def test_nothing_is_removed_by_a_date_weeks_behind_all_that_are_known(tmp_path: Path) -> None:
    """A clock that was a year ahead removed the log of three days ago as older than 90 days."""
    job = JobSettings(keep_log_days=90)
    out, logs = filled(tmp_path, range(3))
    filled(tmp_path, range(500, 503))
    before = sorted(tmp_path.rglob("*"))
    for day in (500, 501, 502):
        forgotten = forget(str(out), str(logs), after(day), job)
        assert (forgotten.dates, forgotten.kept_for) == (0, after(2))
    assert sorted(tmp_path.rglob("*")) == before
    filled(tmp_path, range(503, 529))
    forgotten = forget(str(out), str(logs), after(528), job)
    assert (forgotten.dates, forgotten.kept_for) == (3, None), "four weeks on it is no clock that was ahead"
    assert (out / "state" / f"date={after(500)}").exists()
    assert not (out / "state" / f"date={after(2)}").exists()


def test_a_clock_that_is_four_weeks_ahead_to_the_day_removes_nothing(tmp_path: Path) -> None:
    """By it each of the 28 dates of windows was too old to keep."""
    out, logs = filled(tmp_path, range(28))
    before = sorted(tmp_path.rglob("*"))
    filled(tmp_path, range(55, 56))
    assert forget(str(out), str(logs), after(55), JobSettings()).kept_for == after(27)
    assert set(before) <= set(tmp_path.rglob("*"))


def test_nights_that_pause_for_less_than_four_weeks_are_tidied_behind_as_ever(tmp_path: Path) -> None:
    out, logs = filled(tmp_path, range(0, 127, 14))
    forgotten = forget(str(out), str(logs), after(126), JobSettings(keep_log_days=90))
    assert (forgotten.dates, forgotten.kept_for) == (3, None)


def test_peaks_of_a_year_are_not_forgotten_by_it(tmp_path: Path) -> None:
    out = str(tmp_path)
    begin = begin_ms(DAY) // 1_000
    found = {PLACE: [Peak(begin, begin + 3_600, 5.0)]}
    write_peaks(out, DAY, found, 400)
    write_peaks(out, after(1), {}, 400)
    write_peaks(out, after(500), {}, 400)
    assert read_peaks(out, after(2), 400)[DAY] == found
    for day in range(501, 529):
        write_peaks(out, after(day), {}, 400)
    assert DAY.isoformat() not in json.loads((tmp_path / "peaks.json").read_text())
