"""A plan's files: what they say, that they stay small, and that names of clients are text in them."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.confidence import DayUse
from sluice.recalibration.policy.plan import Expected, PlanEntry
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.seasons import Season
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.report.files import write_outputs
from sluice.recalibration.report.order import MAX_CARDS
from sluice.recalibration.report.page import page
from sluice.recalibration.report.svg import ticks, usage_plot
from sluice.recalibration.report.words import amount, entity_words, sentences

DAY = date(2026, 11, 20)
SETTINGS = PolicySettings()
DAYS = tuple(DayUse(age, 1_000.0 + age, age != 0, 0.5 if age == 0 else 0.0, 86_400.0) for age in range(10))
ALICE = PlanEntry(
    key="producer_byte_rate",
    entity='{"user": "alice"}',
    current=1_000.0,
    proposed=1_500.0,
    wanted=1_500.0,
    reason=Reason.DEMAND,
    needs_review=False,
    confidence=0.9,
    proxies=2,
    pooled_demand=2_500.0,
    throttled_share=0.5,
    days=DAYS,
)
BOB = replace(ALICE, entity='{"client-id": "a<b>&\\"c", "user": "bob"}', needs_review=True, wanted=9_000.0)


def plan_of(*entries: PlanEntry, damaged: dict[str, str] | None = None) -> Plan:
    files = LogFiles(["a.parquet"], damaged or {})
    return Plan(DAY, list(entries), files, room={"producer_byte_rate": 4_000.0})


def unchanged(number: int) -> PlanEntry:
    entity = json.dumps({"user": f"user-{number}"})
    return replace(ALICE, entity=entity, proposed=ALICE.current, reason=Reason.UNCHANGED, throttled_share=0.0)


class Page(HTMLParser):
    """Takes a page apart, and holds that each element ends where it should."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.urls: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.urls += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "action"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_all_files_are_written_and_say_the_same(tmp_path: Path) -> None:
    write_outputs(plan_of(ALICE, BOB), tmp_path)
    names = {"plan.json", "plan.parquet", "usage.parquet", "report.html"}
    assert {file.name for file in tmp_path.iterdir()} == names
    document = json.loads((tmp_path / "plan.json").read_text())
    rows = parquet.read_table(tmp_path / "plan.parquet").to_pylist()
    for row, entry in zip(rows, document["entries"], strict=True):
        assert row.pop("date") == DAY
        expected = {f"expected_{name}": value for name, value in entry.pop("expected").items()}
        entry["entity"] = json.dumps(entry["entity"], sort_keys=True)
        assert row == entry | expected
    assert (document["changes"], document["reviews"], document["policy"]["max_step_up"]) == (2, 1, 2.0)
    usage = parquet.read_table(tmp_path / "usage.parquet").to_pylist()
    assert len(usage) == 20
    assert usage[1] == {
        "key": "producer_byte_rate",
        "entity": ALICE.entity,
        "date": date(2026, 11, 19),
        "demand": 1_001.0,
        "identified": True,
        "throttled_share": 0.0,
        "traffic_s": 86_400.0,
    }


def test_a_limit_that_is_no_float_is_written_too(tmp_path: Path) -> None:
    """2⁶³−1 stands in many quota files for "unlimited"; with one, each night died."""
    most = 2**63 - 1
    write_outputs(plan_of(replace(ALICE, current=most, proposed=most, anchor=most)), tmp_path)
    (entry,) = json.loads((tmp_path / "plan.json").read_text())["entries"]
    assert (entry["current"], entry["proposed"]) == (most, most)
    (row,) = parquet.read_table(tmp_path / "plan.parquet").to_pylist()
    assert row["current"] == float(most)


