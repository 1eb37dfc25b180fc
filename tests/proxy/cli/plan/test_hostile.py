"""Plans with hostile names, edited by hand, of an older date, or applied twice in a night."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.main import main
from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, read_plan, roll_back
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused, Reviews
from sluice.proxy.cli.plan.command import left_out_lines
from sluice.proxy.cli.plan.file import is_plan
from sluice.proxy.cli.quotas.listing import Listing, differences
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.config_error import ConfigError
from tests.proxy.cli.plan.test_nightly import DAY, KEY, limits_of, night, of, plan, quotas

TODAY = DAY + timedelta(days=1)
UNSEEN = ["a\u202ebd", "\u2066x\u2069", "x\u200by", "a\u061cb", "a\xadx", "x\U000e0041"]
"""or what stands behind them is read from right to left"""
NAMES = [
    *UNSEEN,
    "x\x7f", "x\x80", "\x85x", "x\x9fy", "a\u2028b", "a \u2029 b", "\ufeffx", "x\ufffe", "x\uffffy", "\x1b[m",
    "a\nb", "a: b", "- x", "#c", "'", '"', "{}", "&a", "*", "null", "../etc", "=1+1", "x'; DROP", "é😀",
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        f"quotas:\n  - client-id: <default>\n    {KEY}: 1000\n",
        json.dumps({"quotas": [{"client-id": "<default>", KEY: 1_000}]}),
    ],
)
def test_no_client_id_stops_the_plan_of_all(text: str, tmp_path: Path) -> None:
    """One byte that YAML does not take, in one client's id, and no limit was written any more, each night."""
    file = tmp_path / "quotas.yaml"
    file.write_text(text)
    nameless = ["", " ", "\u2028", "<default>", "<overflow>"]
    entities = [{"client-id": name} for name in (*NAMES, *nameless)]
    found = plan(tmp_path, DAY, [of("", 1_500, 1_000, entity=entity) for entity in entities])
    applied = apply_unattended(read_plan(found), QuotaFilePlace(file), today=TODAY)
    assert [dict(limit.whom)["client-id"] for limit, _ in applied.choice.left_out] == nameless
    written = {
        dict(whom)["client-id"]: its[KEY] for whom, its in QuotaFilePlace(file).listing().limits.items()
    }
    assert written == dict.fromkeys(NAMES, 1_500) | {"<default>": 1_000}
    # A person reads the file.
    assert not {unicodedata.category(each) for each in file.read_text()} & {"Cf", "Zl", "Zp"}


def test_no_client_id_steers_the_terminal_of_who_applies_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or makes lines that look like Sluice's own."""
    file = tmp_path / "quotas.yaml"
    file.write_text(f"quotas:\n  - client-id: <default>\n    {KEY}: 1000\n")
    hostile = ["\x1b]0;pwn\x07\x1b[2J", "a\n+ user-principal 'admin': x=1", "\u202eexe", "\x9b2J", "b\u2028c"]
    entries = [
        of("", 1_500, 1_000, entity={"client-id": name}, needs_review=True, up_to=3_000) for name in hostile
    ]
    found = plan(tmp_path, datetime.now(UTC).date(), entries)
    for options in (["--dry-run"], ["--unattended", "--include-reviews"], ["--rollback"]):
        argv = ["sluice", "quotas", "apply", str(found), "--quotas", str(file), *options]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        assert (ended.value.code, out.err) == (0, "")
        assert all(line.isprintable() for line in out.out.split("\n")), out.out
        lines = [line for line in out.out.split("\n") if line.startswith(("+", "-"))]
        assert len(lines) == len(hostile), out.out
        assert any(r"\x1b]0;pwn\x07\x1b[2J" in line for line in lines)


