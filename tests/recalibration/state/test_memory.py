"""What a night remembers: anchors by date, and grants until their last day."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import pytest

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.holes import Beats
from sluice.recalibration.policy.plan import EntityDay, Known, PlanEntry, planned
from sluice.recalibration.policy.seasons import Peak
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.policy.standing import Grant, Standing
from sluice.recalibration.state.beats import read_beats, write_beats
from sluice.recalibration.state.buckets import bucket_of
from sluice.recalibration.state.memory import (
    Remembered,
    grants_on,
    is_remembered,
    remembered,
    write_standings,
)
from sluice.recalibration.state.peaks import read_peaks, write_peaks

DAY = date(2026, 11, 20)
ALICE = '{"user": "alice"}'
NOTHING = Remembered()
PLACE = ("producer_byte_rate", ALICE)


def entry(limit: float, earlier: Remembered = NOTHING) -> PlanEntry:
    """Of one who floods."""
    flood = EntityDay("p1", 0, DayState({}, {460: 8_000}, {480: 8_000}))
    known = Known(earlier.before.get(PLACE), again=earlier.again.get(PLACE))
    return planned(QuotaKind.PRODUCE, ALICE, limit, [flood], PolicySettings(), known)


def test_a_night_reads_the_newest_older_than_its_date_and_keeps_who_was_absent(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert remembered(out, DAY) == Remembered()
    other = {("producer_byte_rate", '{"user": "bob"}'): Standing(1, 2, 3)}
    write_standings(out, DAY - timedelta(days=1), [entry(1_000)], Remembered(other))
    write_standings(out, DAY, [entry(9_000)], Remembered())
    before = other | {PLACE: Standing(1_000, 1_000, entry(1_000).proposed, word=1_000)}
    assert remembered(out, DAY).before == before
    assert remembered(out, DAY + timedelta(days=5)).before[PLACE].anchor == 9_000


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_date_that_is_run_again_and_applied_again_does_not_take_its_own_limit_for_a_persons(
    is_applied: bool, tmp_path: Path
) -> None:
    """Each run doubled the anchor, and `--apply` the limit of who floods: × 8 in three runs of one date."""
    out, limit, proposed = str(tmp_path), 1_000.0, []
    write_standings(out, DAY - timedelta(days=1), [entry(1_000)], Remembered())
    for _ in range(4):
        known = remembered(out, DAY)
        found = entry(limit, known)
        write_standings(out, DAY, [found], known)
        proposed.append((found.anchor, found.proposed))
        limit = found.proposed if is_applied else limit
    assert proposed == [(1_000, 2_000)] * 4
    later = entry(limit, remembered(out, DAY + timedelta(days=1)))
    assert (later.anchor, later.proposed) == (1_000, 2_000)


def test_a_date_that_is_run_again_after_a_person_has_set_the_limit_has_that_for_its_anchor(
    tmp_path: Path,
) -> None:
    out = str(tmp_path)
    write_standings(out, DAY, [entry(1_000)], Remembered())
    assert entry(5_000, remembered(out, DAY)).anchor == 5_000


def test_an_older_date_that_is_run_again_goes_by_the_newest_night_and_leaves_the_memory_as_it_is(
    tmp_path: Path,
) -> None:
    out = str(tmp_path)
    write_standings(out, DAY - timedelta(days=1), [entry(1_000)], Remembered())
    write_standings(out, DAY, [entry(2_000, remembered(out, DAY))], remembered(out, DAY))
    files = {file: file.read_bytes() for file in tmp_path.rglob("*.json")}
    known = remembered(out, DAY - timedelta(days=1))
    again = entry(2_000, known)
    write_standings(out, DAY - timedelta(days=1), [again], known)
    assert (again.anchor, again.proposed) == (1_000, 2_000)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.json")} == files


@pytest.mark.parametrize(
    "text", ["", '{"producer_byte_rate": {"', "[]", '{"producer_byte_rate": 3}', "[" * 9_999]
)
def test_a_damaged_file_is_named_with_what_to_do(text: str, tmp_path: Path) -> None:
    """A night that was killed while it wrote left half a file, at which all later nights died unexplained."""
    for name, read in (
        (f"standing/{DAY}.json", lambda: remembered(str(tmp_path), DAY)),
        (f"beats/{DAY}.json", lambda: read_beats(str(tmp_path), DAY, 1)),
        ("grants.json", lambda: grants_on(str(tmp_path), DAY)),
        ("peaks.json", lambda: read_peaks(str(tmp_path), DAY, 400)),
    ):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        if name == "grants.json" and text.startswith('{"producer_byte_rate": 3'):
            continue  # no grants, and more that a later version may have
        with pytest.raises(OSError, match=f"{name}: is damaged, or not what a night wrote"):
            read()
        file.unlink()
        file.mkdir()
        with pytest.raises(OSError, match=f"{name}: is a folder; a night keeps a file there"):
            read()
        file.rmdir()


def test_limits_by_a_default_that_have_not_been_used_for_weeks_are_forgotten_and_all_others_kept(
    tmp_path: Path,
) -> None:
    """1,000 made-up client ids a day were in each night's file for ever."""
    out = str(tmp_path)
    limits = QuotaLimits([
        (QuotaEntity("alice"), {PLACE[0]: 1_000}),
        (QuotaEntity("mallory", DEFAULT), {PLACE[0]: 5_000}),
        (QuotaEntity(DEFAULT), {PLACE[0]: 3_000}),
        (QuotaEntity(ip=DEFAULT), {"connection_creation_rate": 5}),
    ])  # fmt: skip
    own = {
        PLACE: Standing(1_000, 1_000, 2_000),
        (PLACE[0], '{"client-id": "gone"}'): Standing(1, 2, 3),
        ("a key of a later version", ALICE): Standing(1, 2, 3),
        (PLACE[0], '{"user": "granted"}'): Standing(3_000, 3_000, 3_000),
    }
    by_default = {
        (PLACE[0], '{"client-id": "x", "user": "mallory"}'): Standing(5_000, 5_000, 5_000),
        (PLACE[0], '{"user": "bob"}'): Standing(3_000, 3_000, 3_000),
        ("connection_creation_rate", '{"ip": "10.0.0.1"}'): Standing(5, 5, 5),
    }
    grants = {(PLACE[0], '{"user": "granted"}'): Grant(9_000.0, DAY.toordinal())}
    used = replace(entry(3_000), entity='{"user": "carol"}')
    for known in (Remembered(own | by_default), Remembered(own, by_default)):
        write_standings(out, DAY, [used], known, partial(is_remembered, limits, grants))
        kept = remembered(out, DAY).again
        assert kept.keys() == own.keys() | {(PLACE[0], used.entity)}
        assert kept[PLACE] == own[PLACE]