def test_the_same_plan_gives_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_outputs(plan_of(ALICE, BOB), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_the_page_is_whole_without_scripts_or_other_files_and_names_are_text_in_it() -> None:
    found = Page(page(plan_of(ALICE, BOB, unchanged(1), damaged={"<x>.parquet": "cut off"})))
    assert "script" not in found.tags
    assert all(url.startswith("#e") for url in found.urls)
    assert 'user bob, client-id a<b>&"c' in found.text
    assert {"b", "x"}.isdisjoint(set(found.tags) - {"b"}), "names made no elements"
    assert "<x>.parquet" in found.text
    assert "1 damaged file of the log was left out" in found.text
    assert "Nothing waits for review" not in found.text


def test_dates_and_hours_that_the_log_lacks_are_named() -> None:
    missing = {DAY - timedelta(days=1): ["all of it"], DAY: ["p<1>: 03:00, 04:00"]}
    plan = replace(plan_of(ALICE), missing=missing)
    told = Page(page(plan)).text
    assert f"{DAY - timedelta(days=1)}: all of it" in told
    assert f"{DAY}: p<1>: 03:00, 04:00" in told
    assert plan.as_json()["incomplete_log"][str(DAY)] == ["p<1>: 03:00, 04:00"]
    assert "lacks rows" not in Page(page(plan_of(ALICE))).text


def test_reviews_come_first_each_entity_has_one_place_and_equal_fates_stand_once() -> None:
    entries = [ALICE, BOB, *(unchanged(number) for number in range(50))]
    text = page(plan_of(*entries))
    cards, others = text.split("<h2>All others</h2>")
    assert cards.index('id="e0"') < cards.index('id="e1"')
    assert cards.count("<details") == 2
    assert "bob" in cards.split('id="e0"')[1].split("</summary>")[0]
    assert "50 limits; those of the same quota, change and reason stand once" in others
    assert others.count("<tr>") == 2, "the head, and one row for fifty"
    assert "alice" not in others


def test_a_page_of_twenty_thousand_entities_stays_small() -> None:
    """Each with limits and numbers of its own, half of them changing."""
    entries = [
        replace(
            ALICE,
            entity=json.dumps({"user": f"user-{number}", "client-id": "app"}, sort_keys=True),
            current=1_000.0 + number,
            proposed=(1_400.0 if number % 2 else 1_000.0) + number,
            needs_review=number % 100 == 1,
        )
        for number in range(20_000)
    ]
    text = page(plan_of(*entries))
    assert text.count("<details") == MAX_CARDS
    assert len(text.encode()) < 3_000_000
    assert "300 of 10,000 entities" in text
    assert "And 19,400 limits in 19,400 smaller groups" in text


@pytest.mark.parametrize(
    ("quantile", "name"), [(0.999, "p99.9"), (0.98, "p98"), (0.9999, "p99.99"), (0.5, "p50")]
)
def test_bars_are_called_by_the_quantile_of_the_settings(quantile: float, name: str) -> None:
    plan = replace(plan_of(ALICE), policy=replace(SETTINGS, quantile=quantile))
    text = page(plan)
    assert f"Bars are the {name} of a day's demand" in Page(text).text
    assert f'aria-label="daily {name} of the demand and the limit' in text


def test_a_plan_in_which_nothing_happens_says_so() -> None:
    found = Page(page(plan_of()))
    for told in ("Nothing changes but what stands above", "Nothing waits for review", "There are none"):
        assert told in found.text


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_told_in_a_sentence_with_its_numbers(reason: Reason) -> None:
    entry = replace(ALICE, reason=reason, wanted=2_300_000.0, proposed=1_656_000.0, current=1_000_000.0)
    first = next(iter(sentences(entry, SETTINGS)))
    assert first.endswith(".")
    assert "{" not in first


def test_the_words_of_a_review_and_of_guesses() -> None:
    told = " ".join(sentences(replace(BOB, reason=Reason.GUARD), SETTINGS))
    assert "beyond 1.8 × the median of its days, 2 × the last limit that a person, or days seen" in told
    assert "or 4 × the last one that a person has set or granted" in told
    assert "Needs review" in told
    assert "Without a person's word it becomes 1.5 kB/s and no more" in told
    assert "On 1 of 10 days throttling hid the demand" in told
    assert "throttled in 50.0 % of its time" in told
    assert "Confidence is high (90 %), from 10 days" in told


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("producer_byte_rate", 1_048_576, "1.05 MB/s"),
        ("producer_byte_rate", 999.9, "1 kB/s"),
        ("consumer_byte_rate", 12, "12 B/s"),
        ("consumer_byte_rate", 3.2e16, "32 PB/s"),
        ("request_percentage", 12.345, "12.3 %"),
        ("producer_ids_rate", 20_000, "20,000 ids/h"),
        ("controller_mutation_rate", 0.00004, "0.00004 partitions/s"),
        ("connection_creation_rate", 1, "1 connections/s"),
    ],
)
def test_amounts_have_three_digits_and_a_unit(key: str, value: float, shown: str) -> None:
    assert amount(key, value) == shown


