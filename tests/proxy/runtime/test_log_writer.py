"""The log's lines behind a reader that stands still, is slow, or is gone."""

from __future__ import annotations

import fcntl
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from sluice.proxy.runtime import log_writer
from sluice.proxy.runtime.log_writer import LogWriter

PIPE_BYTES = 4096


class Pipe:
    """As small as a pipe can be, with a writer that writes to it."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.told: list[int] = []
        self.writer = LogWriter(self.write_fd, self.told.append)

    def read_all(self) -> bytes:
        """Everything that the writer has, read as it comes."""
        found = bytearray()
        os.set_blocking(self.read_fd, False)
        deadline_s = time.monotonic() + 30.0
        while True:
            is_all_in_pipe = not self.writer._waiting_bytes
            try:
                found += os.read(self.read_fd, 65536)
            except BlockingIOError:
                if is_all_in_pipe:
                    return bytes(found)
                assert time.monotonic() < deadline_s
                time.sleep(0.001)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.set_blocking(pipe.read_fd, True)
    os.close(pipe.read_fd)
    pipe.writer.finish(30.0)  # what it still has fails, and nobody writes to a number that becomes another's
    os.close(pipe.write_fd)


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30.0
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number:06d} {'x' * 86}\n" for number in range(first, last)]


def test_lines_come_whole_and_in_order(pipe: Pipe) -> None:
    lines = numbered(0, 200)
    for line in lines:
        pipe.writer.write(line)
    assert pipe.read_all().decode() == "".join(lines)
    assert (pipe.writer.dropped_lines, pipe.told) == (0, [])


@pytest.mark.parametrize("is_blocking", [True, False])
def test_who_logs_does_not_wait_for_a_reader(
    pipe: Pipe, is_blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 bytes a line: some in the pipe, a hundred in memory; what is dropped is told when it is read."""
    monkeypatch.setattr(log_writer, "MOST_WAITING_BYTES", 10_000)
    os.set_blocking(pipe.write_fd, is_blocking)
    lines = numbered(0, 1000)
    for line in lines:
        pipe.writer.write(line)
    pipe.writer.finish(0.01)  # nor does the end of the process
    dropped = pipe.writer.dropped_lines
    assert 850 <= dropped <= 900
    assert pipe.told == []

    found = pipe.read_all().decode().splitlines(keepends=True)
    assert found == sorted({*found} & {*lines})
    assert len(found) == 1000 - dropped
    until(lambda: bool(pipe.told))
    pipe.writer.write("behind it\n")
    assert pipe.read_all() == b"behind it\n"
    assert (pipe.told, pipe.writer.dropped_lines) == ([dropped], dropped)


def test_a_reader_that_is_gone_costs_lines_alone() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    writer = LogWriter(write_fd, lambda _: None)
    writer.write("a\n")
    writer.write("b\n")
    writer.finish(30.0)
    assert writer.dropped_lines == 2
    os.close(write_fd)


def test_a_line_that_a_full_disk_cuts_has_an_end_before_the_next(tmp_path: os.PathLike[str]) -> None:
    """A limit on a file's size fails as a full disk does: in the middle of a line."""
    path = os.path.join(tmp_path, "log")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    told: list[int] = []
    writer = LogWriter(descriptor, told.append)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        writer.write("0123456\n")
        writer.write("abcdefg\n")
        writer.finish(30.0)
        assert writer.dropped_lines == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.write("there is room again\n")
    until(lambda: bool(told))
    os.close(descriptor)
    with open(path, encoding="ascii") as file:
        assert file.read() == "0123456\nab\nthere is room again\n"
    assert told == [1]


def test_names_that_are_no_text_are_written(pipe: Pipe) -> None:
    pipe.writer.write("\ud800 ü\n")
    assert pipe.read_all() == "\\ud800 ü\n".encode()


def test_many_threads(pipe: Pipe) -> None:
    each = [[f"{number} {at}\n" for at in range(100)] for number in range(8)]
    threads = [threading.Thread(target=lambda some=some: [*map(pipe.writer.write, some)]) for some in each]
    for thread in threads:
        thread.start()
    found: list[str] = []
    while len(found) < 800:
        found += pipe.read_all().decode().splitlines(keepends=True)
    for thread in threads:
        thread.join()
    for number, lines in enumerate(each):
        assert [line for line in found if line.startswith(f"{number} ")] == lines
