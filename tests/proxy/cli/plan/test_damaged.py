"""Damaged files beside a plan: which one, what is wrong with it and what to do; nothing is changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, plan_file_of, read_plan, roll_back
from sluice.proxy.cli.plan.choice import Bounds, Reviews
from sluice.proxy.cli.plan.ledger import add_rolled_back
from sluice.proxy.cli.plan.record import PlanRecord, Replaced
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.load import MAX_PLAN_BYTES, MAX_QUOTAS_BYTES
from tests.proxy.cli.plan.test_hostile import TODAY
from tests.proxy.cli.plan.test_nightly import DAY, KEY, limits_of, of, plan, quotas

DIGITS = "1" + "0" * 400
DEEP = "[" * 100_000


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "-Infinity", "1e999", "-1e9", '"5"', "true", DIGITS])
def test_a_ledger_of_cuts_with_numbers_that_are_none_is_damaged(amount: str, tmp_path: Path) -> None:
    """NaN stopped all cuts for a week, without a word; so did a number below 0."""
    place = quotas(tmp_path, {"alice": 1_000})
    found = read_plan(plan(tmp_path, DAY, [of("alice", 800, 1_000)]))
    ledger = tmp_path / "out" / "unattended.json"
    ledger.write_text(f'{{"{place.file}": {{"{KEY}": [["{TODAY}", {amount}]]}}}}')
    with pytest.raises(ConfigError, match=r"unattended.json: is damaged, or not what .*; put it back from"):
        apply_unattended(found, place, today=TODAY)
    assert limits_of(place) == {"alice": 1_000}


@pytest.mark.parametrize("values", [{"up_to": "NaN"}, {"up_to": "-1"}, {"up_to": DIGITS}, {"entity": "[1]"}])
def test_grants_with_values_that_are_none_are_damaged(values: dict[str, str], tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    found = read_plan(plan(tmp_path, DAY, [of("alice", 1_500, 1_000, needs_review=True, up_to=4_000)]))
    item = {"entity": '"{}"', "key": f'"{KEY}"', "up_to": "5", "until": f'"{TODAY}"'} | values
    text = ", ".join(f'"{name}": {value}' for name, value in item.items())
    (tmp_path / "out" / "grants.json").write_text(f'{{"grants": [{{{text}}}]}}')
    with pytest.raises(ConfigError, match=r"grants.json: is damaged, or not what .*; put it back from"):
        apply_plan(found, place, reviews=Reviews(all=True), today=TODAY)
    assert limits_of(place) == {"alice": 1_000}


def recorded(**values: str) -> str:
    """A record of one limit, of which some values are other JSON."""
    item = {"entity": '{"user": "alice"}', "key": f'"{KEY}"', "before": "900", "after": "1000"} | values
    text = ", ".join(f'"{name}": {value}' for name, value in item.items())
    return f'{{"version": 1, "places": {{"PLACE": [{{{text}}}]}}}}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"version": 1}',
        '{"version": 1, "places": {"PLACE": 3}}',
        DEEP,
        '{"version": 1, "places": ' + DEEP,
        recorded(before="NaN"),
        recorded(after="Infinity"),
        recorded(before="-5"),
        recorded(before=DIGITS),
        recorded(after="null"),
        recorded(before='"900"'),
        recorded(entity='{"user": ["alice"]}'),
        recorded(entity='{"usr": "alice"}'),
        recorded(entity="{}"),
        recorded(key='["k"]'),
    ],
)
def test_a_damaged_record_is_named_with_what_to_do(text: str, tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    file = plan(tmp_path, DAY, [of("alice", 1_500, 1_000)])
    file.with_name("rollback.json").write_text(text.replace("PLACE", str(place.file)))
    told = r"rollback.json: is damaged, or not what Sluice wrote.*; put it back from a backup, or "
    with pytest.raises(ConfigError, match=told):
        roll_back(file, place)
    with pytest.raises(ConfigError, match=told):
        apply_plan(read_plan(file), place, today=TODAY)
    assert limits_of(place) == {"alice": 1_000}


def test_a_record_of_a_later_version_is_told_as_such(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    file = plan(tmp_path, DAY, [of("alice", 1_500, 1_000)])
    file.with_name("rollback.json").write_text('{"version": 9, "places": {}}')
    with pytest.raises(ConfigError, match=r"rollback.json: version: is 9; this Sluice reads 1"):
        roll_back(file, place)


@pytest.mark.parametrize("name", ["unattended.json", "grants.json", "plans/2026-11-20-1/rollback.json"])
def test_what_is_no_file_is_told_and_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    entry = of("alice", 1_500, 1_000, needs_review=True, up_to=4_000)
    found = read_plan(plan(tmp_path, DAY, [entry]))
    file = tmp_path / "out" / name
    for make in (os.mkdir, os.mkfifo):
        make(file)
        with pytest.raises(ConfigError, match=rf"{file.name}: cannot be read: .*; put it back from"):
            apply_unattended(found, place, reviews=Reviews(all=True), today=TODAY)
        file.rename(tmp_path / f"{make.__name__}")
    assert limits_of(place) == {"alice": 1_000}


@pytest.mark.parametrize(
    "content",
    ["x" * 5_000, "x" * 200_000, "", "a\0b", "../../..", "/etc", "\x1b[2J", b"\xff", os.mkdir, os.mkfifo],
)
def test_a_damaged_latest_is_named_with_what_to_do(content: Any, tmp_path: Path) -> None:
    latest = tmp_path / "LATEST"
    if callable(content):
        content(latest)
    else:
        latest.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(
        ConfigError, match=r"LATEST: .*; move it away and run the night again, or name a plan's folder"
    ) as told:
        plan_file_of(tmp_path)
    assert str(told.value).isprintable()


@pytest.mark.parametrize("entity", [DEEP, '{"user": NaN}', '{"user": "\\ud800"}'])
def test_an_entity_that_is_none_is_told_with_its_place(entity: str, tmp_path: Path) -> None:
    file = plan(tmp_path, DAY, [of("alice", 1_500, 1_000, entity=entity)])
    with pytest.raises(ConfigError, match=r"plan.json: entries\[0\]: entity must be JSON such as"):
        read_plan(file)


@pytest.mark.parametrize("text", ["NaN", "1e999", '"\\ud800"', DEEP])
def test_a_plan_with_what_no_night_writes_is_no_whole_plan(text: str, tmp_path: Path) -> None:
    file = plan(tmp_path, DAY, [])
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"more": "HERE"}).replace('"HERE"', text))
    with pytest.raises(ConfigError, match=r"plan.json: is no whole plan: .*; run the night again"):
        read_plan(file)


@pytest.mark.parametrize("name", ["plan.json", "kept-elsewhere.json"])
def test_a_plan_of_more_bytes_than_a_quota_file_may_have_is_read(name: str, tmp_path: Path) -> None:
    """127,000 limits of users' own, of a quota file of 7 MiB, were a plan that nothing could apply."""
    file = plan(tmp_path, DAY, [of("alice", 800, 1_000)])
    file = file.rename(file.with_name(name))
    with file.open("a") as opened:
        opened.write("\n" * MAX_QUOTAS_BYTES)
    assert plan_file_of(file) == file
    assert len(read_plan(file).limits) == 1