def test_what_the_replay_found_is_told() -> None:
    expected = Expected(day_now=3_200.0, day_proposed=12.5, week_now=9_000.0, week_proposed=0.0)
    told = " ".join(sentences(replace(ALICE, expected=expected), SETTINGS))
    assert "latest day: 3,200 s throttled as it is, 12.5 s throttled as proposed; all days" in told
    ids = replace(ALICE, key="producer_ids_rate", expected=expected)
    assert "12.5 ids refused as proposed" in " ".join(sentences(ids, SETTINGS))
    found = Page(page(plan_of(replace(ALICE, expected=expected), replace(ids, entity=BOB.entity))))
    assert "3,200 → 12 s" in found.text
    assert "replayed" not in Page(page(plan_of(ALICE))).text
    assert "as proposed it may be more" in told, "of its latest day twice what passed was replayed, at most"
    known = tuple(replace(day, identified=True) for day in DAYS)
    assert "may be more" not in " ".join(sentences(replace(ALICE, expected=expected, days=known), SETTINGS))


def test_entities_in_words() -> None:
    assert entity_words('{"client-id": "app", "user": "alice"}') == "user alice, client-id app"
    assert entity_words('{"client-id": ""}') == "client-id (none)"
    assert entity_words('{"client-id": "  "}') == "client-id (blank)"
    hostile = json.dumps({"client-id": "\x1b[2J\u202eexe\nx\x9b"})
    assert entity_words(hostile) == r"client-id \x1b[2J\u202eexe\nx\x9b"


limits = st.floats(1e-3, 1e15)
uses = st.builds(
    DayUse, st.integers(0, 40), st.floats(1e-3, 1e15), st.booleans(), st.floats(0.0, 1.0), st.floats(1.0, 1e5)
)


@given(limits, limits, st.lists(uses, max_size=40))
def test_a_plot_is_sound_and_stays_within_its_frame(now: float, then: float, days: list[DayUse]) -> None:
    root = ET.fromstring(
        usage_plot(replace(ALICE, current=now, proposed=then, days=tuple(days)), DAY, 28, 0.999)
    )
    for rect in root.iter("rect"):
        x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 78
        assert x + width <= 640 - 148 + 0.2
        assert y >= 9.9
        assert y + height <= 178.2
    for text in root.iter("text"):
        if text.get("text-anchor") is None and float(text.attrib["x"]) > 400:
            assert float(text.attrib["x"]) + 6.2 * len(text.text or "") <= 640, "11 px of a system font"
    assert len(list(root.iter("rect"))) >= sum(day.age_days < 28 for day in days)


def test_the_names_of_two_limits_that_are_close_stand_apart() -> None:
    root = ET.fromstring(usage_plot(replace(ALICE, proposed=1_010.0), DAY, 28, 0.999))
    places = [
        float(text.attrib["y"])
        for text in root.iter("text")
        if (text.text or "").startswith(("now", "proposed"))
    ]
    assert abs(places[0] - places[1]) >= 12.9


@given(st.floats(1e-6, 1e18))
def test_ticks_are_round_and_few(top: float) -> None:
    found = ticks(top)
    assert found[0] == 0.0
    assert 2 <= len(found) <= 5
    assert found[-1] < top
    mantissa = found[1] / 10.0 ** math.floor(math.log10(found[1]) + 1e-9)
    assert any(mantissa == pytest.approx(good) for good in (1.0, 2.0, 5.0))


def test_who_is_raised_and_who_waits_are_told_apart() -> None:
    raised = replace(ALICE, current=1_000.0, proposed=1_500.0, needs_review=False)
    in_part = replace(BOB, current=1_000.0, proposed=1_500.0, up_to=7_000.0)
    waits = replace(BOB, entity='{"user": "eve"}', current=1_000.0, proposed=1_000.0)
    text = page(plan_of(raised, in_part, waits))
    for tile in (
        "<b>1</b><span>raised</span>",
        "<b>1</b><span>raised in part: the rest waits for review</span>",
        "<b>1</b><span>not raised: wait for review</span>",
        "<b>0</b><span>cut</span>",
    ):
        assert tile in text
    assert "7 kB/s" in text
    assert " then<" not in text
    assert ">then " not in text


def test_a_season_is_proposed_as_an_entry_of_a_schedule() -> None:
    seen = tuple(DAY - timedelta(days=age) for age in (14, 7, 0))
    season = Season((5,), DAY + timedelta(days=7), 3_600, 10_800, "Europe/Berlin", 20_000.0, seen)
    plan = replace(plan_of(ALICE), seasons={(ALICE.key, ALICE.entity): season})
    entry = {
        "days": ["sat"], "from": "01:00", "to": "03:00", "timezone": "Europe/Berlin", ALICE.key: 23_000.0,
    }  # fmt: skip
    assert plan.as_json()["seasons"] == [
        {"key": ALICE.key, "entity": json.loads(ALICE.entity), "seen": [str(day) for day in seen],
         "schedule": entry}
    ]  # fmt: skip
    assert json.dumps(entry) in Page(page(plan)).text
    assert "calendar" not in Page(page(plan_of(ALICE))).text
