"""A limit of its own takes no clients that have theirs by another limit, whoever of them is in the plan."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, read_plan
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.tables import Match
from tests.proxy.cli.plan.test_nightly import DAY, KEY, of, plan

BOB = of("bob", 1_400, 1_000)
ETL = of("", 1_400, 1_000, entity={"user": "alice", "client-id-prefix": "etl-"})
USERS = f"{{user: <default>, {KEY}: 1000}}"
ETLS = f"{{user: <default>, client-id-prefix: etl-, {KEY}: 1000}}"
TEAM = "tenants:\n  - {name: team, members: [alice, dave]}\n"


def written(folder: Path, entries: list[str], limit: dict[str, Any], is_unattended: bool) -> list[str]:
    """Why this one limit of a plan is left out; nothing: it is written. Else the file stays."""
    file = folder / "quotas.yaml"
    text = "quotas:\n" + "".join(f"  - {entry}\n" for entry in entries) + TEAM
    file.write_text(text)
    found = read_plan(plan(folder, DAY, [limit]))
    apply = apply_unattended if is_unattended else apply_plan
    applied = apply(found, QuotaFilePlace(file), today=DAY + timedelta(days=1))
    assert bool(applied.choice.left_out) is (file.read_text() == text)
    return [why for _, why in applied.choice.left_out]


@pytest.mark.parametrize("is_unattended", [True, False])
@pytest.mark.parametrize(
    ("entries", "limit", "name"),
    [
        # Silent for 28 dates, or never seen: not in the plan.
        ([USERS, "{user: <default>, client-id: month-end, %s: 50000}"], BOB, "client-id 'month-end'"),
        ([USERS, "{user: <default>, client-id-prefix: m-, %s: 50000}"], BOB, "client-id-prefix 'm-'"),
        ([USERS, ETLS, "{user: <default>, client-id: etl-big, %s: 50000}"], ETL, "client-id 'etl-big'"),
        ([ETLS, "{user: <default>, client-id-prefix: etl-b, %s: 50000}"], ETL, "client-id-prefix 'etl-b'"),
        # dave's keep it, so that the tenant's limit stays what it is.
        ([ETLS, "{tenant: team, client-id: etl-big, %s: 50000}"], ETL, "client-id 'etl-big'"),
        ([ETLS, "{tenant: team, client-id-prefix: etl-b, %s: 50000}"], ETL, "client-id-prefix 'etl-b'"),
        # Who is not known has the lowest limit of any user, but for what a client id has.
        (
            ["{user: eve, %s: 1000}", "{client-id: month-end, %s: 50000}"],
            of("<unknown>", 1_400, 1_000),
            "client-id 'month-end'",
        ),
    ],
)
def test_clients_that_are_in_no_plan_keep_the_limit_of_a_default_or_a_tenant(
    entries: list[str], limit: dict[str, Any], name: str, is_unattended: bool, tmp_path: Path
) -> None:
    """With `+ user bob=1400` his client month-end had 1,400, and nothing was told."""
    user = limit["entity"].get("user")
    entries = [entry.replace("%s", KEY) for entry in entries]
    assert written(tmp_path, entries, limit, is_unattended) == [
        f"would take user-principal '{user}', {name} too; give that a limit of its own first"
    ]
    key, text = name.replace("'", "").split(" ")
    own = f"{{user: {user}, {key}: {text}, {KEY}: 50000}}"
    assert written(tmp_path, [*entries, own], limit, is_unattended) == []


@pytest.mark.parametrize(
    ("entries", "limit"),
    [
        ([USERS, "{user: <default>, client-id: month-end, consumer_byte_rate: 50000}"], BOB),
        ([USERS, f"{{client-id: month-end, {KEY}: 50000}}"], BOB),
        ([USERS, f"{{tenant: team, client-id: month-end, {KEY}: 50000}}"], BOB),
        ([f"{{user: bob, {KEY}: 1000}}", f"{{user: <default>, client-id: app, {KEY}: 50000}}"], BOB),
        ([ETLS, f"{{user: <default>, client-id: app, {KEY}: 50000}}"], ETL),
        ([ETLS, f"{{user: <default>, client-id-prefix: etl, {KEY}: 50000}}"], ETL),
    ],
)
def test_a_limit_that_takes_nobody_is_written(
    entries: list[str], limit: dict[str, Any], tmp_path: Path
) -> None:
    """Of another key, of a less specific one, of another user's group, not a new one, of other client ids."""
    assert written(tmp_path, entries, limit, is_unattended=True) == []


def test_who_would_be_taken_is_looked_up_once_for_all_users_of_a_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each of them by itself 1,000 users and 1,000 names took 7 s, with the file locked."""
    users = [of(f"user{number}", 1_400, 1_000) for number in range(20)]
    names = [f"{{client-id: app{number}, {KEY}: 50000}}" for number in range(20)]
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas:\n" + "".join(f"  - {entry}\n" for entry in [USERS, *names]))
    asked: list[str] = []
    resolve = QuotaLimits.resolve

    def counted(limits: QuotaLimits, kind: QuotaKind, user: str, client_id: str) -> Match | None:
        asked.append(client_id)
        return resolve(limits, kind, user, client_id)

    monkeypatch.setattr(QuotaLimits, "resolve", counted)
    found = read_plan(plan(tmp_path, DAY, users))
    applied = apply_unattended(found, QuotaFilePlace(file), today=DAY + timedelta(days=1))
    assert applied.choice.chosen
    looked = sum(client_id.startswith("app") for client_id in asked)
    assert 0 < looked < 5 * len(names)
