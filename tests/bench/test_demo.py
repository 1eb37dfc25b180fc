"""The demo's pure parts: what it counts, what it makes of it, and how that looks on terminals of any size."""

from __future__ import annotations

import io
import os
import signal
import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.demo import run as demo
from bench.demo import setup
from bench.demo.figures import (
    KINDS,
    NATIVE,
    SIDES,
    SLUICE,
    ClientReport,
    LaneFigures,
    closing_sentence,
    figures,
    long_run_bytes_per_s,
    longest_standstill_s,
    parse_report,
)
from bench.demo.interrupts import SIGNALS, Interrupted, Interrupts
from bench.demo.panes import ASCII_BLOCKS, BLOCKS
from bench.demo.screen import LineScreen, chart, closing_tables, notes, picture
from bench.demo.traffic import client_id
from bench.demo.wire import FrameFollower, Lane, WireMeter
from bench.lib.relay import Direction
from testkit.frames import load_frames as frames
from testkit.frames.load_frames import FETCH, PRODUCE

PRODUCER_OUTPUT = """\
10860 records sent, 1844.4 records/sec (1.76 MB/sec), 265.4 ms avg latency, 2458.0 ms max latency.
14000 records sent, 1061.973754 records/sec (1.01 MB/sec), 889.24 ms avg latency, 9028.00 ms max latency, \
253 ms 50th, 8657 ms 95th, 8972 ms 99th, 9026 ms 99.9th.
producer-metrics:produce-throttle-time-avg:{client-id=native-produce}                 : 10.269
producer-metrics:produce-throttle-time-max:{client-id=native-produce}                 : 1015.000
"""
CONSUMER_OUTPUT = """\
consumer-fetch-manager-metrics:fetch-throttle-time-avg:{client-id=native-consume}     : 260.372
consumer-fetch-manager-metrics:fetch-throttle-time-max:{client-id=native-consume}     : 1012.000
"""
WAVE = [11_000_000, *([0] * 10)]
EVEN = [1_000_000] * 11


# --- what is counted --------------------------------------------------------------------------------------


def _request(api_key: int, version: int, correlation_id: int, client: str, body: bytes) -> bytes:
    name = client.encode()
    behind_size = struct.pack(f">hhih{len(name)}s", api_key, version, correlation_id, len(name), name) + body
    return struct.pack(">i", len(behind_size)) + behind_size


