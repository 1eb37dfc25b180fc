"""Files that commands write whole, and who waits for whom."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from sluice.proxy.cli.whole_file import alone_in, replace_whole


def test_of_two_that_write_a_file_at_once_each_writes_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing locks: they shared the name of what was not whole yet, and one found it gone."""
    file = tmp_path / "rollback.json"
    fsync = os.fsync

    def other_first(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        fsync(handle)
        replace_whole(file, "theirs, which is longer\n")

    monkeypatch.setattr(os, "fsync", other_first)
    replace_whole(file, "ours\n")
    assert file.read_text() == "ours\n"
    assert list(tmp_path.iterdir()) == [file]


def test_who_is_stopped_while_he_writes_leaves_nothing_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_handle: int) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "quotas.yaml"
    file.write_text("before\n")
    monkeypatch.setattr(os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        replace_whole(file, "after\n")
    assert (os.listdir(tmp_path), file.read_text()) == (["quotas.yaml"], "before\n")


def test_a_folder_by_two_names_is_locked_once_and_several_in_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was locked twice would wait for itself, and two commands in two orders for each other."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    (tmp_path / "link").symlink_to(folders[0])
    taken: list[int] = []
    flock = fcntl.flock

    def noted(handle: int, how: int) -> None:
        taken.append(os.fstat(handle).st_ino)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", noted)
    for order in (folders, folders[::-1]):
        with alone_in(dict.fromkeys((*order, tmp_path / "link", tmp_path / "missing"), "it")):
            pass
    assert taken == 2 * sorted(folder.stat().st_ino for folder in folders)