def test_a_plan_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    file = plan(tmp_path, DAY, [of("alice", 800, 1_000)])
    os.truncate(file, MAX_PLAN_BYTES + 1)
    with pytest.raises(ConfigError, match="has more than 536,870,912 bytes"):
        read_plan(file)


def test_a_second_go_on_a_full_disk_can_be_run_again_and_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A night had written one limit a part of the way; what that was before was lost."""
    before = {f"u{number:02}": 1_000 for number in range(20)}
    place = quotas(tmp_path, before)
    found = read_plan(plan(tmp_path, DAY, [of(user, 700, 1_000) for user in before]))
    apply_unattended(found, place, today=TODAY)
    assert 886 in limits_of(place).values()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    wide = Bounds(max_cut_share=1.0, max_total_fall=1.0)
    with monkeypatch.context() as patched:
        patched.setattr("sluice.proxy.cli.quotas.places.replace_whole", full)
        with pytest.raises(ConfigError, match="cannot be written"):
            apply_plan(found, place, today=TODAY, bounds=wide)
    apply_plan(found, place, today=TODAY, bounds=wide)
    assert set(limits_of(place).values()) == {700}
    roll_back(Path(found.source), place, today=TODAY)
    assert limits_of(place) == before


@pytest.mark.parametrize("file", ["rollback.json", "rolled_back.json"])
def test_what_could_not_be_written_leaves_nothing_beside_it(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    item = Replaced((("user", "alice"),), KEY, 900.0, 1_000.0)
    writes: dict[str, Callable[[], object]] = {
        "rollback.json": lambda: PlanRecord(tmp_path / file).add("place", [item]),
        "rolled_back.json": lambda: add_rolled_back(tmp_path, [('{"user": "alice"}', KEY)], TODAY),
    }
    with pytest.raises(ConfigError, match=f"{file}: cannot be written"):
        writes[file]()
    assert not list(tmp_path.iterdir())
