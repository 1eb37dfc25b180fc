"""The demo's second and third act, and its three numbers: what is counted, what is claimed, how it looks."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from bench.demo import run as demo
from bench.demo.closing import READ_ON, Outcome, storm_sentences, summary, three_numbers
from bench.demo.figures import KINDS, NATIVE, SIDES, SLUICE, ClientReport, LaneFigures
from bench.demo.overload_figures import OverloadFigures, Poured, overload_figures
from bench.demo.overload_screen import OverloadLines, overload_picture
from bench.demo.panes import ASCII_BLOCKS, BLOCKS
from bench.demo.storm_figures import (
    SILENT_S,
    Death,
    Seen,
    StormFigures,
    heap_by_second,
    last_words,
    seen,
    storm_figures,
)
from bench.demo.storm_screen import StormLines, storm_picture
from bench.evenness.cases import Evenness
from bench.lib.wire_clients import ClientLog
from bench.storm.record import Good, Pause, Record, StormAt

REPOSITORY = Path(__file__).parents[2]
HEAP_MIB = 80
SIZES = [(200, 60), (120, 40), (80, 24), (79, 23), (72, 20), (71, 40), (40, 30), (24, 24)]
DEAD = Death(9.4, 98_000, "OutOfMemoryError: Java heap space")


def shown(what: RenderableType, columns: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=columns, force_terminal=True, color_system=None).print(what)
    return out.getvalue().splitlines()


# --- the overload -----------------------------------------------------------------------------------------


def poured(side: str, rates: Sequence[int], connections: int = 2) -> Poured:
    """All of it answered to the first of so many connections."""
    logs = [ClientLog() for _ in range(connections)]
    for second, size_bytes in enumerate(rates):
        if size_bytes:
            logs[0].events.append((100.5 + second, size_bytes))
            logs[0].latencies_s.append((100.5 + second, 0.5 * (second + 1)))
    return Poured(side, 100.0, logs)


def test_the_overloads_first_second_counts() -> None:
    figures = overload_figures(poured(NATIVE, [25_000_000, 0, 0, 2_000_000]), 104.0)
    assert figures.bytes_per_s == [25_000_000, 0, 0, 2_000_000]
    assert figures.highest_vs_quota == 25.0
    assert (figures.longest_standstill_s, figures.standstill_s) == (2, 2)
    assert figures.wait_p99_s == 2.0


def test_of_the_overload_only_whole_seconds_count() -> None:
    assert poured(SLUICE, [1_000_000] * 4).bytes_per_s(102.9) == [1_000_000] * 2


def test_connections_without_any_answer_are_counted() -> None:
    figures = overload_figures(poured(SLUICE, [1_000_000], connections=5), 101.0)
    assert figures.starved == 4


def test_an_overload_in_which_nothing_was_answered_has_figures() -> None:
    figures = overload_figures(poured(SLUICE, [0, 0]), 102.0)
    assert (figures.highest_vs_quota, figures.wait_p99_s) == (0.0, None)


@pytest.mark.parametrize(("columns", "lines"), SIZES)
@pytest.mark.parametrize("blocks", [BLOCKS, ASCII_BLOCKS])
def test_the_overloads_picture_fits_the_terminal(columns: int, lines: int, blocks: str) -> None:
    sides = [poured(NATIVE, [25_000_000, *([0] * 11)]), poured(SLUICE, [1_000_000] * 12)]
    text = shown(overload_picture(sides, 112.0, 18.0, (columns, lines), blocks), columns)
    assert max(map(len, text)) <= columns
    assert len(text) < lines
    assert "\x1b" not in "".join(text)


def test_the_overloads_picture_says_what_is_whose_without_colours() -> None:
    sides = [poured(NATIVE, [25_000_000, *([0] * 11)]), poured(SLUICE, [1_000_000] * 12)]
    text = "\n".join(shown(overload_picture(sides, 112.0, 18.0, (80, 24))))
    for words in ("overload, broker's own quota", "overload, through Sluice", "highest 25.00 MB/s"):
        assert words in text
    assert "at a standstill 11 of 12 s" in text
    assert "at a standstill 0 of 12 s" in text


def test_without_a_terminal_the_overload_has_a_line_for_each_second() -> None:
    out = io.StringIO()
    sides = [poured(NATIVE, [25_000_000, 0, 0]), poured(SLUICE, [1_000_000] * 3)]
    with OverloadLines(Console(file=out, force_terminal=False)) as screen:
        for now_s in (100.3, 101.1, 101.9, 103.0):
            screen.update(sides, now_s, 18.0)
    lines = out.getvalue().splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["1", "of", "18", "25.00", "1.00"],
        ["2", "of", "18", "0.00", "1.00"],
        ["3", "of", "18", "0.00", "1.00"],
    ]
    assert "broker" in lines[0]
    assert "Sluice" in lines[0]


# --- the storm --------------------------------------------------------------------------------------------


def pause(at_s: float, after_mib: int) -> Pause:
    return Pause(at_s, HEAP_MIB, after_mib, HEAP_MIB, 5.0)


def storm_at(accepted: int, offered: int) -> StormAt:
    return StormAt(0.0, offered, 0, {0: accepted}, 64, 0, 0, 0, 0.0)


def good(*answered_s: float) -> Good:
    """One record for each, sent 5 ms before its answer."""
    return Good([Record(at_s - 0.005, 0.005) for at_s in answered_s], None, None)


def look(
    pauses: Sequence[Pause], heard: Good, *, now_s: float = 110.0, last_words: str | None = None
) -> Seen:
    storm = [storm_at(90_000, 100_000)]
    return seen(NATIVE, HEAP_MIB, storm, heard, pauses, (100.0, now_s), last_words)


FULL = [pause(101.5, 30), pause(103.2, 70), pause(103.4, 72), pause(103.6, 78)]


def test_the_heap_of_a_second_is_what_was_left_by_its_last_collection() -> None:
    assert heap_by_second(FULL, 100.0, 104.9) == [0, 30, 30, 78]
    assert heap_by_second([pause(99.0, 28), *FULL], 100.0, 101.0) == [28]


def test_a_broker_whose_process_has_ended_is_dead_whatever_else_is_seen() -> None:
    found = look([], good(109.5), last_words="OutOfMemoryError: Java heap space")
    assert found.death == Death(10.0, 90_000, "OutOfMemoryError: Java heap space")


def test_the_log_tells_why_a_broker_ended() -> None:
    terminating = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    log = f"12:00 INFO started\n{terminating}\n12:01 the rest"
    assert last_words(log) == "OutOfMemoryError: Java heap space"
    assert last_words("12:00 INFO started\n") == "its process ended"


def test_a_silent_broker_with_a_full_heap_is_dead_since_its_last_answer() -> None:
    heard = good(103.0)
    assert look(FULL, heard, now_s=103.0 + SILENT_S).death is None
    found = look(FULL, heard, now_s=103.1 + SILENT_S)
    assert found.death is not None
    assert found.death.after_s == pytest.approx(3.0)
    assert "full" in found.death.how


def test_neither_silence_nor_a_full_heap_alone_is_death() -> None:
    assert look([pause(101.0, 30)], good(103.0)).death is None  # a machine that is busy is silent, too
    assert look(FULL, good(109.9)).death is None


def test_the_good_clients_latency_is_that_of_the_last_second() -> None:
    heard = Good([Record(101.0, 3.0), Record(109.2, 0.004), Record(109.5, None)], None, None)
    found = look([], heard)
    assert found.good_ms == pytest.approx(4.0)
    assert found.silent_s == pytest.approx(0.796)
    assert look([], good()).silent_s == 10.0


def a_side(side: str, **changes: object) -> Seen:
    base = Seen(side, HEAP_MIB, [30.0, 45.0, 60.0, 78.0], 100_000, 98_000, 0.0, 4.0, None)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("columns", "lines"), SIZES)
def test_the_storms_picture_fits_the_terminal(columns: int, lines: int) -> None:
    sides = [a_side(NATIVE, death=DEAD), a_side(SLUICE, taken=1_000)]
    text = shown(storm_picture(sides, 12.0, 24.0, (columns, lines)), columns)
    assert max(map(len, text)) <= columns
    assert len(text) < lines


def test_the_storms_picture_says_who_is_dead_and_who_is_not() -> None:
    sides = [a_side(NATIVE, death=DEAD), a_side(SLUICE, taken=1_000)]
    text = "\n".join(shown(storm_picture(sides, 12.0, 24.0, (80, 24))))
    for words in (
        "broker alone",
        "behind Sluice",
        "DEAD after 9 s",
        "OutOfMemoryError",
        "new ids taken 1,000",
    ):
        assert words in text
    assert text.count("DEAD") == 1
    assert "cut off" in text
    assert "another user's producer: 4 ms" in text


def test_a_silent_broker_is_shown_as_silent() -> None:
    sides = [a_side(NATIVE, silent_s=3.2), a_side(SLUICE)]
    assert "silent 3 s" in "\n".join(shown(storm_picture(sides, 12.0, 24.0, (80, 24))))


def test_without_a_terminal_the_storm_has_a_line_for_each_second() -> None:
    out = io.StringIO()
    sides = [a_side(NATIVE), a_side(SLUICE, taken=1_000, heap_by_second=[])]
    with StormLines(Console(file=out, force_terminal=False)) as screen:
        for now_s in (0.5, 1.1, 1.6, 2.2):
            screen.update(sides, now_s, 24.0)
        screen.update([a_side(NATIVE, death=DEAD), sides[1]], 3.0, 24.0)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 + 3
    assert max(map(len, lines)) <= 80
    assert lines[2].split() == ["1", "s", "78", "of", "80", "98,000", "4", "0", "of", "80", "1,000", "4"]
    assert "dead" in lines[4]


# --- three numbers ----------------------------------------------------------------------------------------


def lane(side: str, api_key: int, longest_standstill_s: int) -> LaneFigures:
    even = Evenness([1_000_000], 1.0, 0.0, 1.0, 0.1, [1_000_000], {})
    return LaneFigures(
        side, api_key, even, 1e6, 0, longest_standstill_s, ClientReport({"p99": 9.0}, 0.0, 0.0)
    )


def overloaded(side: str, highest: int) -> OverloadFigures:
    return OverloadFigures(side, [highest, 0], 1, 1, 0, 4.0)


def stormed(side: str, death: Death | None = None, *, answers: bool = True) -> StormFigures:
    taken = 98_000 if side == NATIVE else 1_000
    return StormFigures(side, HEAP_MIB, 61.0, 13.0, 130_000, taken, death, answers, 1200, 5.0)


def outcome(native: StormFigures) -> Outcome:
    stills = {NATIVE: {0: 10, 1: 9}, SLUICE: {0: 0, 1: 0}}
    return Outcome(
        [lane(side, api_key, stills[side][api_key]) for side in SIDES for api_key in KINDS],
        [overloaded(NATIVE, 25_000_000), overloaded(SLUICE, 1_900_000)],
        [native, stormed(SLUICE)],
    )


DIED = outcome(stormed(NATIVE, DEAD, answers=False))


@pytest.mark.parametrize("columns", [120, 80, 60])
def test_the_end_has_a_number_for_each_act_and_both_sides(columns: int) -> None:
    lines = shown(three_numbers(DIED), columns)
    assert max(map(len, lines)) <= columns
    text = " ".join(lines)
    for number in ("10 s", "0 s", "25.0", "1.9", "dead after 9 s", "98,000 ids", "alive, 1,000 ids"):
        assert number in text, number


def test_a_broker_that_survives_the_storm_is_said_to_have_survived() -> None:
    lucky = outcome(stormed(NATIVE))
    text = " ".join(shown(three_numbers(lucky)))
    assert "dead" not in text
    assert "alive, 98,000 ids" in text
    assert "survived" in storm_sentences(lucky)[0]


def test_a_broker_that_answers_nobody_is_not_said_to_live() -> None:
    mute = outcome(stormed(NATIVE, answers=False))
    assert "answers nobody" in storm_sentences(mute)[0]
    assert not mute.stormed(NATIVE).lives
    assert "alive" not in shown(three_numbers(mute))[5]


def test_the_sentences_tell_how_the_broker_died_and_what_sluice_let_in() -> None:
    native, ours, heap = storm_sentences(DIED)
    assert "took 98,000 of them and died after 9.4 s: OutOfMemoryError: Java heap space" in native
    assert "let in 1,000 of them, and it lives" in ours
    assert "270 bytes" in heap
    assert "262 to 272 bytes" in (REPOSITORY / "docs" / "producer-ids.md").read_text(encoding="utf-8")


def test_what_programs_read_has_all_three_numbers_of_both_sides() -> None:
    found = json.loads(json.dumps(summary(DIED, 9.04, 88.31)))
    assert found["native_longest_standstill_s"] == 10
    assert found["sluice_longest_standstill_s"] == 0
    assert found["native_overload_highest_second_vs_quota"] == 25.0
    assert found["sluice_overload_highest_second_vs_quota"] == 1.9
    assert (found["native_storm_lives"], found["sluice_storm_lives"]) == (False, True)
    assert found["native_storm_died_after_s"] == 9.4
    assert found["sluice_storm_died_after_s"] is None
    assert (found["native_storm_ids_taken"], found["sluice_storm_ids_taken"]) == (98_000, 1_000)
    assert (found["storm_heap_mib"], found["set_up_s"], found["took_s"]) == (HEAP_MIB, 9.0, 88.3)


def test_figures_of_a_side_are_of_its_own_time() -> None:
    found = storm_figures(a_side(SLUICE), good(99.0, 101.0, 104.0), 100.0, 103.0, answers_afterwards=True)
    assert found.good_answered == 1
    assert found.good_p99_ms == pytest.approx(5.0)
    assert found.lives


def test_the_end_fits_a_terminal_and_says_where_to_read_on() -> None:
    out = io.StringIO()
    demo.tell(DIED, Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[-1] for line in lines[-len(READ_ON) :]] == [where for _, where in READ_ON]
    for _, where in READ_ON:
        assert (REPOSITORY / where).exists(), where