def test_who_comes_back_to_a_defaults_limit_stands_on_its_number_as_a_stranger_does(tmp_path: Path) -> None:
    out, limits = str(tmp_path), QuotaLimits([(QuotaEntity(DEFAULT), {PLACE[0]: 1_000})])
    write_standings(
        out, DAY, [], Remembered({PLACE: Standing(400, 1_000, 1_000)}), partial(is_remembered, limits, {})
    )
    known = remembered(out, DAY + timedelta(days=1))
    assert known == Remembered()
    back = entry(1_000, known)
    assert (back.anchor, back.proposed, back.needs_review) == (1_000, 2_000, True)


@pytest.mark.parametrize("entity", ["alice", "3", "[]", '{"user": 3}'])
def test_an_entity_that_is_none_is_damage(entity: str, tmp_path: Path) -> None:
    (tmp_path / "standing").mkdir()
    (tmp_path / f"standing/{DAY}.json").write_text(standing("[1000, 1000, 1000]", entity))
    with pytest.raises(OSError, match="is damaged, or not what a night wrote"):
        remembered(str(tmp_path), DAY)


DIGITS = "1" + "0" * 400
SECONDS = (DAY - date(1970, 1, 1)).days * 86_400
WINDOW = SECONDS // 10


def standing(numbers: str, entity: str = ALICE) -> str:
    return json.dumps({PLACE[0]: {entity: "HERE"}}).replace('"HERE"', numbers)


def peaks(numbers: str) -> str:
    return json.dumps({DAY.isoformat(): {PLACE[0]: {ALICE: "HERE"}}}).replace('"HERE"', f"[{numbers}]")


