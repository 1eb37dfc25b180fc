"""Calendars in a quota file: read with lines, honoured by who follows the file, shown, compared and kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
import yaml

from sluice.proxy.cli.main import app
from sluice.proxy.cli.quotas.listing import differences, listing_of, yaml_of
from sluice.proxy.cli.quotas.places import QuotaFilePlace, lines_of
from sluice.proxy.config.quotas import QuotaOptions
from sluice.proxy.quota_store.audit import QuotaChange
from sluice.proxy.quota_store.file_watch import QuotaFile
from sluice.proxy.quota_store.schema import quotas_schema_text
from sluice.proxy.quota_store.source import QuotaSource, merged_in_steps
from sluice.proxy.quota_store.topic_records import Stored
from sluice.proxy.runtime.file_work import LIMIT_S
from sluice.proxy.runtime.tasks import spawn
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.files.config_error import ConfigError, QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.schedule_entries import window_item, windows_of
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.scheduled import limits_at
from sluice.quotas.manager import QuotaManager
from testkit.proxy.local_proxy import until

FILE = """\
quotas:
  - user: alice  # the shop
    producer_byte_rate: 1000
    consumer_byte_rate: 500
    schedule:
      # the weekly batch
      - {days: [sat], from: "01:00", to: "05:00", timezone: Europe/Berlin, producer_byte_rate: 9000}
      - date: 2026-12-01
        last_date: 2026-12-03
        producer_byte_rate: 20000
        consumer_byte_rate: 8000
  - user: <default>
    producer_byte_rate: 700
