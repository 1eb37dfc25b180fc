"""What happens within a declared window is no evidence for the normal limit."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.log.reader import read_log
from sluice.recalibration.state.scheduled import calendars, left_out
from sluice.recalibration.state.windows import windows_of
from testkit.access_log.access_logs import DAY, row, write

LIMITS = parse_quotas(
    """\
quotas:
  - user: alice
    producer_byte_rate: 1000
    consumer_byte_rate: 1000
    producer_ids_rate: 10
    schedule:
      - {days: [fri], from: "00:00:25", to: "00:01", producer_byte_rate: 9000, producer_ids_rate: 99}
  - user: <default>
    producer_byte_rate: 700
    schedule:
      - {date: 2026-11-20, from: "23:00", to: "01:00", timezone: Europe/Berlin, producer_byte_rate: 5000}
  - ip: <default>
    connection_creation_rate: 5
    schedule:
      - {date: 2026-11-20, connection_creation_rate: 50}
""",
    "q",
)
FIRST = 1_795_132_800 // 10
"""the number of the 10-second window that begins 2026-11-20T00:00Z, a Friday"""


def numbers(kind: QuotaKind, user: str = "", address: str = "", day: date = DAY) -> list[tuple[int, int]]:
    """Counted from the day's first window."""
    first = FIRST if kind is not QuotaKind.PRODUCER_IDS else FIRST // 360
    return [
        (begin - first, end - first) for begin, end in left_out(LIMITS, kind, (user, "app", address), day)
    ]


def test_windows_that_lie_within_in_part_are_left_out_too() -> None:
    assert numbers(QuotaKind.PRODUCE, "alice") == [(2, 5)], "00:00:20 to 00:01:00"
    assert numbers(QuotaKind.PRODUCER_IDS, "alice") == [(0, 0)], "the hour"


def test_only_of_the_quota_that_the_window_sets_and_on_its_days() -> None:
    assert numbers(QuotaKind.FETCH, "alice") == []
    assert numbers(QuotaKind.REQUEST, "alice") == []
    assert numbers(QuotaKind.PRODUCE, "alice", day=date(2026, 11, 21)) == []


def test_who_has_a_defaults_limit_has_its_calendar_in_its_time_zone() -> None:
    assert numbers(QuotaKind.PRODUCE, "bob") == [(22 * 360, 24 * 360 - 1)], "22:00 to 24:00 UTC"
    assert numbers(QuotaKind.CONNECTION_CREATION, address="10.0.0.1") == [(0, 8_639)]


def test_calendars_in_words() -> None:
    told = calendars(LIMITS)
    assert told['{"user": "alice"}'] == ["fri 00:00:25–00:01 UTC: producer_byte_rate, producer_ids_rate"]
    assert told['{"user": "<default>"}'] == ["2026-11-20 23:00–01:00 Europe/Berlin: producer_byte_rate"]


def test_what_was_used_in_a_declared_window_is_not_among_the_days_windows(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, [
        *(row(window, request_bytes=5_000, response_bytes=100, producer_ids_new=1) for window in range(8)),
        *(row(window, request_bytes=5_000, user="bob") for window in range(8)),
    ])  # fmt: skip
    rows, _ = read_log(spark, str(tmp_path), DAY, skip_damaged=False)
    used = windows_of(rows, LIMITS, DAY)
    named = used.rows.join(used.names, "entity_id")
    found = [(found.entity, found.window - FIRST) for found in named.where("kind = 'produce'").collect()]
    assert sorted(found) == [
        *(('{"user": "alice"}', window) for window in (0, 1, 6, 7)),
        *(('{"user": "bob"}', window) for window in range(8)),
    ]
    assert named.where("kind = 'producer_ids'").isEmpty()