@pytest.mark.parametrize(
    ("version", "begin"), [(1, "left out: "), (2, "waits for review above ")], ids=["left out", "waits"]
)
def test_made_up_names_hide_no_limit_that_is_left_out(version: int, begin: str, tmp_path: Path) -> None:
    """Of 283 lines 20 are told: those of limits that the file names first, then the largest of each key."""
    place = quotas(tmp_path, {"alice": 1_000, "bob": 5_000, "<default>": 9_000})
    place.file.write_text(place.file.read_text().replace("9000", "9000\n    request_percentage: 50"))
    review = {"needs_review": True}
    entries = [
        of(f"z{n:03}", 2 * limit - n // 3, limit, key=key, up_to=2 * limit + 10 * n, **review)
        for n in range(150) for key, limit in ((KEY, 9_000), ("request_percentage", 50))
    ]  # fmt: skip
    entries.append(of("alice", 1_010, 1_000, up_to=1_010, **review))
    entries.append(of("bob", 6_000, 5_000, up_to=6_000, **review))
    applied = apply_plan(read_plan(plan(tmp_path, DAY, entries, version=version)), place, today=TODAY)
    lines = left_out_lines(applied)
    told = [re.findall(r"'(\w+)': (\w+)", line)[0] for line in lines[:20]]
    largest = "z000" if version == 1 else "z149"
    assert told[:2] == [("bob", KEY), ("alice", KEY)]
    assert set(told[2:4]) == {(largest, KEY), (largest, "request_percentage")}
    assert all(line.startswith(begin) for line in lines[:20])
    assert f"{begin.split(' above', maxsplit=1)[0].rstrip(': ')}: 282 more" in lines


def test_a_user_that_no_file_can_name_does_not_stop_the_others(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000, "<default>": 1_000})
    entries = [of(user, 1_500, 1_000) for user in ("User:mallory", "alice", "\x7f")]
    applied = apply_unattended(read_plan(plan(tmp_path, DAY, entries)), place, today=TODAY)
    assert [dict(limit.whom)["user"] for limit, _ in applied.choice.left_out] == ["User:mallory"]
    assert limits_of(place) == {"alice": 1_500, "\x7f": 1_500, "<default>": 1_000}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"incomplete_log": 3}, "incomplete_log: must be an object, {} if there is none; is 3"),
        ({"incomplete_log": None}, "incomplete_log: must be an object"),
        ({"damaged_files": 3}, "damaged_files: must be an object"),
        ({"version": True}, "version: is true"),
        ({"entries": [of("alice", 1_500, 1_000, key=[])]}, r"entries\[0\]: key: \[\] is no quota"),
        ({"entries": [of("alice", 10**400, 1_000)]}, r"entries\[0\]: proposed must be a number above 0"),
        *(
            (
                {"entries": [of("alice", 1_500, 1_000, needs_review=True, up_to=up_to)]},
                rf"entries\[0\]: {told}",
            )
            for up_to, told in (
                (-1, "up_to must be a number above 0, is -1"),
                (None, "up_to must be a number above 0, is null"),
                ("x", "up_to must be a number above 0, is 'x'"),
                (1e30, "Proposed value for up_to is too large"),
            )
        ),
    ],
)
def test_what_a_hand_has_made_of_a_plan_is_told_with_its_place(
    values: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"plan.json: {problem}"):
        read_plan(plan(tmp_path, DAY, values.pop("entries", [of("alice", 1_500, 1_000)]), **values))


def test_a_plan_nested_beyond_all_reason_is_no_whole_plan(tmp_path: Path) -> None:
    file = plan(tmp_path, DAY, [])
    file.write_text('{"entries": ' + "[" * 100_000)
    assert not is_plan(file.read_text())
    with pytest.raises(ConfigError, match="is no whole plan"):
        read_plan(file)