"""
ALICE = QuotaEntity("alice")


def unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


BEFORE = unix("2026-11-21T00:59:59+01:00")
BATCH = unix("2026-11-21T01:00:00+01:00")
AFTER = unix("2026-11-21T05:00:00+01:00")
LAUNCH = unix("2026-12-02T12:00:00+00:00")


def rate(limits: QuotaLimits, user: str = "alice", kind: QuotaKind = QuotaKind.PRODUCE) -> float | None:
    match = limits.resolve(kind, user, "app")
    return None if match is None else match.limit


def test_limits_are_a_function_of_the_time_and_nothing_but_the_number_changes() -> None:
    base = parse_quotas(FILE, "q")
    assert [rate(limits_at(base, now).limits) for now in (BEFORE, BATCH, AFTER, LAUNCH)] == [
        1_000,
        9_000,
        1_000,
        20_000,
    ]
    batch = limits_at(base, BATCH)
    assert rate(batch.limits, kind=QuotaKind.FETCH) == 500
    assert rate(batch.limits, "bob") == 700
    assert batch.until_unix_s == AFTER
    assert limits_at(base, BEFORE).limits is base, "nothing is built where nothing is open"
    assert batch.limits.scheduled[ALICE]["producer_byte_rate"].normal == 1_000
    assert (limits_at(batch.limits.__class__([]), BATCH).until_unix_s) == float("inf")


WRONG = [
    ("schedule: 7", ":4: quotas[0].schedule: must be a list of windows such as"),
    ("schedule: []", "must be a list of windows"),
    ("schedule: [7]", "schedule[0]: must be a mapping"),
    ("schedule: [{producer_byte_rate: 5}]", "schedule[0]: names no day; give days such as [sat, sun]"),
    ("schedule: [{days: [sat]}]", "schedule[0]: sets no limit; give producer_byte_rate"),
    ("schedule: [{days: sat, producer_byte_rate: 5}]", "schedule[0].days: must be a list such as [sat, sun]"),
    ("schedule: [{days: [sat, 7], producer_byte_rate: 5}]", "days[1]: must be one of mon, tue, wed"),
    ("schedule: [{date: soon, producer_byte_rate: 5}]", "date: must be a date such as 2026-12-01: is 'soon'"),
    ("schedule: [{date: 2026-02-30, producer_byte_rate: 5}]", "day is out of range for month"),
    ("schedule: [{days: [sat], date: 2026-12-01, producer_byte_rate: 5}]", "in the place of days"),
    (
        "schedule: [{days: [sat], last_date: 2026-12-01, producer_byte_rate: 5}]",
        "last_date: goes with a date",
    ),
    (
        "schedule: [{date: 2026-12-02, last_date: 2026-12-01, producer_byte_rate: 5}]",
        "last_date: must not be before the first one, 2026-12-02; is 2026-12-01",
    ),
    ("schedule: [{days: [sat], from: 1, producer_byte_rate: 5}]", "from: must be a time such as '01:00'"),
    ('schedule: [{days: [sat], from: "24:00", producer_byte_rate: 5}]', "from: must be before 24:00"),
    ('schedule: [{days: [sat], to: "25:00", producer_byte_rate: 5}]', "to: must be a time"),
    ("schedule: [{days: [sat], timezone: Mars, producer_byte_rate: 5}]", "timezone: must be a time zone"),
    ("schedule: [{days: [sat], timezone: ../etc, producer_byte_rate: 5}]", "timezone: must be a time zone"),
    ("schedule: [{days: [sat], timezone: Europe, producer_byte_rate: 5}]", "timezone: must be a time zone"),
    ("schedule: [{days: [sat], producer_byte_rate: 0}]", "must be greater than 0; is 0 (bytes per second)"),
    ("schedule: [{days: [sat], consumer_byte_rate: 5}]", "is no limit of this entry; give it one for the"),
    ("schedule: [{days: [sat], producer_byte_rat: 5}]", "did you mean producer_byte_rate?"),
    ("shedule: []", "did you mean schedule?"),
]


@pytest.mark.parametrize(("line", "problem"), WRONG)
def test_what_is_wrong_with_a_schedule_is_told_with_its_key_and_line(line: str, problem: str) -> None:
    text = f"quotas:\n  - user: alice\n    producer_byte_rate: 1000\n    {line}\n"
    with pytest.raises(QuotaFileError) as refused:
        parse_quotas(text, "q")
    assert str(refused.value).startswith("q:4: quotas[0].")
    assert problem in str(refused.value)


def test_too_many_windows_are_refused() -> None:
    window = "{days: [sat], producer_byte_rate: 5}"
    text = (
        f"quotas:\n  - user: alice\n    producer_byte_rate: 1\n    schedule: [{', '.join([window] * 101)}]\n"
    )
    with pytest.raises(QuotaFileError, match="has 101 windows; at most 100"):
        parse_quotas(text, "q")


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def follow(path: Path, now: float) -> tuple[QuotaFile, Clock, list[QuotaLimits]]:
    clock = Clock(now)
    file = QuotaFile(path, clock)
    return file, clock, [file.load()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    return file


def test_who_follows_the_file_is_told_when_a_window_begins_and_ends_and_not_in_between(path: Path) -> None:
    file, clock, told = follow(path, BEFORE)
    rates = []
    for now in (BEFORE + 0.5, BATCH, BATCH + 1, AFTER - 1, AFTER, AFTER + 1):
        clock.now = now
        asyncio.run(file.check(told.append))
        rates.append((len(told), rate(told[-1])))
    assert rates == [(1, 1_000), (2, 9_000), (2, 9_000), (2, 9_000), (3, 1_000), (3, 1_000)]


def test_at_the_start_within_a_window_its_limits_hold_and_a_new_file_is_looked_at_by_the_same_clock(
    path: Path,
) -> None:
    file, clock, told = follow(path, BATCH + 60)
    assert rate(told[-1]) == 9_000
    path.write_text(FILE.replace("9000", "9500"))
    asyncio.run(file.check(told.append))
    assert rate(told[-1]) == 9_500
    clock.now = AFTER
    asyncio.run(file.check(told.append))
    assert rate(told[-1]) == 1_000


def test_a_clock_that_is_put_back_is_followed(path: Path) -> None:
    file, clock, told = follow(path, AFTER + 60)
    clock.now = BATCH + 60
    asyncio.run(file.check(told.append))
    assert rate(told[-1]) == 9_000


def test_a_window_begins_while_the_file_is_damaged(path: Path) -> None:
    file, clock, told = follow(path, BEFORE)
    path.write_text("quotas: [")
    asyncio.run(file.check(told.append))
    clock.now = BATCH
    asyncio.run(file.check(told.append))
    assert rate(told[-1]) == 9_000


def test_a_buckets_debt_outlives_the_change_and_is_paid_at_the_new_rate(path: Path) -> None:
    base = parse_quotas(FILE, "q")
    manager = QuotaManager(base, burst_s=1.0)
    sensor = manager.sensor(QuotaKind.PRODUCE, "alice", "app", 0.0)
    assert sensor is not None
    sensor.charge(19_000, 0.0)
    debt = sensor.tokens(0.0)
    assert debt < 0
    manager.reload(limits_at(base, BATCH).limits, 0.0)
    assert manager.sensor(QuotaKind.PRODUCE, "alice", "app", 0.0) is sensor
    assert (sensor.tokens(0.0), sensor.rate_per_s) == (debt, 9_000)


def test_a_change_by_the_calendar_is_on_record_as_such(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(BEFORE)
    monkeypatch.setattr(QuotaFile.__init__, "__defaults__", (clock, LIMIT_S))
    source = QuotaSource(QuotaOptions(file=path))

    async def follow() -> list[QuotaChange]:
        ((watch, name),) = source.work(lambda _limits: None)
        task = spawn(watch(), name)
        try:
            clock.now = BATCH
            await until(lambda: len(source.audit.changes) == 1)
            await asyncio.to_thread(path.write_text, FILE.replace("700", "800"))
            await until(lambda: len(source.audit.changes) == 2)
        finally:
            task.cancel()
        return list(source.audit.changes)

    first, second = asyncio.run(asyncio.wait_for(follow(), 30))
    assert (first.entity, first.source, first.new["producer_byte_rate"]) == (
        "user 'alice'",
        "schedule",
        9_000,
    )
    assert (second.entity, second.source) == ("user <default>", "file")
    assert rate(source.limits) == 9_000


def finished(steps: Generator[None, None, QuotaLimits]) -> QuotaLimits:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            limits: QuotaLimits = done.value
            return limits


def test_beside_a_topic_the_files_entries_keep_their_calendars() -> None:
    text = "quotas: [{user: alice, client-id-prefix: app, producer_byte_rate: 1000, schedule: ["
    text += "{days: [sat], from: '01:00', to: '05:00', timezone: Europe/Berlin, producer_byte_rate: 9000}]}]"
    batch = limits_at(parse_quotas(text, "q"), BATCH).limits
    limits = finished(merged_in_steps(batch, {QuotaEntity("bob"): Stored({"producer_byte_rate": 5.0})}))
    assert (rate(limits), rate(limits, "bob")) == (9_000, 5)
    assert limits.schedules == batch.schedules
    assert limits.scheduled == batch.scheduled


def test_schedules_are_exported_compared_and_told() -> None:
    listing = listing_of(FILE, "q")
    assert listing_of(yaml_of(listing), "again") == listing
    without = listing_of(FILE[: FILE.index("    schedule:")] + FILE[FILE.index("  - user: <def") :], "q")
    (found,) = differences(listing, without)
    assert str(found).startswith("- user-principal 'alice': schedule=[{")
    (line, _) = lines_of(listing, list(listing.limits))
    assert line.endswith("(with a schedule)")


def test_a_window_is_told_so_that_it_is_read_again_as_the_same() -> None:
    items = [
        {
            "days": ["sun", "sat"],
            "from": "01:00",
            "to": "05:00:30",
            "timezone": "Europe/Berlin",
            "producer_byte_rate": 9,
        },
        {"date": "2026-12-01", "to": "24:00", "producer_byte_rate": 8},
        {
            "date": "2026-12-01",
            "last_date": "2026-12-03",
            "from": "22:00",
            "to": "00:00",
            "producer_byte_rate": 7,
        },
    ]
    windows = windows_of(items)
    assert len(windows) == 3
    assert windows_of([window_item(window) for window in windows]) == windows
    assert window_item(windows[1]) == {
        "date": "2026-12-01", "last_date": "2026-12-01", "from": "00:00", "to": "24:00", "timezone": "UTC",
        "producer_byte_rate": 8,
    }  # fmt: skip


def test_a_schedule_that_is_written_otherwise_is_no_difference() -> None:
    text = "quotas: [{user: a, producer_byte_rate: 1, schedule: [{days: [sat], producer_byte_rate: 9%s}]}]"
    short, long = (listing_of(text % more, "q") for more in ("", ", from: '00:00', timezone: UTC"))
    assert list(differences(short, long)) == []
    other = listing_of(text % ", from: '00:01'", "q")
    assert len(list(differences(short, other))) == 1


def test_a_file_gets_and_loses_a_schedule_and_keeps_it_when_a_limit_changes(path: Path) -> None:
    place = QuotaFilePlace(path)
    now = place.listing()
    place.alter({(("user", "alice"),): {"producer_byte_rate": 1_200}})
    assert path.read_text() == FILE.replace("rate: 1000\n", "rate: 1200\n"), "comments and windows stay"
    without = listing_of("quotas: [{user: alice, producer_byte_rate: 5}]", "w")
    place.become(without, list(differences(place.listing(), without)))
    assert parse_quotas(path.read_text(), "q").schedules == {}
    place.become(now, list(differences(place.listing(), now)))
    assert place.listing() == now
    with pytest.raises(ConfigError, match="is no limit of this entry"):
        place.alter({(("user", "alice"),): {"consumer_byte_rate": None}})


def sluice(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    app(list(arguments), standalone_mode=False)
    return capsys.readouterr().out


def test_explain_tells_what_holds_until_when_and_what_is_to_come(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")

    def explained(at: str) -> dict[str, Any]:
        out = sluice(capsys, "quotas", "explain", "--user", "alice", "--json", "-q", str(path), "--at", at)
        (quota,) = [each for each in json.loads(out)["quotas"] if each["key"] == "producer_byte_rate"]
        (level,) = [each for each in quota["levels"] if each["applies"]]
        return {"limit": quota["limit"], "schedule": level["schedule"]}

    assert explained("2026-11-21T01:30+01:00") == {
        "limit": 9_000,
        "schedule": "By its schedule (sat 01:00–05:00 Europe/Berlin) until 2026-11-21T05:00+01:00; "
        "normally 1,000.",
    }
    assert explained("2026-11-21T06:00+01:00") == {
        "limit": 1_000,
        "schedule": "By its schedule 9,000 (sat 01:00–05:00 Europe/Berlin), next at 2026-11-28T01:00+01:00.",
    }
    out = sluice(
        capsys, "quotas", "explain", "--user", "alice", "-q", str(path), "--at", "2026-12-02T12:00+00:00"
    )
    assert "20,000 bytes per second" in out
    assert "By its schedule" in out


def test_explain_tells_of_a_time_that_no_calendar_has(path: Path) -> None:
    with pytest.raises(typer.BadParameter, match=r"--at: .*give a time such as"):
        app(
            ["quotas", "explain", "--user", "alice", "-q", str(path), "--at", "9999-12-31T23:00-12:00"],
            standalone_mode=False,
        )


def test_check_counts_schedules(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "limits for 2 entities, 1 schedule" in sluice(capsys, "check", str(path))


def test_the_schema_takes_what_the_reader_takes() -> None:
    schema = json.loads(quotas_schema_text())
    document = yaml.load(FILE, yaml.CBaseLoader)
    for entry in document["quotas"]:
        for item in [entry, *entry.get("schedule", [])]:
            item.update({key: float(value) for key, value in item.items() if key.endswith("_rate")})
    jsonschema.validate(document, schema)
    document["quotas"][0]["schedule"][0]["from"] = "25:00"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
