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
        ("*a*", ["carol", "alice", "dave"]),
        ("ALICE", []),
        ("?ob", ["bob"]),
    ],
)
def test_of_users(user: str, found: list[str]) -> None:
    """Names are compared as they are; a bucket that a client id makes is of those whose connections share
    it."""
    assert names(user=user) == found


def test_the_snapshot_itself_stays_as_it_was() -> None:
    chosen(SNAPSHOT, user="alice", sort=Sort.NAME, rows=1)
    assert SNAPSHOT["rows"] == ROWS
    assert [one["shown"][0]["user"] for one in ROWS] == ["carol", "alice", "dave", "bob"]
