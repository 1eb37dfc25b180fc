"""Times of a schedule, to the second, and what is said of those that are none."""

from __future__ import annotations

import pytest

from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas

FILE = """
quotas:
  - user: alice
    producer_byte_rate: 1000
    schedule:
      - {days: [sat], from: %s, to: "05:00", timezone: Europe/Berlin, producer_byte_rate: 9000}
"""


def schedules(begin: str) -> object:
    return parse_quotas(FILE % begin, "quotas.yaml").schedules


def test_seconds_may_be_left_out_and_count_where_they_are_not() -> None:
    assert schedules('"01:02"') == schedules('"01:02:00"')
    assert schedules('"01:02"') != schedules('"01:02:01"')
    assert schedules('"00:00"') != schedules('"01:02"')


@pytest.mark.parametrize("begin", ['"24:00"', '"25:00"', '"01:60"', '"1:00"', '"01:00:60"', "100", "[]"])
def test_what_is_no_time_is_told_with_its_place(begin: str) -> None:
    with pytest.raises(QuotaFileError) as caught:
        schedules(begin)
    assert "quotas[0].schedule[0].from" in str(caught.value)


def test_two_documents_in_one_file_are_refused() -> None:
    with pytest.raises(QuotaFileError, match="second document"):
        parse_quotas("quotas: []\n---\nquotas: []\n", "quotas.yaml")


@pytest.mark.parametrize(
    "text", ["quotas: [", "quotas: {a: b", "quotas:\n\t- user: a\n", "a: 'b\n", "%bad\n---\n"]
)
def test_what_is_no_yaml_is_told_with_its_line(text: str) -> None:
    with pytest.raises(QuotaFileError) as caught:
        parse_quotas(text, "quotas.yaml")
    assert "line" in str(caught.value)