def grant(**values: object) -> str:
    item = {
        "entity": ALICE,
        "key": PLACE[0],
        "up_to": 5_000.0,
        "until": (DAY + timedelta(days=9)).isoformat(),
    }
    return json.dumps({"grants": [item | values]})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("standing", standing("[NaN, 1000, 1000]")),
        ("standing", standing("[1000, Infinity, 1000]")),
        ("standing", standing("[1000, 1000, 1e999]")),
        ("standing", standing("[-5, 1000, 1000]")),
        ("standing", standing('["NaN", 1000, 1000]')),
        ("standing", standing("[true, 1000, 1000]")),
        ("standing", standing(f"[{DIGITS}, 1000, 1000]")),
        ("standing", standing("[1000, 1000, 1000]", "\ud800")),
        ("beats", '{"p1": [null, 9, false, []]}'),
        ("beats", '{"p1": [1, "9", false, []]}'),
        ("beats", '{"p1": [1, 9, false, [[2, null]]]}'),
        ("beats", f'{{"p1": [{WINDOW}, {WINDOW + 9}, false, [[0, 1000000000000]]]}}'),
        ("beats", '{"p1": [1000000000000000, 2000000000000000, false, []]}'),
        ("beats", '{"p1": [-10000000000, -9999999999, false, []]}'),
        ("beats", f'{{"p1": [{WINDOW}, {WINDOW + 8_640}, false, []]}}'),
        ("beats", f'{{"p1": [true, {WINDOW}, false, []]}}'),
        ("peaks", peaks("[null, 3600, 5.0]")),
        ("peaks", peaks('[0, 3600, "5"]')),
        ("peaks", peaks("[NaN, NaN, NaN]")),
        ("peaks", peaks("[1e300, 1e301, 5]")),
        ("peaks", peaks("[100000000000000000, 100000000000003600, 5e5]")),
        ("peaks", peaks(f"[{SECONDS}, {SECONDS + 90_000}, 5e5]")),
        ("peaks", peaks(f"[{SECONDS}, {SECONDS + 3_600}, Infinity]")),
        ("peaks", peaks(f"[{SECONDS}, {SECONDS + 3_600}, -5]")),
        ("grants", grant(up_to=float("nan"))),
        ("grants", grant(up_to=float("inf"))),
        ("grants", grant(up_to=-5)),
        ("grants", grant(up_to="5000")),
        ("grants", grant(until="one day")),
        ("grants", grant(entity=["alice"])),
    ],
)
def test_numbers_that_are_none_are_named_with_their_file(name: str, text: str, tmp_path: Path) -> None:
    """NaN stayed an anchor for ever; a window or a second beyond the calendar ended in a traceback."""
    out = str(tmp_path)
    places: dict[str, tuple[Path, Callable[[], object]]] = {
        "standing": (tmp_path / f"standing/{DAY}.json", lambda: remembered(out, DAY)),
        "beats": (tmp_path / f"beats/{DAY}.json", lambda: read_beats(out, DAY, 1)),
        "peaks": (tmp_path / "peaks.json", lambda: read_peaks(out, DAY, 400)),
        "grants": (tmp_path / "grants.json", lambda: grants_on(out, DAY)),
    }
    file, read = places[name]
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(OSError, match=f"{file.name}: is damaged, or not what a night wrote.*put it back"):
        read()


def test_what_nights_write_is_read_again(tmp_path: Path) -> None:
    """The first and the last second of a date, and the last window."""
    out, beats = str(tmp_path), {"p1": Beats(WINDOW, WINDOW + 8_639, True, ((WINDOW + 3, WINDOW + 7),))}
    found = {PLACE: [Peak(SECONDS, SECONDS + 86_400, 5.5)]}
    write_beats(out, DAY, beats)
    write_peaks(out, DAY, found, 400)
    assert read_beats(out, DAY, 1) == {DAY: beats}
    assert read_peaks(out, DAY + timedelta(days=1), 400) == {DAY: found}


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_standings(str(tmp_path), DAY, [entry(1_000)], Remembered())
    (tmp_path / "standing" / f"{DAY}.json.new").mkdir()
    with pytest.raises(OSError, match=r"json\.new"):
        write_standings(str(tmp_path), DAY, [entry(9_000)], Remembered())
    assert remembered(str(tmp_path), DAY).again[PLACE].anchor == 1_000


def test_a_grant_is_in_force_in_the_nights_up_to_its_last_date(tmp_path: Path) -> None:
    """A night is over the log of the day before."""
    assert grants_on(str(tmp_path), DAY) == {}
    item = {"entity": ALICE, "key": PLACE[0], "up_to": 5_000.0, "until": DAY.isoformat()}
    (tmp_path / "grants.json").write_text(json.dumps({"grants": [item]}))
    assert grants_on(str(tmp_path), DAY - timedelta(days=1)) == {PLACE: (5_000.0, DAY.toordinal())}
    assert grants_on(str(tmp_path), DAY) == {}


