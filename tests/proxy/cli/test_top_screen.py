"""What the keys of `sluice top` change, and what it then asks the proxy for."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from sluice.proxy.admin.top.order import Sort
from sluice.proxy.cli.top import console_of
from sluice.proxy.cli.top_screen import Look, framed


class Source:
    """A proxy, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, bool]] = []

    def top(self, rows: int, *, why: bool) -> dict[str, Any]:
        self.asked.append(("top", rows, why))
        return {"rows": []}

    def replication(self, rows: int) -> dict[str, Any]:
        self.asked.append(("replication", rows, False))
        return {"followers": []}


def test_s_goes_through_all_orders_and_w_turns_reasons_on_and_off() -> None:
    look = Look(Source(), 25)
    seen = []
    for _ in range(len(Sort) + 1):
        seen.append(look.sort)
        look.pressed("s")
    assert seen == [*Sort, Sort.THROTTLED]
    for expected in (True, False):
        look.pressed("w")
        assert look.why is expected
        assert ("why: on" in look.keys) is expected
    look.pressed("x")
    look.pressed("")
    assert (look.sort, look.why) == (Sort.THROUGHPUT, False)


def type_in(look: Look, text: str) -> None:
    for key in text:
        look.pressed(key)


def test_f_filters_by_a_part_of_the_name() -> None:
    look = Look(Source(), 25)
    assert look.keys.endswith("f filter: off")
    type_in(look, "fSwqx\x7fF")
    assert look.keys.startswith("filter: SwqF▏ · a part of the name")  # what else are keys are characters
    assert (look.user, look.sort, look.why) == ("", Sort.THROTTLED, False)
    look.pressed("\r")
    assert look.user == "*SwqF*"
    assert look.keys.endswith("f filter: *SwqF*")
    type_in(look, "ftea?-*\n")
    assert look.user == "tea?-*"  # a pattern stays what it is
    type_in(look, "fUser:tea\n")
    assert look.user == "*tea*"  # as with --user
    look.user = "tea?-*"
    type_in(look, "fother\x1b")
    assert look.user == "tea?-*"  # Escape leaves it
    type_in(look, "f\x7f\0\n")
    assert look.user == ""  # nothing: all of them


def test_the_followers_have_no_filter() -> None:
    look = Look(Source(), 25, replication=True)
    type_in(look, "fx\n")
    assert (look.user, look.typed) == ("", None)


def test_more_rows_are_asked_for_where_they_are_chosen_or_sorted_here() -> None:
    source = Source()
    for look in (
        Look(source, 7),
        Look(source, 7, why=True),
        Look(source, 7, user="alice"),
        Look(source, 7, sort=Sort.NAME),
        Look(source, 7, replication=True),
    ):
        look.snapshot()
    assert source.asked == [
        ("top", 7, False),
        ("top", 7, True),
        ("top", 200, False),
        ("top", 200, False),
        ("replication", 7, False),
    ]


def test_where_nothing_is_found_it_is_said_what_was_searched_for() -> None:
    look = Look(Empty(), 7, user="team-\x1bb")
    console = Console(file=io.StringIO(), width=200)
    console.print(look.rendered(200))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines()[-1] == "no bucket matches team-\\x1bb"
    console.print(Look(Empty(), 7).rendered(200))
    assert console.file.getvalue().count("matches") == 1


class Empty(Source):
    """A proxy without traffic."""

    def top(self, rows: int, *, why: bool) -> dict[str, Any]:
        counts = ("throttled_buckets", "active_buckets", "throttled_connections", "connections")
        told = {"rows": [], "pacing": "smooth", "at": "now", "not_in_force": [], "delayed_buckets_1m": 0}
        return told | dict.fromkeys(counts, 0)


def test_what_the_terminals_encoding_has_not_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a traceback, on a screen that nobody had switched back."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    console = console_of()
    console.print(Look(Empty(), 7).rendered(console.width))
    assert b"minute ? now 0" in written.getvalue()


def test_what_the_screen_has_no_room_for_is_said_beside_the_keys_which_stay() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=10)
    console.print(framed(Text("\n".join(f"line {number}" for number in range(30))), "q quit", console))
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[8] == "line 8"
    assert lines[9] == "q quit · 21 more lines: a taller window, --user, or --once"
    console.print(framed(Text("line"), "q quit", console))
    assert out.getvalue().splitlines()[10:] == ["line", "q quit"]