def _answer(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def _lanes() -> list[Lane]:
    return [Lane(SLUICE, api_key, client_id(SLUICE, api_key), 100.0) for api_key in KINDS]


def _tell(meter: WireMeter, direction: Direction, at_s: float, data: bytes, cut_bytes: int = 1 << 20) -> None:
    for begin in range(0, len(data), cut_bytes):
        meter(1, direction, at_s, memoryview(data)[begin : begin + cut_bytes])


@pytest.mark.parametrize("cut_bytes", [1, 3, 7, 100, 1 << 20])
def test_a_producers_requests_count_and_its_answers_tell_it_to_wait(cut_bytes: int) -> None:
    producer, consumer = _lanes()
    meter = WireMeter([producer, consumer])
    metadata = _request(frames.METADATA, 9, 1, "sluice-produce", b"\0" * 40)
    produce = _request(PRODUCE, 8, 2, "sluice-produce", bytes(20_000))
    _tell(meter, Direction.UP, 100.5, metadata + produce + produce, cut_bytes)
    _tell(meter, Direction.DOWN, 102.9, _answer(1, b"\0" * 30), cut_bytes)
    _tell(meter, Direction.DOWN, 102.9, _answer(2, struct.pack(">ii", 0, 1234)), cut_bytes)
    # The first six bytes of a frame do not tell yet what it is.
    assert sum(producer.bytes_in_second.values()) == pytest.approx(2 * len(produce), abs=12)
    assert set(producer.bytes_in_second) == {0}
    assert producer.told_ms_in_second == {2: 1234}
    assert not consumer.events


@pytest.mark.parametrize("cut_bytes", [1, 5, 1 << 20])
def test_of_a_consumers_answers_only_those_with_records_count(cut_bytes: int) -> None:
    producer, consumer = _lanes()
    meter = WireMeter([producer, consumer])
    asked = b"".join(_request(FETCH, 11, number, "sluice-consume", bytes(60)) for number in (1, 2))
    _tell(meter, Direction.UP, 100.0, asked, cut_bytes)
    empty = _answer(1, struct.pack(">i", 900) + bytes(20))
    records = _answer(2, struct.pack(">i", 70) + bytes(100_000))
    _tell(meter, Direction.DOWN, 101.0, empty, cut_bytes)
    _tell(meter, Direction.DOWN, 103.0, records, cut_bytes)
    assert set(consumer.bytes_in_second) == {3}
    assert consumer.bytes_in_second[3] == pytest.approx(len(records), abs=8)
    assert consumer.told_ms_in_second == {1: 900, 3: 70}
    assert consumer.longest_told_ms == 900
    assert consumer.started_s == 103.0
    assert not producer.events


def test_a_client_of_another_name_counts_for_nobody() -> None:
    lanes = _lanes()
    _tell(WireMeter(lanes), Direction.UP, 100.0, _request(PRODUCE, 8, 1, "native-produce", bytes(5000)))
    assert not any(lane.events for lane in lanes)


@given(st.lists(st.integers(0, 9000), min_size=1, max_size=6), st.lists(st.integers(1, 5000), min_size=1))
def test_frames_are_found_however_they_were_split(sizes: list[int], cuts: list[int]) -> None:
    data = b"".join(struct.pack(">i", size) + bytes(size) for size in sizes)
    follower = FrameFollower()
    ends, new_bytes, pos = 0, 0, 0
    while pos < len(data):
        cut = cuts[pos % len(cuts)]
        for piece in follower.follow(memoryview(data)[pos : pos + cut]):
            ends += piece.is_last
            new_bytes += piece.new_bytes
        pos += cut
    assert (ends, new_bytes) == (len(sizes), len(data))


# --- what is made of it -----------------------------------------------------------------------------------


def test_latency_and_throttle_time_are_read_from_what_the_producer_prints() -> None:
    report = parse_report(PRODUCER_OUTPUT, PRODUCE)
    assert report.latency_ms == {"p50": 253, "p95": 8657, "p99": 8972, "max": 9028}
    assert (report.throttle_avg_ms, report.throttle_max_ms) == (10.269, 1015)


def test_throttle_time_is_read_from_what_the_consumer_prints() -> None:
    assert parse_report(CONSUMER_OUTPUT, FETCH) == ClientReport({}, 260.372, 1012)


@pytest.mark.parametrize(
    ("output", "api_key", "lacking"),
    [
        ("", PRODUCE, "no percentiles"),
        (PRODUCER_OUTPUT.replace("throttle-time-max", "x"), PRODUCE, "no metric produce-throttle-time-max"),
        (PRODUCER_OUTPUT, FETCH, "no metric fetch-throttle-time-avg"),
    ],
)
def test_a_report_that_lacks_something_is_refused_by_name(output: str, api_key: int, lacking: str) -> None:
    with pytest.raises(ValueError, match=lacking):
        parse_report(output, api_key)


def test_the_long_run_rate_is_that_of_whole_waves() -> None:
    wave = [8_000_000, 0, 0, 0]
    assert long_run_bytes_per_s([0, 0, 0, *wave, *wave, 8_000_000]) == 2_000_000


def test_a_short_pause_within_a_wave_does_not_end_it() -> None:
    wave = [9_000_000, 0, 1_000_000, 0, 0, 0, 0, 0, 0, 0]
    assert long_run_bytes_per_s([*wave, *wave, *wave, *wave, *wave[:3]]) == 1_000_000


def test_the_long_run_rate_without_waves_is_the_mean() -> None:
    assert long_run_bytes_per_s([1_000_000, 990_000, 1_010_000]) == 1_000_000
    assert long_run_bytes_per_s([0, 0, 0, 4_000_000]) == 1_000_000


def test_the_longest_standstill_is_the_longest_run_of_seconds_below_a_tenth_of_the_quota() -> None:
    assert longest_standstill_s([0, 0, 100_000, 99_999, 0, 0, 500_000, 0]) == 3
    assert longest_standstill_s(EVEN) == 0


def _lane(side: str, api_key: int, rates: Sequence[int]) -> Lane:
    lane = Lane(side, api_key, client_id(side, api_key), 50.0)
    for second, size_bytes in enumerate(rates):
        if size_bytes:
            lane.moved(52.0 + second, size_bytes)  # second 2 of the clock is the lane's first
    lane.told(53.0, 980)
    return lane


def _all_lanes() -> list[Lane]:
    return [
        _lane(side, api_key, {NATIVE: WAVE * 6, SLUICE: EVEN * 6}[side])
        for side in SIDES
        for api_key in KINDS
    ]


def _all_figures() -> list[LaneFigures]:
    reports = {PRODUCE: parse_report(PRODUCER_OUTPUT, PRODUCE), FETCH: parse_report(CONSUMER_OUTPUT, FETCH)}
    return [figures(lane, reports[lane.api_key], 60.0) for lane in _all_lanes()]


def test_figures_tell_waves_from_an_even_rate_of_the_same_mean() -> None:
    native, _, ours, _ = _all_figures()
    assert native.long_run_bytes_per_s == ours.long_run_bytes_per_s == 1_000_000
    assert (native.standstill_s, native.longest_standstill_s) == (52, 10)
    assert (ours.standstill_s, ours.even.cv) == (0, 0)
    assert native.even.longest_gap_s == 11


def test_the_closing_sentence_claims_what_the_figures_say() -> None:
    assert closing_sentence(_all_figures()) == (
        "Same clients, same quota of 1 MB/s: on the broker's own quota they stood still for up to 10 s at a "
        "stretch, and 99 % of the records were through within 9.0 s; through Sluice they never stood still "
        "for a second, and 99 % of the records were through within 9.0 s."
    )


# --- how it looks -----------------------------------------------------------------------------------------


def test_a_chart_has_the_quota_at_half_its_height_and_marks_what_is_above_it() -> None:
    assert chart([0, 1_000_000, 2_000_000, 11_000_000, 250_000], columns=6, rows=2) == ["  █▲  ", " ███▂ "]


def test_a_chart_shows_the_latest_seconds() -> None:
    assert chart([0, 0, 2_000_000], columns=2, rows=1) == [" █"]


def _shown(columns: int, lines: int, blocks: str = BLOCKS, *, now_s: float = 65.0) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=columns, height=lines, force_terminal=True, color_system=None)
    console.print(picture(_all_lanes(), now_s, 85.0, (columns, lines), blocks))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("columns", "lines"), [(200, 60), (120, 40), (80, 24), (79, 23), (72, 20), (71, 40), (40, 30), (24, 24)]
)
def test_the_picture_fits_the_terminal(columns: int, lines: int) -> None:
    shown = _shown(columns, lines)
    assert max(map(len, shown)) <= columns
    assert len(shown) < lines