@pytest.mark.parametrize(
    "content", ['{"PLACE": 3}', '{"PLACE": {"KEY": 5}}', '{"PLACE": {"KEY": [["x", 1]]}}']
)
def test_a_damaged_ledger_of_cuts_is_named(content: str, tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    found = read_plan(plan(tmp_path, DAY, [of("alice", 800, 1_000)]))
    ledger = tmp_path / "out" / "unattended.json"
    ledger.write_text(content.replace("PLACE", str(place.file)).replace("KEY", KEY))
    with pytest.raises(
        ConfigError,
        match=r"unattended.json: is damaged, or not what Sluice wrote.*; put it back from a backup, or",
    ):
        apply_unattended(found, place, today=TODAY)
    assert limits_of(place) == {"alice": 1_000}


@pytest.mark.parametrize("content", ['{"grants": 3}', '{"grants": [{}]}', "[" * 100_000])
def test_damaged_grants_are_named(content: str, tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    entry = of("alice", 1_500, 1_000, needs_review=True, up_to=4_000)
    found = read_plan(plan(tmp_path, DAY, [entry]))
    (tmp_path / "out" / "grants.json").write_text(content)
    with pytest.raises(ConfigError, match=r"grants.json: (is damaged|cannot be read)"):
        apply_plan(found, place, reviews=Reviews(all=True), today=TODAY)
    assert limits_of(place) == {"alice": 1_000}


def test_a_rollback_ends_what_was_granted_or_the_next_night_goes_there_again(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000, "bob": 1_000})
    entries = [of(who, 1_500, 1_000, needs_review=True, up_to=4_000) for who in ("alice", "bob")]
    file = plan(tmp_path, DAY, entries)
    apply_plan(read_plan(file), place, reviews=Reviews(all=True), today=TODAY)
    grants = tmp_path / "out" / "grants.json"
    before = grants.read_bytes()
    told = [
        "no longer granted: user-principal 'alice': " + KEY,
        "no longer granted: user-principal 'bob': " + KEY,
        "left alone by unattended nights until 2026-12-05, or --include: 2 limits",
    ]
    assert roll_back(file, place, dry_run=True, today=TODAY).others == told
    assert grants.read_bytes() == before
    assert roll_back(file, place, today=TODAY).others == told
    assert limits_of(place) == {"alice": 1_000, "bob": 1_000}
    assert json.loads(grants.read_text()) == {"grants": []}


def test_nothing_is_granted_to_whom_no_file_can_name(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"<default>": 1_000})
    entries = [of(user, 1_500, 1_000, needs_review=True, up_to=4_000) for user in (" ", "<default>")]
    file = plan(tmp_path, DAY, entries)
    choice = apply_plan(read_plan(file), place, reviews=Reviews(all=True), today=TODAY).choice
    assert (choice.granted, choice.waiting, len(choice.left_out)) == ([], [], 2)
    assert not (tmp_path / "out" / "grants.json").exists()


def test_unattended_no_plan_is_applied_of_which_a_newer_one_was_made(tmp_path: Path) -> None:
    """An older date that was run again: what it set was a person's word to the next night."""
    place = quotas(tmp_path, {"alice": 1_000})
    older = plan(tmp_path, DAY, [of("alice", 1_500, 1_000)])
    plan(tmp_path, DAY + timedelta(days=1), [of("alice", 1_200, 1_000)])
    plan(tmp_path, DAY + timedelta(days=400), [])  # by a clock that was wrong
    today = DAY + timedelta(days=2)
    with pytest.raises(PlanRefused, match=f"not applied: {DAY + timedelta(days=1)}-1, of a later date"):
        apply_unattended(read_plan(older), place, today=today)
    apply_plan(read_plan(older), place, today=today)
    assert limits_of(place) == {"alice": 1_500}


def test_a_night_that_is_run_again_cuts_no_more_than_one(tmp_path: Path) -> None:
    place = quotas(tmp_path, {f"u{number:02}": 1_000 for number in range(20)})
    night(tmp_path, place, 0)
    once = sum(limits_of(place).values())
    night(tmp_path, place, 0)
    assert sum(limits_of(place).values()) == once == 20_000 - 714


def test_of_two_commands_that_change_a_file_at_once_none_loses_what_the_other_wrote(tmp_path: Path) -> None:
    """A whole plan was lost to `sluice configs`, which had read the file before, and ended in a traceback."""
    place = quotas(tmp_path, {"alice": 1_000, "bob": 1_000})
    found = read_plan(plan(tmp_path, DAY, [of("alice", 1_500, 1_000)]))
    with ThreadPoolExecutor() as pool, place.alone():
        other = pool.submit(QuotaFilePlace(place.file).alter, {(("user", "bob"),): {KEY: 777}})
        with pytest.raises(TimeoutError):
            other.result(timeout=0.3)
        apply_unattended(found, place, today=TODAY)
        assert limits_of(place) == {"alice": 1_500, "bob": 1_000}
    assert other.result(timeout=30)
    assert limits_of(place) == {"alice": 1_500, "bob": 777}


