"""What stands in the way of a night in its output folder is told before the night's work, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.recalibration.state.places import check_places


@pytest.mark.parametrize("name", ["state", "windows", "standing", "beats", "plans"])
def test_a_file_in_the_place_of_a_folder_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(OSError, match=rf"^{tmp_path}/{name}: is no folder; a night keeps one there: move it"):
        check_places(str(tmp_path))


@pytest.mark.parametrize("name", ["LATEST", ".lock", "peaks.json", "grants.json", "rolled_back.json"])
def test_a_folder_in_the_place_of_a_file_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match=rf"^{tmp_path}/{name}: is no file; a night keeps one there: move it"):
        check_places(str(tmp_path))


def test_what_nights_leave_links_and_nothing_at_all_are_fine(tmp_path: Path) -> None:
    check_places(str(tmp_path / "new"))
    check_places("s3://bucket/folder")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "LATEST").symlink_to(tmp_path / "nowhere")
    check_places(str(tmp_path))
    (tmp_path / "plans").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match=r"plans: is no folder"):
        check_places(str(tmp_path))
