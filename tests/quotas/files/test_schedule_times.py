"""Times of a schedule, to the second, and what is said of those that are none."""

from __future__ import annotations

import pytest

from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.schedule_entries import ScheduleReader

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


WINDOW = """quotas:
  - user: alice
    producer_byte_rate: 1000
    schedule:
      - days: [mon]
        from: "01:00"
        to: "02:00"
        timezone: UTC
"""


def problems_of(text: str) -> list[str]:
    with pytest.raises(QuotaFileError) as caught:
        parse_quotas(text, "q")
    return str(caught.value).splitlines()


def test_a_window_without_a_limit_is_told_so_and_one_with_a_wrong_limit_of_that_alone() -> None:
    (problem,) = problems_of(WINDOW)
    assert "sets no limit; give producer_byte_rate" in problem
    (problem,) = problems_of(WINDOW + "        producer_byte_rate: -5\n")
    assert "sets no limit" not in problem
    (problem,) = problems_of(WINDOW + "        consumer_byte_rate: 5\n")
    assert "is no limit of this entry" in problem


def test_an_address_that_is_none_is_told_so() -> None:
    (problem,) = problems_of("quotas:\n  - ip: 10.0.0.300\n    connection_creation_rate: 5\n")
    assert "must be an address such as 10.1.2.3, is '10.0.0.300'" in problem


def test_a_member_with_a_type_is_told_to_leave_it_out_each_time_and_is_no_member() -> None:
    tenants = "tenants:\n  - name: t\n    members: ['User:alice', 'User:alice', bob]\n"
    problems = problems_of(tenants + "quotas: []\n")
    assert len(problems) == 2
    assert all("write it without its type: alice" in problem for problem in problems)


@pytest.mark.parametrize("end", ["", "\n", "\nexempt: []\n"])
def test_a_tab_in_the_indentation_is_told_with_its_line_and_column_on_the_last_line_too(end: str) -> None:
    (problem,) = problems_of(f"quotas:\n  - user: alice\n  \tproducer_byte_rate: 5{end}")
    assert "column 3 of this line is a tab" in problem
    assert problem.startswith("q:3:")


def test_midnight_ends_a_day_and_a_second_behind_it_does_not() -> None:
    for end, end_s in (("00:00", 86_400), ("24:00", 86_400), ("00:00:01", 1), ("23:59:59", 86_399)):
        text = WINDOW.replace('"02:00"', f'"{end}"').replace('"01:00"', '"00:00"')
        (schedule,) = parse_quotas(text + "        producer_byte_rate: 5\n", "q").schedules.values()
        (window,) = schedule
        assert (window.begin_s, window.end_s) == (0, end_s)


def test_tenants_without_a_name_are_told_each_and_are_not_the_same() -> None:
    problems = problems_of("tenants:\n  - members: [alice]\n  - members: [alice]\nquotas: []\n")
    assert len(problems) == 2
    assert all("has no name" in problem for problem in problems)


@pytest.mark.parametrize("tagged", ["!list []", "!map {}", "!!set {a}", "!text alice"])
def test_tags_are_refused_wherever_they_stand(tagged: str) -> None:
    for text in (f"quotas: {tagged}\n", f"quotas: []\nexempt:\n  - {tagged}\n", f"{tagged}\n"):
        (problem,) = problems_of(text)
        assert "tag" in problem


@pytest.mark.parametrize("windows", [100, 101])
def test_an_entry_may_have_a_hundred_windows(windows: int) -> None:
    one = WINDOW[WINDOW.index("      - days") :] + "        producer_byte_rate: 5\n"
    text = WINDOW[: WINDOW.index("      - days")] + one * windows
    if windows == 100:
        (schedule,) = parse_quotas(text, "q").schedules.values()
        assert len(schedule) == 100
    else:
        (problem,) = problems_of(text)
        assert "has 101 windows; at most 100" in problem


def test_days_that_are_none_are_told_one_by_one() -> None:
    text = WINDOW.replace("[mon]", "[mon, mo, 7]") + "        producer_byte_rate: 5\n"
    first, second = problems_of(text)
    assert "must be one of mon, tue" in first
    assert first.endswith("is 'mo'")
    assert second.endswith("is 7")


def test_a_schedule_of_which_a_window_is_wrong_is_none_until_it_is_right() -> None:
    """A nightly job reads it by itself, and is told nothing."""
    right: dict[str, object] = {"days": ["mon"], "from": "01:00", "to": "02:00", "producer_byte_rate": 5}
    for wrong in ({**right, "from": "1 h"}, {**right, "days": ["monday"]}, {}, {**right, "rate": 5}):
        told: list[str] = []
        reader = ScheduleReader(lambda _, message, told=told: told.append(message))  # type: ignore[misc]
        assert reader.read((), [right, wrong], ["producer_byte_rate"]) == ()  # type: ignore[list-item]
        assert told
        assert len(reader.read((), [right], ["producer_byte_rate"])) == 1  # type: ignore[list-item]
