"""Which rows of `sluice top` are shown, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.proxy.admin.top.order import Sort, chosen


def row(name: str, *, used: float, utilisation: float, unit: str = "bytes per second", **bucket: str) -> Any:
    return {
        "bucket": bucket or {"user": name}, "quota": "produce", "unit": unit, "used": used,
        "utilisation": utilisation, "shown": [{"user": name}],
    }  # fmt: skip


ROWS = [
    row("carol", used=10.0, utilisation=0.9),
    row("alice", used=500.0, utilisation=0.1),
    row("dave", used=80.0, utilisation=0.8, unit="percent of one broker thread"),
    row("bob", used=200.0, utilisation=0.5, **{"client-id": "shared"}),
]
SNAPSHOT = {"rows": ROWS, "pacing": "smooth"}


def names(**options: Any) -> list[str]:
    return [
        one["shown"][0]["user"]
        for one in chosen(SNAPSHOT, **{"user": "", "sort": Sort.THROTTLED, "rows": 9, **options})["rows"]
    ]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (Sort.THROTTLED, ["carol", "alice", "dave", "bob"]),
        (Sort.THROUGHPUT, ["alice", "bob", "carol", "dave"]),
        (Sort.UTILISATION, ["carol", "dave", "bob", "alice"]),
        (Sort.NAME, ["alice", "carol", "dave", "bob"]),
    ],
)
def test_orders(sort: Sort, order: list[str]) -> None:
    assert names(sort=sort) == order
    assert names(sort=sort, rows=2) == order[:2]


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ("alice", ["alice"]),
        ("bob", ["bob"]),
        ("User:bob", ["bob"]),
        ("*a*", ["carol", "alice", "dave", "bob"]),
        ("ALICE", []),
        ("?ob", ["bob"]),
    ],
)
def test_of_users(user: str, found: list[str]) -> None:
    """Names are compared as they are; a bucket that a client id makes is found by that, and by those whose
    connections share it."""
    assert names(user=user) == found


TENANT = row("x", used=1.0, utilisation=0.5, tenant="team-a") | {"members": ["bob", "carol"]}
OTHERS = {
    "rows": [
        TENANT,
        row("dave", used=1.0, utilisation=0.5, **{"client-id": "reports"}),
        row("erin", used=1.0, utilisation=0.5, user="erin", **{"client-id": "app"}),
        row("", used=1.0, utilisation=0.5, ip="10.0.0.1") | {"shown": []},
        row("frank", used=1.0, utilisation=0.5, **{"client-id-prefix": "etl-"}),
    ]
}


@pytest.mark.parametrize(
    ("searched", "found"),
    [
        ("team-a", [0]),
        ("tenant:team-a", [0]),
        ("tenant:*", [0]),
        ("bob", [0]),
        ("x", [0]),
        ("reports", [1]),
        ("dave", [1]),
        ("erin", [2]),
        ("app", [2]),
        ("10.0.0.*", [3]),
        ("etl-", [4]),
        ("etl-*", [4]),
        ("team", []),
        ("client-id:app", []),
    ],
)
def test_a_bucket_is_found_by_its_own_names_and_by_those_of_its_members(
    searched: str, found: list[int]
) -> None:
    rows = chosen(OTHERS, user=searched, sort=Sort.THROTTLED, rows=9)["rows"]
    assert [OTHERS["rows"].index(one) for one in rows] == found


@pytest.mark.parametrize("name", ["team[1]", "a[b]c", "[!x]", "]["])
def test_brackets_are_characters_of_a_name(name: str) -> None:
    """Not a choice of characters, as in a shell."""
    others = {**SNAPSHOT, "rows": [row(one, used=1.0, utilisation=0.1) for one in (name, "1", "b", "abc")]}
    for searched in (name, f"User:{name}", f"*{name}*", f"{name[:-1]}?"):
        (found,) = chosen(others, user=searched, sort=Sort.THROTTLED, rows=9)["rows"]
        assert found["bucket"] == {"user": name}


def test_the_snapshot_itself_stays_as_it_was() -> None:
    chosen(SNAPSHOT, user="alice", sort=Sort.NAME, rows=1)
    assert SNAPSHOT["rows"] == ROWS
    assert [one["shown"][0]["user"] for one in ROWS] == ["carol", "alice", "dave", "bob"]
