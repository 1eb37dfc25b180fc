"""The copy of the quota topic on disk: kept whole, read again, and refused where it is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.proxy.quota_store.topic_copy import Copied, QuotaCopy
from sluice.proxy.quota_store.topic_records import Stored
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.files.config_error import ConfigError

COPIED = Copied(
    {
        QuotaEntity("alice", DEFAULT): Stored({"producer_byte_rate": 5}, frozenset({"producer_byte_rate"})),
        QuotaEntity(ip="::1"): Stored({"connection_creation_rate": 9}),
    },
    bytes(range(16)),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "copy.json"
    QuotaCopy(file, "quotas").write(COPIED)
    assert QuotaCopy(file, "quotas").read() == COPIED
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_at_the_very_first_there_is_none(tmp_path: Path) -> None:
    assert QuotaCopy(tmp_path / "copy.json", "quotas").read() is None


@pytest.mark.parametrize("damage", ["cut", "changed", "other_version", "empty", "binary", "list"])
def test_one_that_is_damaged_is_moved_aside_and_not_believed(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "copy.json"
    QuotaCopy(file, "quotas").write(COPIED)
    text = file.read_bytes()
    outer = json.loads(text)
    file.write_bytes(
        {
            "cut": text[:-20],
            "changed": text.replace(b"alice", b"mallo"),
            "other_version": json.dumps({**outer, "version": 2}).encode(),
            "empty": b"",
            "binary": b"\xff\xfe",
            "list": b"[]",
        }[damage]
    )
    assert QuotaCopy(file, "quotas").read() is None
    assert not file.exists()
    assert (tmp_path / "copy.json.refused").exists()


def test_one_of_another_topic_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "copy.json"
    QuotaCopy(file, "quotas").write(COPIED)
    assert QuotaCopy(file, "other").read() is None


def test_a_place_where_none_can_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="copy_file"):
        QuotaCopy(tmp_path / "nowhere" / "copy.json", "quotas")
