"""A file that is too large for its sink is cut; none of its parts is lost unnoticed."""

from __future__ import annotations

import pytest

from sluice.proxy.access_log.columns import FilePart, encoded
from sluice.proxy.access_log.cut_files import encoded_within
from sluice.usage.access_record import (
    FILE_PART,
    FILE_PARTS,
    HEARTBEAT_CLASS,
    HEARTBEAT_END_CLASS,
    ROLLUP,
    heartbeat,
)
from testkit.access_log.access_rows import BEGIN_MS, columns, read, row, rows

BEATS = {HEARTBEAT_CLASS, HEARTBEAT_END_CLASS}


def test_a_file_that_would_be_too_large_is_cut() -> None:
    part = FilePart(ROLLUP)
    part.add(
        columns([row(client_id=f"{number * 7919:x}" * 20, request_bytes=number**3) for number in range(1000)])
    )
    table = part.finish()
    whole = len(encoded(ROLLUP, table))
    cut = encoded_within(ROLLUP, table, whole // 2)
    assert len(cut) > 1
    assert all(len(data) <= whole // 2 for _, data in cut)
    assert sum(count for count, _ in cut) == 1000
    names = [found["client_id"] for _, data in cut for found in read(bytes(data))]
    assert sorted(names) == sorted(f"{number * 7919:x}" * 20 for number in range(1000))


def test_a_single_row_is_never_cut() -> None:
    part = FilePart(ROLLUP)
    part.add(columns(rows(1)))
    assert len(encoded_within(ROLLUP, part.finish(), 1)) == 1


@pytest.mark.parametrize("share", [0.7, 0.4])
def test_each_part_has_all_heartbeats_and_tells_which_it_is(share: float) -> None:
    """They were all in the first: with every other part lost limits were cut, and the log had no hole."""
    part = FilePart(ROLLUP)
    for window in range(4):
        part.add(heartbeat(BEGIN_MS + window * 10_000, "p1", is_last=window == 3))
        part.add(columns([
            row(user=f"{user * 7919:x}" * 5, at_ms=BEGIN_MS + window * 10_000, request_bytes=user**3)
            for user in range(500)
        ]))  # fmt: skip
    table = part.finish()
    max_bytes = int(len(encoded(ROLLUP, table)) * share)
    cut = encoded_within(ROLLUP, table, max_bytes)
    assert len(cut) > 1
    assert all(len(data) <= max_bytes for _, data in cut)
    users = []
    for number, (count, data) in enumerate(cut, start=1):
        found = read(bytes(data))
        beats = [each for each in found if each["api_class"] in BEATS]
        assert {each["window_start_ms"] for each in beats} == {BEGIN_MS + w * 10_000 for w in range(4)}
        assert {(each[FILE_PART], each[FILE_PARTS]) for each in beats} == {(number, len(cut))}
        assert len(found) == count
        users += [(each["user"], each[FILE_PARTS]) for each in found if each not in beats]
    assert sorted(users) == sorted((f"{user * 7919:x}" * 5, 0) for user in range(500) for _ in range(4))


def test_heartbeats_alone_are_cut_as_rows_are() -> None:
    part = FilePart(ROLLUP)
    for window in range(2):
        part.add(heartbeat(BEGIN_MS + window * 10_000, "p1", is_last=False))
    found = [read(bytes(data)) for _, data in encoded_within(ROLLUP, part.finish(), 1)]
    assert [(len(rows), rows[0][FILE_PARTS]) for rows in found] == [(1, 0), (1, 0)]


def test_an_uncut_file_tells_no_parts() -> None:
    part = FilePart(ROLLUP)
    part.add(heartbeat(BEGIN_MS, "p1", is_last=False))
    part.add(columns(rows(2)))
    ((_, data),) = encoded_within(ROLLUP, part.finish(), 1_000_000)
    assert {(each[FILE_PART], each[FILE_PARTS]) for each in read(bytes(data))} == {(0, 0)}
