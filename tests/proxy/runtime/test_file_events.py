"""FileEvents: which folders tell of a file, and where the kernel is not to be relied upon."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sluice.proxy.runtime import file_events
from sluice.proxy.runtime.file_events import FileEvents, are_local, folders_of

MOUNT = "36 35 {device} / {point} rw,relatime shared:1 master:2 - {type} source rw\n"


def mountinfo(folder: Path, kind: str) -> str:
    device = folder.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    return MOUNT.format(device="0:99999", point="/else", type="nfs4") + MOUNT.format(
        device=numbers, point=folder, type=kind
    )


def test_the_folder_of_each_link_on_the_way_and_of_the_file_tells(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "real" / "sub" / "f").touch()
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "..data").symlink_to("../real")
    (tmp_path / "mount" / "f").symlink_to("..data/sub/f")
    (tmp_path / "absolute").symlink_to(tmp_path / "mount")

    assert [Path(each).resolve() for each in folders_of(tmp_path / "absolute" / "f")] == [
        tmp_path, tmp_path / "mount", tmp_path / "mount", tmp_path / "real" / "sub"
    ]  # fmt: skip
    assert folders_of(tmp_path / "real" / "sub" / "f") == [str(tmp_path / "real" / "sub")]


def test_a_file_that_is_not_there_is_told_by_its_folder_and_no_folder_by_nothing(tmp_path: Path) -> None:
    assert folders_of(tmp_path / "missing") == [str(tmp_path)]
    assert folders_of(tmp_path / "missing" / "f") == []


def test_links_in_a_ring_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert set(folders_of(tmp_path / "a")) == {str(tmp_path)}
    assert folders_of(tmp_path / "a" / "f")[0] == str(tmp_path)


@pytest.mark.parametrize(
    ("kind", "is_local"),
    [("ext4", True), ("overlay", True), ("tmpfs", True), ("nfs4", False), ("fuse.s3fs", False)],
)
def test_only_file_systems_that_no_other_machine_changes_are_local(
    tmp_path: Path, kind: str, is_local: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(mountinfo(tmp_path, kind))
    assert are_local([str(tmp_path)], mounts) is is_local
    assert not are_local([str(tmp_path), str(tmp_path / "missing")], mounts)
    assert not are_local([], mounts)


@pytest.mark.parametrize("text", ["", "36 35 x:y / / rw - ext4 a rw\n", "36 35 8:1 / / rw\n"])
def test_a_table_of_mounts_that_nobody_can_read_makes_nothing_local(tmp_path: Path, text: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(text)
    assert not are_local([str(tmp_path)], mounts)
    assert not are_local([str(tmp_path)], tmp_path / "none")


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileEvents]:
    monkeypatch.setattr(file_events, "are_local", lambda _folders: True)
    (tmp_path / "f").touch()
    made = FileEvents([tmp_path / "f"])
    yield made
    made.close()


def without_inotify() -> object:
    return SimpleNamespace()


def with_none_left() -> object:
    return SimpleNamespace(inotify_init1=lambda _flags: -1)


def with_no_watch_left() -> object:
    real = ctypes.CDLL(None)
    return SimpleNamespace(inotify_init1=real.inotify_init1, inotify_add_watch=lambda *_: -1)


@pytest.mark.parametrize("libc", [without_inotify, with_none_left, with_no_watch_left])
def test_where_inotify_is_not_to_be_had_nobody_relies_on_it(
    events: FileEvents, monkeypatch: pytest.MonkeyPatch, libc: Callable[[], object]
) -> None:
    found = libc()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: found)
    assert not events.follow()
    events.wait(0.001)
    events.drain()


def test_the_wait_ends_when_something_happens_and_what_is_drained_is_forgotten(
    events: FileEvents, tmp_path: Path
) -> None:
    assert events.follow()
    events.wait(0.001)
    for _ in range(3):
        (tmp_path / "f").write_text("x")
    events.wait(30.0)
    events.drain()
    (tmp_path / "f").chmod(0o600)
    events.wait(30.0)


def test_the_end_ends_the_wait_and_nobody_writes_into_a_closed_one(tmp_path: Path) -> None:
    events = FileEvents([tmp_path / "f"])
    events.end()
    events.wait(30.0)
    events.close()
    others = os.pipe()
    events.end()
    os.set_blocking(others[0], False)
    with pytest.raises(BlockingIOError):
        os.read(others[0], 1)
    for other in others:
        os.close(other)
