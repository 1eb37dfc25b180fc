"""What a night remembers: anchors by date, and grants until their last day."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.plan import EntityDay, PlanEntry, planned
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.policy.standing import Standing
from sluice.recalibration.state.memory import grants_on, standings_before, write_standings

DAY = date(2026, 11, 20)
ALICE = '{"user": "alice"}'
PLACE = ("producer_byte_rate", ALICE)


def entry(limit: float) -> PlanEntry:
    flood = EntityDay("p1", 0, DayState({}, {430: 8_000}, {480: 8_000}))
    return planned(QuotaKind.PRODUCE, ALICE, limit, [flood], PolicySettings())


def test_a_night_reads_the_newest_older_than_its_date_and_keeps_who_was_absent(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert standings_before(out, DAY) == {}
    other = {("producer_byte_rate", '{"user": "bob"}'): Standing(1, 2, 3)}
    write_standings(out, DAY - timedelta(days=1), [entry(1_000)], other)
    write_standings(out, DAY, [entry(9_000)], {})
    assert standings_before(out, DAY) == other | {PLACE: Standing(1_000, 1_000, entry(1_000).proposed)}
    assert standings_before(out, DAY + timedelta(days=5))[PLACE].anchor == 9_000


def test_a_grant_is_in_force_up_to_its_last_date(tmp_path: Path) -> None:
    assert grants_on(str(tmp_path), DAY) == {}
    item = {"entity": ALICE, "key": PLACE[0], "up_to": 5_000.0, "until": DAY.isoformat()}
    (tmp_path / "grants.json").write_text(json.dumps({"grants": [item]}))
    assert grants_on(str(tmp_path), DAY) == {PLACE: 5_000.0}
    assert grants_on(str(tmp_path), DAY + timedelta(days=1)) == {}
