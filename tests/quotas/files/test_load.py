"""What is read as a file: regular ones up to a size; for a command that a person waits for also a pipe."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.load import read_bytes, read_given, read_text


def test_a_file_is_read_up_to_its_limit_and_not_beyond(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert read_bytes(file, 5) == b"12345"
    with pytest.raises(OSError, match="has more than 4 bytes"):
        read_bytes(file, 4)


@pytest.mark.parametrize(("path", "why"), [("/dev/zero", "not a regular file"), ("/tmp", "is a directory")])
def test_what_is_no_regular_file_is_not_read(path: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{path}: cannot read the quota file: {why}"):
        read_text(Path(path), "quota")


def test_a_folder_in_its_place_costs_no_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            read_bytes(Path("/tmp"), 1)
    assert set(os.listdir("/proc/self/fd")) <= before, "threads of earlier tests may close some"


def test_line_ends_are_those_of_text(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"a\r\nb\rc\n")
    assert read_text(file, "x") == "a\nb\nc\n"


def test_a_command_takes_a_pipe(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_text, args=("quotas: []\n",))
    writer.start()
    assert read_given(fifo, "given") == "quotas: []\n"
    writer.join()
    with pytest.raises(ConfigError, match="no such file"):
        read_given(tmp_path / "none", "given")


def test_a_pipe_is_read_up_to_its_limit_and_what_has_more_is_refused(tmp_path: Path) -> None:
    """Cut in silence, the limits behind the cut would be taken out."""
    for text, is_taken in (("a: 1\n", True), ("a: 1\nb: 2\n", False)):
        fifo = tmp_path / f"fifo-{is_taken}"
        os.mkfifo(fifo)
        writer = threading.Thread(target=fifo.write_text, args=(text,))
        writer.start()
        if is_taken:
            assert read_given(fifo, "given", 5) == text
        else:
            with pytest.raises(
                ConfigError, match=f"{fifo}: cannot read the given file: has more than 5 bytes"
            ):
                read_given(fifo, "given", 5)
        writer.join()
