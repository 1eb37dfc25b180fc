"""Several users who mint client ids leave rows to the others."""

from __future__ import annotations

import pytest

from sluice.proxy.access_log.sums import WindowSums
from sluice.usage.access_record import WINDOW_MS
from sluice.usage.flow import AccessFlow
from sluice.usage.index import OTHER, AccessIndex, may_have_another
from sluice.usage.records import RequestRecord
from sluice.usage.rollup import Window
from testkit.access_log.access_records import OFFSET_MS, connection, flow, record, rollup

MAX_KEYS = 400
HONEST = ("ann", "ben", "cleo")
ATTACKERS = (1, 2, 3, 4, 8)


def bytes_of_honest(window: Window, sums: WindowSums) -> int:
    """What stands under their names in its rows; the window is told then."""
    found = sums.sum_up(window)
    of_place = zip(found.places.to_pylist(), found.columns["request_bytes"].to_pylist(), strict=True)
    told: int = sum(size for place, size in of_place if window.index.keys[place][1] in HONEST)
    sums.forget(window.dropped.places)
    window.index.told(window.dropped, found.folded)
    return told


@pytest.mark.parametrize("attackers", ATTACKERS)
@pytest.mark.parametrize("stay", [False, True], ids=["come and go", "stay for a window"])
def test_who_comes_behind_a_flood_of_client_ids_has_a_row_in_every_window(attackers: int, stay: bool) -> None:
    """Half of all rows' worth of new ids a window of each attacker. Windows are told 2 s after their end; the
    others come in the fourth, and send each second. Where more connections than there is room for end at once
    they wait until those are told."""
    grows, sums = rollup(max_keys=MAX_KEYS), WindowSums()
    honest: list[AccessFlow] = []
    kept: list[AccessFlow] = []
    untold: Window | None = None
    waits_s = 2 if stay and attackers > 1 else 0
    expected = iter([0, 0, 0, 300 * (10 - waits_s), *[3_000] * 9])
    for number in range(9):
        if number == 3:
            honest = [flow(connection(user)) for user in HONEST]
        came: list[AccessFlow] = []
        for second in range(10):
            if untold is not None and second == 2:
                assert bytes_of_honest(untold, sums) == next(expected)
                untold = None
            at_ms = number * WINDOW_MS + second * 1_000.0
            minted = [
                flow(connection(f"mallory-{attacker}"), f"{number}-{second}-{new}")
                for new in range(MAX_KEYS // 20)
                for attacker in range(attackers)
            ]
            records: list[RequestRecord] = [record(of, at_ms, request_bytes=100) for of in honest]
            grows.add_requests(records + [record(of, at_ms + 500.0) for of in minted], slow_ms=1e9)
            if stay:
                came += minted
            del records, minted
        kept = came
        grows.close(OFFSET_MS)
        untold = grows.over.popleft()
    assert len(kept) == (attackers * MAX_KEYS // 2 if stay else 0)


@pytest.mark.parametrize("attackers", ATTACKERS)
def test_connections_that_were_there_before_leave_rows_to_the_others_too(attackers: int) -> None:
    """So many client ids at a time that rows are shared when their window is added up."""
    grows, sums = rollup(max_keys=MAX_KEYS), WindowSums()
    flows = [
        flow(connection(f"mallory-{attacker}"), f"app-{number}")
        for number in range(MAX_KEYS // 2)
        for attacker in range(attackers)
    ]
    flows += [flow(connection(user)) for user in HONEST]
    grows.add_requests([record(of, 1.0, request_bytes=100) for of in flows], slow_ms=1e9)
    grows.close(OFFSET_MS)
    assert bytes_of_honest(grows.over.popleft(), sums) == len(HONEST) * 100


def test_users_who_come_one_after_another_do_not_fill_what_is_kept_either() -> None:
    """By a part of the whole quarter for each, seven would."""
    max_keys = 50_000
    left, users = max_keys, 0
    for users in range(1, 41):
        has = 0
        while may_have_another(has, left, users, max_keys):
            has, left = has + 1, left - 1
    assert users == 40
    assert left > 500
    assert may_have_another(0, left, users + 1, max_keys)


@pytest.mark.parametrize(("has", "left", "users", "may"), [
    (0, 0, 1, False), (499, 1_000, 1, True), (500, 1_000, 1, False),
    (499, 251, 9, True), (15, 250, 20, True), (16, 250, 20, False), (49, 250, 5, True), (50, 250, 5, False),
])  # fmt: skip
def test_the_last_quarter_is_for_users_who_have_few(has: int, left: int, users: int, may: bool) -> None:
    assert may_have_another(has, left, users, 1_000) is may


def test_keys_of_a_user_count_until_their_window_is_told_whatever_window_has_begun() -> None:
    """Else each begin of a window would give the user as many again."""
    index = AccessIndex(MAX_KEYS)

    def mints(begin: int) -> int:
        """How many of a half of all have places of their own."""
        found = 0
        for number in range(begin, begin + MAX_KEYS // 2):
            minted = flow(connection("mallory"), f"app-{number}")
            index.number(minted, 0, 9)
            found += index.place(minted).number != OTHER
        return found

    assert mints(0) == MAX_KEYS // 2
    over = index.next_window()
    assert mints(1_000) == 0
    index.told(over, folded=0)
    assert mints(2_000) == MAX_KEYS // 2