def test_the_picture_says_what_is_whose_without_colours() -> None:
    text = "\n".join(_shown(120, 40))
    for words in ("produce, broker's own quota", "consume, through Sluice", "now 1.00", "at most 0.98 s"):
        assert words in text
    assert "at a standstill 57 of 62 s" in text
    assert "at a standstill 0 of 62 s" in text
    assert "\x1b" not in text


def test_a_terminal_without_blocks_gets_ascii_charts() -> None:
    text = "\n".join(_shown(120, 40, ASCII_BLOCKS))
    assert not set(text) & set(BLOCKS.strip())
    assert "#" in text


def test_a_client_that_is_through_is_shown_as_done_and_stands_still_no_longer() -> None:
    lane = _lane(NATIVE, PRODUCE, [*EVEN, *WAVE, 1_000_000])
    lane.has_ended = True
    out = io.StringIO()
    Console(file=out, width=120).print(picture([lane], 65.0, 85.0, (120, 40)))
    assert "done, mean 1.00 MB/s" in out.getvalue()
    assert "at a standstill 10 of 21 s" in out.getvalue()


def test_before_the_first_byte_the_picture_says_what_it_waits_for() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(picture(_lanes(), 3.0, 85.0, (80, 24)))
    assert "starting" in out.getvalue()


def test_without_a_terminal_there_is_one_line_for_each_second_and_no_escape_code() -> None:
    out = io.StringIO()
    lanes = _all_lanes()
    with LineScreen(Console(file=out, force_terminal=False)) as screen:
        for now_s in (0.5, 2.9, 3.1, 3.3, 5.2, 6.0):
            screen.update(lanes, now_s, 85.0)
        lanes[0].has_ended = True
        screen.update(lanes, 69.0, 85.0)
    lines = out.getvalue().splitlines()
    seconds = [line for line in lines if " of " in line]
    assert [int(line.split()[0]) for line in seconds] == list(range(1, 68))
    assert seconds[0].split()[3:] == ["11.00", "1.00", "0.00", "0.00"] * 2
    assert seconds[1].split()[3:] == ["0.00", "1.00", "0.98", "0.98"] * 2
    assert seconds[-1].split()[3:] == ["done", "0.00", "0.00", *("0.00 " * 4).split()]
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("columns", [100, 80, 72, 71, 50])
def test_the_closing_table_has_all_figures_on_any_terminal(columns: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=columns)
    console.print(*closing_tables(_all_figures(), columns), notes(), sep="\n")
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in out.getvalue()
    p99 = [line for line in lines if "latency p99" in line]
    assert " ".join(p99).count("8.97") == 2
    for label in ("long-run rate", "told to wait", "longest gap", "most in a row"):
        assert any(label in line for line in lines), label


# --- the end ----------------------------------------------------------------------------------------------


@pytest.fixture
def _in_the_foreground() -> Iterator[None]:
    """A test run in the background, or under nohup, ignores these signals, and so would the demo."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_in_the_foreground")
def test_ctrl_c_raises_once_and_never_again() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.signal_number == signal.SIGINT


@pytest.mark.usefixtures("_in_the_foreground")
def test_a_signal_during_a_deferred_block_waits_for_its_end() -> None:
    reached = []

    def start_something(interrupts: Interrupts) -> None:
        with interrupts.deferred():
            os.kill(os.getpid(), signal.SIGHUP)
            reached.append("the end")

    with Interrupts() as interrupts, pytest.raises(Interrupted):
        start_something(interrupts)
    assert reached


@pytest.mark.usefixtures("_in_the_foreground")
def test_cleaning_up_is_not_interrupted() -> None:
    with Interrupts() as interrupts:
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGINT)
        with interrupts.deferred():
            pass
        with pytest.raises(Interrupted):
            interrupts.check()


def test_the_handlers_from_before_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_time_too_short_to_measure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        demo.main(["--seconds", "20"])
    assert ended.value.code == 2
    assert "at least 26" in capsys.readouterr().err


def test_too_little_room_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "NEEDED_BYTES", 1 << 62)
    assert demo.main([]) == demo.FAILED
    assert "TMPDIR" in capsys.readouterr().err
