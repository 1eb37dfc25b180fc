"""Names that a stranger makes up change nothing for others where no room is set, either.

Quota `client-id: <default>` 10 MB/s; a hundred ids and more, with one small request on each of 14 dates.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from sluice.proxy.cli.plan.apply import Applied, apply_plan, apply_unattended, read_plan
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused, Reviews
from sluice.proxy.cli.plan.command import left_out_lines
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.entity_key import LimitOrigin, limit_of, origin_of
from sluice.quotas.files.load import load_quotas
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.demand import DayState, Demand
from sluice.recalibration.policy.plan import (
    DayTotals,
    EntityDay,
    Known,
    PlanEntry,
    fitted_plan,
    planned,
)
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.report.files import write_outputs
from sluice.recalibration.state.buckets import bucket_of

DAY = date(2026, 11, 20)
KEY = "producer_byte_rate"
MB = 1_000_000
SETTINGS = PolicySettings()
HONEST = [f"honest{number:02}" for number in range(12)]
A_DAY = 8_640
"""windows"""


def calm(rate: float, windows: int = A_DAY, ages: int = 14) -> list[EntityDay]:
    return [EntityDay("p", age, DayTotals(windows, 0, Demand(rate, True, rate))) for age in range(ages)]


def throttled(limit: float, ages: int = 14) -> list[EntityDay]:
    """All day, and five times the limit is asked for."""
    state = DayState({}, {bucket_of(limit): A_DAY}, {bucket_of(limit * 5): A_DAY})
    return [EntityDay("p", age, state) for age in range(ages)]


def entry(
    name: dict[str, str], limit: float, days: list[EntityDay], origin: LimitOrigin, grant: float = 0.0
) -> PlanEntry:
    known = Known(origin=origin, grant=grant)
    return planned(QuotaKind.PRODUCE, json.dumps(name), limit, days, SETTINGS, known)


def quota_file(folder: Path, users: list[str] = HONEST) -> Path:
    file = folder / "quotas.yaml"
    own = "".join(f"  - user: {user}\n    {KEY}: 1000000\n" for user in users)
    file.write_text(f"quotas:\n  - client-id: <default>\n    {KEY}: 10000000\n{own}")
    return file


def ids(file: Path, number: int, days: list[EntityDay]) -> list[PlanEntry]:
    limits = load_quotas(file)
    names = [json.dumps({"client-id": f"m{each}"}) for each in range(number)]
    origins = [origin_of(limits, QuotaKind.PRODUCE, name) for name in names]
    first = entry({"client-id": "m"}, 10 * MB, days, LimitOrigin.ANYBODY)
    assert set(origins) <= {LimitOrigin.ANYBODY}, "no night has given them limits of their own"
    return [replace(first, entity=name) for name in names]


def apply(
    folder: Path, file: Path, day: date, entries: list[PlanEntry], *, by_hand: bool = False, **given: object
) -> Applied:
    """As the job writes a plan, and `sluice quotas apply` reads it."""
    run = folder / "plans" / f"{day}-1"
    run.mkdir(parents=True)
    write_outputs(Plan(day, fitted_plan(entries, {}), LogFiles([], {}), SETTINGS), run)
    do = apply_plan if by_hand else apply_unattended
    return do(read_plan(run / "plan.json"), QuotaFilePlace(file), today=day + timedelta(days=1), **given)  # type: ignore[arg-type]


SMALL = calm(20.0, 1)
"""a request a date"""
LARGE = calm(7 * MB)
"""what costs nothing to ask for"""


@pytest.mark.parametrize(("number", "days"), [(200, SMALL), (200, LARGE), (200, throttled(10 * MB))])
def test_made_up_names_make_no_weeks_cuts_larger(number: int, days: list[EntityDay], tmp_path: Path) -> None:
    """12 honest limits fell from 12 to 1.8 MB/s in seven nights: a quarter of all that the ids had."""
    file = quota_file(tmp_path)
    for night in range(7):
        limits = load_quotas(file)
        of = {user: limit_of(limits, QuotaKind.PRODUCE, json.dumps({"user": user})) for user in HONEST}
        entries = [entry({"user": u}, of[u] or 0.0, calm(1e5), LimitOrigin.OWN) for u in HONEST]
        apply(tmp_path, file, DAY + timedelta(days=night), [*entries, *ids(file, number, days)])
    lines = [line for line in file.read_text().splitlines() if KEY in line]
    assert len(lines) == 13, "nor have they entries of their own"
    assert 9 * MB <= sum(int(line.split(":")[1]) for line in lines[1:]) < 9.1 * MB


@pytest.mark.parametrize("days", [SMALL, LARGE, throttled(10 * MB)])
def test_made_up_names_have_no_honest_plan_refused(days: list[EntityDay], tmp_path: Path) -> None:
    """Three cuts and three rises of 20: "suspicious: cuts 203 of 220"."""
    users = [f"h{number:02}" for number in range(20)]
    file = quota_file(tmp_path, users)
    rates = {user: 1e5 if user < "h03" else 1.3 * MB if user < "h06" else 8.5e5 for user in users}
    entries = [entry({"user": user}, MB, calm(rate), LimitOrigin.OWN) for user, rate in rates.items()]
    applied = apply(tmp_path, file, DAY, [*entries, *ids(file, 200, days)], by_hand=True)
    assert {dict(limit.whom)["user"] for limit in applied.choice.chosen} == set(users[:6])


def test_made_up_names_hide_no_fall_of_the_others(tmp_path: Path) -> None:
    """Beside 300 ids that wait, and ask for more each than all others have, 30 % were 0 %."""
    file = quota_file(tmp_path)
    entries = [entry({"user": user}, MB, calm(1e5), LimitOrigin.OWN) for user in HONEST]
    waiting = ids(file, 300, throttled(10 * MB))
    assert all(each.needs_review for each in waiting)
    with pytest.raises(PlanRefused, match="together fall by 30%"):
        apply(tmp_path, file, DAY, [*entries, *waiting], by_hand=True, bounds=Bounds(max_cut_share=1.0))


def test_a_plan_of_many_made_up_names_stays_small(tmp_path: Path) -> None:
    """100,000 ids of 250 characters were a plan.json that `sluice quotas apply` does not read."""
    file = quota_file(tmp_path)
    alice = entry({"user": "alice"}, MB, calm(1e5), LimitOrigin.OWN)
    plan = Plan(DAY, [alice, *ids(file, 3_000, SMALL)], LogFiles([], {}), SETTINGS)
    assert plan.listed == [alice]
    assert plan.unlisted == 3_000


@pytest.mark.parametrize("kind", [QuotaKind.PRODUCE, QuotaKind.CONNECTION_CREATION])
@pytest.mark.parametrize("room", [{}, {"producer_byte_rate": 1e12, "connection_creation_rate": 1e12}])
def test_limits_by_a_default_for_any_name_neither_fall_nor_rise_by_themselves(
    kind: QuotaKind, room: dict[str, float]
) -> None:
    known = Known(origin=LimitOrigin.ANYBODY)
    low = planned(kind, "low", 1_000.0, calm(1.0), SETTINGS, known)
    held = planned(kind, "held", 1_000.0, throttled(1_000.0), SETTINGS, known)
    after = fitted_plan([low, held], room)
    assert [(each.proposed, each.reason) for each in after] == [(1_000.0, Reason.BY_DEFAULT)] * 2
    assert [each.needs_review for each in after] == [False, True], "who is throttled is for a person"
    assert after[1].up_to > 4_000
    assert after[0].key == KINDS[kind].config_key


@pytest.mark.parametrize("origin", [LimitOrigin.OWN, LimitOrigin.DEFAULT])
def test_users_and_who_was_granted_more_go_on_as_before(origin: LimitOrigin) -> None:
    assert entry({"user": "bob"}, 1_000.0, calm(100.0), origin).proposed == 700
    assert entry({"user": "bob"}, 1_000.0, calm(1_500.0), origin).proposed > 1_500
    granted = entry({"client-id": "app"}, 1_000.0, throttled(1_000.0), LimitOrigin.ANYBODY, grant=9_000.0)
    assert granted.proposed == 2_000


def test_a_throttled_id_rises_by_a_persons_word(tmp_path: Path) -> None:
    file = quota_file(tmp_path)
    app = entry({"client-id": "app"}, 10 * MB, throttled(10 * MB), LimitOrigin.ANYBODY)
    applied = apply(tmp_path, file, DAY, [app, *ids(file, 50, SMALL)])
    assert [limit.entity for limit in applied.choice.waiting] == ['{"client-id": "app"}']
    assert "app" not in file.read_text()
    named = Reviews(named=frozenset({(("client-id", "app"),)}))
    apply(tmp_path, file, DAY + timedelta(days=1), [app], reviews=named)
    assert f'client-id: "app"\n    {KEY}: 20000000' in file.read_text()


def test_what_a_job_of_before_has_cut_of_them_is_left_out(tmp_path: Path) -> None:
    """Its plans may be there still when Sluice is replaced."""
    file = quota_file(tmp_path)
    cut = replace(ids(file, 1, SMALL)[0], proposed=7.0 * MB, reason=Reason.STEP_DOWN)
    run = tmp_path / "plan.json"
    entries = [entry({"user": user}, MB, calm(8e5), LimitOrigin.OWN) for user in HONEST]
    cuts = [replace(cut, entity=json.dumps({"client-id": f"m{number}"})) for number in range(200)]
    run.write_text(json.dumps(Plan(DAY, [*entries, *cuts], LogFiles([], {}), SETTINGS).as_json()))
    before = file.read_text()
    for do in (apply_plan, apply_unattended):
        applied = do(read_plan(run), QuotaFilePlace(file), today=DAY)
        assert {why for _, why in applied.choice.left_out} == {
            "by a default for any name, of which there are others; lower the default"
        }
        assert len(applied.choice.left_out) == 200
    assert file.read_text() == before


def test_the_lines_of_apply_have_made_up_names_last(tmp_path: Path) -> None:
    """Users by a default, too, were hidden by 20 that ask for more."""
    file = quota_file(tmp_path, ["bob"])
    file.write_text(file.read_text() + f"  - user: <default>\n    {KEY}: 1000000\n")
    carol = entry({"user": "carol"}, MB, throttled(MB), LimitOrigin.DEFAULT)
    bob = entry({"user": "bob"}, MB, throttled(MB), LimitOrigin.OWN)
    minted = [
        replace(
            entry({"user": "eve", "client-id": "m"}, MB, throttled(3 * MB), LimitOrigin.ANYBODY), entity=name
        )
        for name in (json.dumps({"client-id": f"m{number}", "user": "eve"}) for number in range(30))
    ]
    file.write_text(file.read_text() + f"  - user: eve\n    client-id: <default>\n    {KEY}: 1000000\n")
    lines = left_out_lines(apply(tmp_path, file, DAY, [*minted, carol, bob]))
    waiting = [line for line in lines if line.startswith("waits for review above")]
    assert ["bob'" in waiting[0], "carol'" in waiting[1]] == [True, True], waiting[:3]
    assert all("'m" in line for line in waiting[2:])