def test_what_an_editor_writes_between_the_look_and_the_change_stays(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    now = place.listing()
    wanted = Listing({(("user", "alice"),): {KEY: 1_500}})
    quotas(tmp_path, {"alice": 1_000, "bob": 5})
    place.become(wanted, list(differences(now, wanted)))
    assert limits_of(place) == {"alice": 1_500, "bob": 5}


def test_who_waits_for_another_command_is_told_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.proxy.cli.whole_file._WAIT_S", 0.1)
    place = quotas(tmp_path, {"alice": 1_000})
    with (
        place.alone(),
        pytest.raises(ConfigError, match=r"quotas\.yaml: another command has been changing it"),
    ):
        QuotaFilePlace(place.file).alter({(("user", "alice"),): {KEY: 5}})
    assert QuotaFilePlace(place.file).alter({(("user", "alice"),): {KEY: 5}})


def test_no_plan_makes_the_file_larger_than_proxies_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients choose their ids, and each that is given a limit of its own makes the file longer."""
    monkeypatch.setattr("sluice.proxy.cli.quotas.places.MAX_QUOTAS_BYTES", 200)
    place = quotas(tmp_path, {"<default>": 1_000})
    before = place.file.read_bytes()
    found = read_plan(plan(tmp_path, DAY, [of("x" * 200, 1_500, 1_000)]))
    with pytest.raises(ConfigError, match="would have more than 200 bytes, which no proxy reads"):
        apply_unattended(found, place, today=TODAY)
    assert place.file.read_bytes() == before


@pytest.mark.parametrize("is_unattended", [False, True])
@pytest.mark.parametrize("proposed", [700, 1_500])
@pytest.mark.parametrize("entity", [{"client-id": "app"}, {"user": "alice"}, {"ip": "10.0.0.1"}])
def test_a_limit_of_its_own_that_was_removed_does_not_come_back(
    entity: dict[str, str], proposed: int, is_unattended: bool, tmp_path: Path
) -> None:
    """The default has the same number: below it an id's limit would bind nobody, and above it take a
    person's word."""
    (part,), key = entity, "connection_creation_rate" if "ip" in entity else KEY
    file = tmp_path / "quotas.yaml"
    file.write_text(f"quotas:\n  - {part}: <default>\n    {key}: 1000\n")
    before = file.read_bytes()
    entry = of("", proposed, 1_000, key=key, entity=entity, asked=None)
    found = read_plan(plan(tmp_path, DAY, [entry]))
    apply, place = apply_unattended if is_unattended else apply_plan, QuotaFilePlace(file)
    with pytest.raises(PlanRefused, match="is stale: 1 limit changed since"):
        apply(found, place, today=TODAY)
    applied = apply(found, place, bounds=Bounds(skip_changed=True), reviews=Reviews(all=True), today=TODAY)
    assert left_out_lines(applied)[0].endswith(
        "was its own 1000 when the plan was made, is a default's 1000 now"
    )
    assert file.read_bytes() == before


def test_a_new_entry_that_has_got_a_schedule_stays_when_the_plan_is_rolled_back(tmp_path: Path) -> None:
    """What a person has written there would go with it, and a schedule needs its limit."""
    place = quotas(tmp_path, {"alice": 1_000, "<default>": 1_000})
    place.file.write_text(place.file.read_text() + "  - {user: erin, consumer_byte_rate: 5}\n")
    entries = [of(user, 700, 1_000, asked=900) for user in ("bob", "carol", "erin")]
    made = plan(tmp_path, DAY, entries)
    apply_plan(read_plan(made), place, today=TODAY)
    text = place.file.read_text()
    window = f"    schedule:\n      - {{days: [sat], {KEY}: 900}}\n"
    text = text.replace('- user: "bob"\n', f'- user: "bob"\n{window}')
    text = text.replace(
        "{user: erin, consumer_byte_rate: 5,",
        f"{{user: erin, schedule: [{{days: [sat], {KEY}: 900}}], consumer_byte_rate: 5,",
    )
    place.file.write_text(text.replace('- user: "carol"\n', '- user: "carol"\n    shadow: true\n'))
    before = place.listing()
    undone = roll_back(made, place, today=TODAY)
    assert [str(one) for one in undone.found] == [f"- user-principal 'carol': {KEY}=700 (shadow)"]
    assert undone.others == [
        *(f"user-principal '{user}': {KEY} has a schedule now; left as it is" for user in ("bob", "erin")),
        "left alone by unattended nights until 2026-12-05, or --include: 1 limit",
    ]
    carol = (("user", "carol"),)
    assert place.listing().limits == {whom: its for whom, its in before.limits.items() if whom != carol}
    assert place.listing().schedules == before.schedules


def test_an_older_plan_that_does_not_say_whose_a_limit_is_goes_by_its_number(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"<default>": 1_000})
    apply_plan(read_plan(plan(tmp_path, DAY, [of("alice", 700, 1_000)])), place, today=TODAY)
    assert limits_of(place) == {"alice": 700, "<default>": 1_000}
