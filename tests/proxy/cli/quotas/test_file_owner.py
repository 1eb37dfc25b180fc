"""A quota file that a command has changed belongs to whom it belonged to: the proxy of that user reads it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sluice.proxy.cli.quotas.edit import whom_of
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.config_error import QuotaFileError

FILE = "quotas:\n  - {user: alice, producer_byte_rate: 5}\n"
CHANGED = FILE.replace("5", "7")
SEVEN = {whom_of({"user": "alice"}): {"producer_byte_rate": 7.0}}
USER, GROUP = 65532, 65533
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user, as root alone may")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    file.chmod(0o640)
    return file


def refuse(*_: int) -> None:
    raise PermissionError(1, "Operation not permitted")


@only_root
@pytest.mark.parametrize(("user", "group"), [(USER, GROUP), (0, GROUP), (USER, 0)])
def test_a_file_that_root_changes_keeps_its_owner_group_and_rights(file: Path, user: int, group: int) -> None:
    os.chown(file, user, group)
    assert QuotaFilePlace(file).alter(SEVEN)
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (user, group, 0o640)
    assert file.read_text() == CHANGED


@only_root
def test_who_may_not_give_it_to_its_owner_is_told_so_and_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(file, USER, GROUP)
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(QuotaFileError) as refused:
        QuotaFilePlace(file).alter(SEVEN)
    told = str(refused.value)
    assert f"quotas.yaml: cannot be written: belongs to #{USER}:{GROUP}, and the new file would be " in told
    assert f"run the command as root, or as that user: sudo -u '#{USER}'" in told
    assert file.read_text() == FILE
    assert (file.stat().st_uid, os.listdir(file.parent)) == (USER, ["quotas.yaml"])


def test_who_changes_a_file_of_his_own_needs_no_right_to_give_files_away(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fchown", refuse)
    assert QuotaFilePlace(file).alter(SEVEN)
    assert file.read_text() == CHANGED
