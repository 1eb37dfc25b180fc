"""The access log's writer: nothing is lost that was taken, unless it says so; `offer` never waits."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sluice.proxy.access_log import columns as access_columns
from sluice.proxy.access_log.encoder import AccessEncoder
from sluice.proxy.access_log.sender import AccessSender
from sluice.proxy.access_log.sinks.directory import WRITING
from sluice.proxy.access_log.sinks.sink import LogFile
from sluice.proxy.access_log.writer import AccessWriter, safe_name
from sluice.quotas.files.config_error import ConfigError
from sluice.usage.access_record import REQUESTS, ROLLUP, Columns
from testkit.access_log.access_records import connection, flow
from testkit.access_log.access_rows import BEGIN_MS, clients, columns, files, read, read_all, row, rows
from testkit.access_log.access_windows import windows_of
from testkit.access_log.access_writers import settings_of, writing
from testkit.processes.waiting import wait_until


@pytest.fixture
def logs() -> Iterator[list[dict[str, object]]]:
    with capture_logs() as lines:
        yield lines  # type: ignore[misc]


def _of(lines: list[dict[str, object]], event: str) -> list[dict[str, object]]:
    return [line for line in lines if line["event"] == event]


def test_what_was_offered_is_there_when_it_is_closed(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        assert writer.offer(ROLLUP, columns(rows(500)))
        assert writer.offer(REQUESTS, columns([row(REQUESTS, why="slow")]))
    assert len(read_all(tmp_path)) == 501
    counters = writer.counters
    assert (counters.rows_written, counters.files_written, counters.rows_dropped) == (501, 2, 0)
    assert counters.bytes_written == sum(path.stat().st_size for path in files(tmp_path))
    assert (counters.rows_pending, counters.bytes_pending, counters.failures) == (0, 0, 0)
    assert list((tmp_path / WRITING).iterdir()) == []


def test_files_lie_in_the_hour_of_their_rows(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.offer(ROLLUP, columns([row(client_id="old"), row(at_ms=BEGIN_MS + 10_000, client_id="new")]))
    assert {str(path.parent.relative_to(tmp_path)) for path in files(tmp_path)} == {
        "rollup/date=2026-11-20/hour=10",
        "rollup/date=2026-11-20/hour=11",
    }
    assert {path.parent.name: clients(read_all(tmp_path)) for path in files(tmp_path)}


def test_a_file_is_closed_after_its_time_without_another_row(tmp_path: Path) -> None:
    with writing(tmp_path, rotate_s=0.2) as writer:
        writer.offer(ROLLUP, columns(rows(3)))
        wait_until(lambda: writer.counters.files_written == 1)
        assert clients(read_all(tmp_path)) == ["app-0", "app-1", "app-2"]
        writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.files_written == 2)
    assert len(read_all(tmp_path)) == 5


def test_a_file_is_closed_early_when_it_has_grown_large(tmp_path: Path) -> None:
    with writing(tmp_path, max_pending_bytes=400_000) as writer:
        writer.offer(ROLLUP, columns(rows(1000)))
        wait_until(lambda: writer.counters.files_written == 1)
        assert len(read_all(tmp_path)) == 1000


def test_proxies_of_one_name_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    with writing(tmp_path, rotate_s=0.0) as one, writing(tmp_path, rotate_s=0.0) as other:
        for _ in range(20):
            one.offer(ROLLUP, columns(rows(1)))
            other.offer(ROLLUP, columns(rows(1)))
    assert len(read_all(tmp_path)) == 40
    assert one.counters.files_written + other.counters.files_written == len(files(tmp_path))


def test_a_files_name_tells_which_proxy_wrote_it(tmp_path: Path) -> None:
    with writing(tmp_path, instance="../edge proxy/7") as writer:
        writer.offer(ROLLUP, columns(rows(1)))
    (file,) = files(tmp_path)
    assert file.name.startswith("edge_proxy_7-") or file.name.startswith("_edge_proxy_7-")


@pytest.mark.parametrize(
    ("instance", "name"),
    [
        ("kafka-0", "kafka-0"),
        (".hidden", "hidden"),
        ("_hidden", "hidden"),
        ("../..", "proxy"),
        ("", "proxy"),
        ("a/b\n*", "a_b__"),
        ("x" * 300, "x" * 64),
    ],
)
def test_whatever_a_proxy_is_called_its_files_are_no_hidden_ones(instance: str, name: str) -> None:
    assert safe_name(instance) == name


# Bounds ---------------------------------------------------------------------------------------------------


def test_beyond_max_pending_rows_it_refuses_counts_and_tells(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    writer = AccessWriter(settings_of(tmp_path, max_pending_rows=10))  # not started: nothing is encoded
    assert writer.offer(ROLLUP, columns(rows(8)))
    assert not writer.offer(ROLLUP, columns(rows(3)))
    assert writer.offer(ROLLUP, columns(rows(2)))
    assert not writer.offer(ROLLUP, columns(rows(1)))
    assert (writer.counters.rows_dropped, writer.counters.rows_pending) == (4, 10)
    writer.start()
    writer.close(20)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (10, 4)
    (line,) = _of(logs, "access_log_rows_dropped")
    assert (line["rows"], line["reason"]) == (4, "there was no room")


def test_beyond_max_pending_bytes_it_refuses_until_the_sink_takes_them(tmp_path: Path) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    with writing(folder, rotate_s=0.0, max_pending_bytes=40_000) as writer:
        folder.rename(tmp_path / "away")
        taken = 0
        while writer.offer(ROLLUP, columns(rows(1))):
            taken += 1
            wait_until(lambda: writer.counters.rows_pending == 0)
        assert writer.counters.bytes_pending >= 40_000
        (tmp_path / "away").rename(folder)
        wait_until(lambda: writer.counters.bytes_pending < 40_000 and writer.counters.rows_written == taken)
        assert writer.offer(ROLLUP, columns(rows(1)))
    assert len(read_all(folder)) == taken + 1


def test_losses_are_told_now_and_then_and_not_each_time(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    with writing(tmp_path, max_pending_rows=1) as writer:
        for _ in range(200):
            writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: bool(_of(logs, "access_log_rows_dropped")))
        for _ in range(200):
            writer.offer(ROLLUP, columns(rows(2)))
    told = _of(logs, "access_log_rows_dropped")
    assert len(told) <= 2
    assert sum(line["rows"] for line in told) == 800  # type: ignore[misc]


# Windows of the roll-up ---------------------------------------------------------------------------------


def test_windows_are_rows_of_the_hour_that_they_begin_in(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        for window in windows_of(*[["one", "two"]] * 3):
            assert writer.offer_window(window)
    assert {path.parent.name: clients(read(path)) for path in files(tmp_path)} == {
        "hour=10": ["one", "two"],
        "hour=11": ["one", "one", "two", "two"],
    }
    assert (writer.counters.rows_written, writer.counters.rows_pending) == (6, 0)


def test_a_window_that_there_is_no_room_for_is_counted_row_by_row(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    """It may have as many rows as requests; it is looked at before it is refused."""
    first, second, third = windows_of(*[["one", "two", "one", "one"]] * 3)
    writer = AccessWriter(settings_of(tmp_path, max_pending_rows=5))  # not started: nothing is encoded
    assert (first.most_rows, first.count_rows()) == (4, 2)
    assert writer.offer_window(first)
    assert not writer.offer_window(second), "4 at most and 2 would be 6"
    assert (writer.counters.rows_dropped, writer.counters.rows_pending) == (2, 4)
    writer.start()
    wait_until(lambda: writer.counters.rows_pending == 2)
    assert writer.offer_window(third)
    writer.close(20)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (4, 2)
    assert [row["window_start_ms"] for row in read_all(tmp_path)] == 2 * [BEGIN_MS] + 2 * [BEGIN_MS + 20_000]
    [line] = _of(logs, "access_log_rows_dropped")
    assert (line["rows"], line["reason"]) == (2, "there was no room")


def test_a_window_that_cannot_be_added_up_costs_no_other(tmp_path: Path) -> None:
    first, second, third = windows_of(*[["one", "two"]] * 3)
    second.chunks = [second.chunks[0]._replace(upstream_ms=b"")]
    with writing(tmp_path) as writer:
        for window in (first, second, third):
            writer.offer_window(window)
    assert (writer.counters.rows_written, writer.counters.rows_dropped, writer.counters.failures) == (4, 2, 1)
    assert {row["window_start_ms"] - BEGIN_MS for row in read_all(tmp_path)} == {0, 20_000}


def test_windows_that_are_left_at_the_end_are_counted_row_by_row(tmp_path: Path) -> None:
    writer = AccessWriter(settings_of(tmp_path))  # not started
    for window in windows_of(*[["one", "two", "one", "one"]] * 2):
        writer.offer_window(window)
    writer.close(5)
    assert writer.counters.rows_dropped == 4
    assert not writer.offer_window(windows_of(["late"])[0])
    assert writer.counters.rows_dropped == 5


def test_an_encoder_that_cannot_begin_begins_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fails_twice() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("no memory")

    monkeypatch.setattr(access_columns, "warm_up", fails_twice)
    with writing(tmp_path) as writer:
        wait_until(lambda: writer.counters.failures == 1)
        for window in windows_of(*([f"app-{number}"] for number in range(50))):
            assert writer.offer_window(window)
    assert (writer.counters.rows_written, writer.counters.rows_dropped, writer.counters.failures) == (
        50,
        0,
        2,
    )


def test_a_fault_of_the_encoder_loses_what_it_had_in_hand_counted_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[int] = []

    def fails_once(encoder: AccessEncoder) -> None:
        if not faults:
            faults.append(1)
            raise RuntimeError("boom")

    with capture_logs() as lines, writing(tmp_path) as writer:  # its threads tell of it in their own time
        windows = windows_of(*([f"app-{number}"] for number in range(50)))
        monkeypatch.setattr(AccessEncoder, "_finish_large_parts", fails_once)
        for window in windows[:1]:
            assert writer.offer_window(window)
        wait_until(lambda: bool(writer.counters.rows_dropped))
        for window in windows[1:]:
            assert writer.offer_window(window)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (49, 1)
    assert writer.counters.rows_pending == 0
    assert "boom" in writer.counters.last_error
    (failed,) = (line for line in lines if line["event"] == "task_failed")
    assert (failed["task"], failed["again_in_s"]) == ("access_log_encoder", 0.5)
    assert [line["rows"] for line in lines if line["event"] == "access_log_rows_dropped"] == [1]
    index = windows[0].index
    known = len(index.keys)
    assert index.keys[index.place(flow(connection("new"))).number][1] == "new"
    assert len(index.keys) == known, "numbers of what was lost are free again"


def test_a_fault_of_the_sender_loses_one_file_counted_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = AccessSender._write
    faults: list[int] = []

    def fails_once(sender: AccessSender, file: LogFile) -> bool:
        if not faults:
            faults.append(1)
            raise RuntimeError("boom")
        return write(sender, file)

    monkeypatch.setattr(AccessSender, "_write", fails_once)
    with writing(tmp_path, rotate_s=0.05) as writer:
        first, second = windows_of(["app-0"], ["app-1"])
        assert writer.offer_window(first)
        wait_until(lambda: writer.counters.rows_dropped == 1)
        assert writer.offer_window(second)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (1, 1)
    assert (writer.counters.rows_pending, writer.counters.bytes_pending) == (0, 0)


def test_names_come_again_in_the_next_file_and_are_forgotten_when_they_are_many(tmp_path: Path) -> None:
    """Files are closed when they have grown; texts of more than 12,500 B are let go of between them."""
    often = [f"often-{number}" for number in range(9)]
    windows = windows_of(*([*often, f"{number}-" * 80, f"{number}" * 9] for number in range(60)))
    with writing(tmp_path, max_pending_bytes=100_000) as writer:
        for window in windows:
            wait_until(lambda: writer.counters.bytes_pending < 50_000)
            assert writer.offer_window(window)
    assert len(files(tmp_path)) > 3
    found = Counter((row["window_start_ms"], row["client_id"]) for row in read_all(tmp_path))
    assert found == {
        (BEGIN_MS + number * 10_000, client_id): 1
        for number in range(60)
        for client_id in (*often, (f"{number}-" * 80)[:256], f"{number}" * 9)
    }


# What is no row -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "bad"),
    [
        (ROLLUP, [["no"], ["row"]]),
        (ROLLUP, columns([row(user=7)])),
        (ROLLUP, [*columns([row()])[:-1], []]),
        (ROLLUP, columns([row(at_ms=10**18)])),
        ("no_table", columns(rows(1))),
    ],
)
def test_what_is_no_row_is_dropped_and_what_follows_is_written(
    tmp_path: Path, table: str, bad: Columns
) -> None:
    with writing(tmp_path) as writer:
        writer.offer(table, bad)
        writer.offer(ROLLUP, columns(rows(2)))
    counters = writer.counters
    assert (counters.rows_written, counters.rows_dropped, counters.failures) == (2, 1, 1)
    assert counters.last_error.startswith("BadRows")
    assert clients(read_all(tmp_path)) == ["app-0", "app-1"]


# Without pyarrow, and before it ---------------------------------------------------------------------------


def test_without_pyarrow_the_configuration_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"requirements/image.txt .* pip install '\.\[access-log\]'"):
        AccessWriter(settings_of(tmp_path))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        AccessWriter(settings_of(tmp_path / "nowhere"))


def test_pyarrow_is_not_imported_before_the_writer_starts(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from testkit.access_log.access_writers import settings_of\n"
        "from sluice.proxy.access_log.writer import AccessWriter\n"
        f"writer = AccessWriter(settings_of(Path({str(tmp_path)!r})))\n"
        "assert 'pyarrow' not in sys.modules\n"
        "writer.start(); assert writer.ready.wait(60); assert 'pyarrow' in sys.modules\n"
        "writer.close(10)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=Path(__file__).parents[3])


# Closing --------------------------------------------------------------------------------------------------


def test_after_it_is_closed_it_refuses(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        pass
    assert not writer.offer(ROLLUP, columns(rows(2)))
    assert writer.counters.rows_dropped == 2


def test_closed_without_having_been_started_it_tells_what_is_lost(tmp_path: Path) -> None:
    writer = AccessWriter(settings_of(tmp_path))
    writer.offer(ROLLUP, columns(rows(2)))
    writer.close(5)
    assert writer.counters.rows_dropped == 2


def test_a_sink_that_fails_does_not_keep_it_from_ending(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    with writing(folder) as writer:
        writer.offer(ROLLUP, columns(rows(6)))
        folder.rename(tmp_path / "away")
        writer.close(0.5)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (0, 6)
    (line,) = _of(logs, "access_log_rows_dropped")
    assert line["rows"] == 6
