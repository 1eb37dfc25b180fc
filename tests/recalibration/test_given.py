"""Quota file and settings from an object store, with the messages of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.quotas.files.config_error import ConfigError
from sluice.recalibration.given import quotas_at, settings_at
from testkit.spark.object_store import ObjectStore

QUOTAS = "quotas:\n  - user: alice\n    producer_byte_rate: 1000\n"


@pytest.fixture(autouse=True)
def environ(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)


def uploaded(store: ObjectStore, tmp_path: Path, content: bytes) -> str:
    file = tmp_path / "file.yaml"
    file.write_bytes(content)
    return store.upload(file, "given/file.yaml")


def test_quotas_and_settings_are_the_same_from_an_object_as_from_a_file(
    store: ObjectStore, tmp_path: Path
) -> None:
    uri = uploaded(store, tmp_path, QUOTAS.replace("\n", "\r\n").encode())
    assert quotas_at(uri).entries == quotas_at(str(tmp_path / "file.yaml")).entries
    uri = uploaded(store, tmp_path, b"policy: {headroom: 1.5}\n")
    assert settings_at(uri) == settings_at(str(tmp_path / "file.yaml"))
    assert settings_at(uri).policy.headroom == 1.5


def test_what_is_wrong_in_an_object_is_told_with_its_uri_and_line(store: ObjectStore, tmp_path: Path) -> None:
    uri = uploaded(store, tmp_path, QUOTAS.replace("byte", "bite").encode())
    with pytest.raises(ConfigError, match=r"s3://night/given/file.yaml:3: quotas\[0\].producer_bite_rate"):
        quotas_at(uri)
    uri = uploaded(store, tmp_path, b"policy: {headrom: 1}")
    with pytest.raises(ConfigError, match=r"s3://night/given/file.yaml:1: policy.headrom: unknown key"):
        settings_at(uri)


@pytest.mark.parametrize("read", [quotas_at, settings_at])
def test_an_object_that_is_not_there_or_no_text_is_a_mistake_of_the_configuration(
    read: object, store: ObjectStore, tmp_path: Path
) -> None:
    assert callable(read)
    with pytest.raises(
        ConfigError, match=r"s3://night/given/none.yaml: cannot read the (quota|settings) file"
    ):
        read("s3://night/given/none.yaml")
    with pytest.raises(ConfigError, match=r"file.yaml: not UTF-8"):
        read(uploaded(store, tmp_path, b"\xff\xfe"))