def run_again(
    out: str, limit: float, days: list[EntityDay], grant: float = 0.0, day: date = DAY
) -> PlanEntry:
    """One more run of the date, over a log that may have become another meanwhile."""
    known = remembered(out, day)
    told = Known(known.before.get(PLACE), grant, again=known.again.get(PLACE), grant_until=20)
    found = planned(QuotaKind.PRODUCE, ALICE, limit, days, PolicySettings(), told)
    write_standings(out, day, [found], known)
    return found


def used(rate: float) -> list[EntityDay]:
    return [EntityDay("p1", age, DayState({bucket_of(rate): 8_640})) for age in range(20)]


def flooded(rate: float) -> list[EntityDay]:
    """Twice as much was asked for."""
    state = DayState({}, {bucket_of(rate): 8_640}, {bucket_of(2 * rate): 8_640})
    return [EntityDay("p1", age, state) for age in range(20)]


def test_a_date_that_is_run_again_and_applied_again_cuts_once(tmp_path: Path) -> None:
    """Below ten limits, where no guard holds it back, each run cut to 0.7 times what the last had left."""
    out, limit, limits = str(tmp_path), 1_000_000.0, []
    for _ in range(5):
        limit = run_again(out, limit, used(100_000)).proposed
        limits.append(limit)
    assert limits == [700_000] * 5
    tomorrow = entry(limit, remembered(out, DAY + timedelta(days=1)))
    assert tomorrow.current == 700_000


def test_a_date_that_is_run_again_goes_on_with_a_cut_that_was_made_a_part_of_the_way(tmp_path: Path) -> None:
    out = str(tmp_path)
    run_again(out, 1_000_000, used(100_000))
    assert [run_again(out, limit, used(100_000)).proposed for limit in (886_000, 800_000)] == [700_000] * 2


def test_what_a_date_is_granted_is_one_step_however_often_it_is_run(tmp_path: Path) -> None:
    """The first plan goes to 2,000; a person's grant of 9,000 doubled that with each run."""
    out, limit, limits = str(tmp_path), 1_000.0, []
    for grant in (0.0, 9_000.0, 9_000.0, 9_000.0):
        limit = run_again(out, limit, flooded(1_000), grant).proposed
        limits.append(limit)
    assert limits == [2_000] * 4
    assert run_again(out, 5_000, flooded(5_000), 9_000).proposed == 9_000, (
        "a person set it: no first step leads there"
    )


@pytest.mark.parametrize(
    ("first", "then", "proposed"),
    [
        (used(100_000), used(900_000), 1_000_000),
        (used(100_000), flooded(700_000), 1_400_000),
        (flooded(1_000_000), used(100_000), 1_400_000),
    ],
)
def test_a_date_that_is_run_again_with_late_files_is_within_a_step_of_what_its_first_plan_was_made_from(
    first: list[EntityDay], then: list[EntityDay], proposed: float, tmp_path: Path
) -> None:
    out = str(tmp_path)
    limit = run_again(out, 1_000_000, first).proposed
    assert run_again(out, limit, then).proposed == pytest.approx(proposed, rel=0.03)


def test_a_date_that_is_run_again_steps_from_a_limit_that_a_person_has_set_meanwhile(tmp_path: Path) -> None:
    out = str(tmp_path)
    run_again(out, 1_000_000, used(100_000))
    assert run_again(out, 3_000_000, used(100_000)).proposed == 2_100_000
    assert run_again(out, 2_100_000, used(100_000)).proposed == 2_100_000


def test_a_date_that_is_run_again_goes_by_what_its_first_run_saw_of_a_grant(tmp_path: Path) -> None:
    """A person had lowered what was granted 9,000: each run doubled that again, and later nights did."""
    out = str(tmp_path)
    run_again(out, 4_000, flooded(2_000), 9_000, DAY - timedelta(days=1))
    first = run_again(out, 400, flooded(400), 9_000)
    again = run_again(out, first.proposed, flooded(400), 9_000)
    assert (again.proposed, again.word) == (first.proposed, 400)
    later = run_again(out, again.proposed, flooded(800), 9_000, DAY + timedelta(days=1))
    assert (later.proposed, later.word) == (first.proposed, 400)


def test_what_a_dates_first_run_has_cut_ends_no_grant_when_it_is_run_again(tmp_path: Path) -> None:
    out = str(tmp_path)
    run_again(out, 4_000, flooded(4_000), 20_000, DAY - timedelta(days=1))
    cut = run_again(out, 8_000, used(1_000), 20_000)
    assert cut.proposed < 4_000 * 1.5
    assert run_again(out, cut.proposed, flooded(8_000), 20_000).word == 20_000
