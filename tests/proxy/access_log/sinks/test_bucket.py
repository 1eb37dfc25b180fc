"""The access log in S3: whole objects, whatever the storage does; and nothing tells the credentials."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.access_log.sinks.bucket import BucketSink
from sluice.proxy.access_log.sinks.sink import BucketSettings
from sluice.proxy.access_log.writer import AccessWriter
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.load import MAX_SMALL_BYTES
from sluice.usage.access_record import ROLLUP
from testkit.access_log.access_rows import clients, columns, read, rows
from testkit.access_log.access_writers import settings_of, writing
from testkit.access_log.fake_s3 import FakeS3
from testkit.processes.waiting import wait_until

SECRET = "wJalrXUtnFEMI0K7MDENG0bPxRfiCY"
FOLDER = "logs/team/a/rollup/date=2026-11-20/hour=10/"


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as storage:
        yield storage


@pytest.fixture(autouse=True)
def _no_other_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)


def credentials_file(folder: Path, access_key: str = "KEY1") -> Path:
    file = folder / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {access_key}\naws_secret_access_key = {SECRET}\n")
    return file


def bucket(s3: FakeS3, folder: Path, **more: Any) -> BucketSettings:
    options: dict[str, Any] = {"prefix": "/team/a/", "credentials_file": credentials_file(folder)}
    return BucketSettings(bucket="logs", endpoint=s3.endpoint, **{**options, **more})


def test_rows_come_as_objects_in_the_partition_of_their_hour(s3: FakeS3, tmp_path: Path) -> None:
    with writing(bucket(s3, tmp_path)) as writer:
        writer.offer(ROLLUP, columns(rows(300)))
    ((key, content),) = s3.objects.items()
    assert key.startswith(f"{FOLDER}proxy-1-")
    assert key.endswith(".parquet")
    assert len(read(content)) == 300
    assert (writer.counters.rows_written, writer.counters.bytes_written) == (300, len(content))
    assert set(s3.access_keys) == {"KEY1"}


def test_credentials_of_the_environment_are_found(
    s3: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with writing(bucket(s3, tmp_path, credentials_file=None)) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
    assert set(s3.access_keys) == {"ENVKEY"}
    assert len(s3.objects) == 1


@pytest.mark.parametrize(
    ("status", "told"), [(403, "ACCESS_DENIED"), (503, "SLOW_DOWN"), (0, "NETWORK_CONNECTION")]
)
def test_a_storage_that_refuses_costs_nothing_once_it_takes_them(
    s3: FakeS3, tmp_path: Path, status: int, told: str
) -> None:
    s3.status = status
    with writing(bucket(s3, tmp_path), rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.failures > 0)
        assert told in writer.counters.last_error
        assert s3.objects == {}
        s3.status = 200
        wait_until(lambda: writer.counters.rows_written == 2)
    assert writer.counters.rows_dropped == 0
    (content,) = s3.objects.values()
    assert clients(read(content)) == ["app-0", "app-1"]


def test_a_storage_that_is_down_is_waited_for(tmp_path: Path) -> None:
    with FakeS3() as gone:
        settings = bucket(gone, tmp_path)
    with writing(settings, rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.failures > 0)
        assert "NETWORK_CONNECTION" in writer.counters.last_error
        writer.close(0.5)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (0, 2)


def test_new_credentials_are_taken_over_after_a_refusal(s3: FakeS3, tmp_path: Path) -> None:
    with writing(bucket(s3, tmp_path), rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: writer.counters.rows_written == 1)
        s3.status = 403
        credentials_file(tmp_path, "KEY2")
        writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: writer.counters.failures > 0)
        s3.status = 200
        wait_until(lambda: writer.counters.rows_written == 2)
    assert s3.access_keys[-1] == "KEY2"


def test_a_storage_that_hangs_holds_up_nobody_but_its_own_thread(s3: FakeS3, tmp_path: Path) -> None:
    s3.answers.clear()
    with writing(bucket(s3, tmp_path), rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
        assert s3.waiting.wait(20)
        for _ in range(10):
            assert writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: writer.counters.rows_pending == 0)  # the encoder goes on
        assert writer.counters.bytes_pending > 0
        assert writer.counters.rows_written == 0
        s3.answers.set()
        wait_until(lambda: writer.counters.rows_written == 11)


def test_the_proxy_ends_though_the_storage_hangs(s3: FakeS3, tmp_path: Path) -> None:
    s3.answers.clear()
    writer = AccessWriter(settings_of(bucket(s3, tmp_path), rotate_s=0.0))
    writer.start()
    writer.offer(ROLLUP, columns(rows(3)))
    assert s3.waiting.wait(20)
    writer.close(0.2)
    assert writer.counters.rows_dropped == 3


def test_no_log_line_error_or_setting_tells_the_credentials(s3: FakeS3, tmp_path: Path) -> None:
    s3.status = 403
    settings = bucket(s3, tmp_path)
    with capture_logs() as logs, writing(settings, rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.failures > 0)
        writer.close(0.3)
    assert logs
    for told in (str(logs), repr(writer.counters), repr(settings)):
        assert SECRET not in told
        assert "KEY1" not in told


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        ("not ini", "is not in the form of"),
        ("[other]\n", r"has no section \[default\]"),
        (f"[default]\naws_secret_access_key={SECRET}\n", "lacks aws_access_key_id"),
        (f"[default]\n{SECRET}\n", "is not in the form of"),
    ],
)
def test_a_file_of_credentials_that_cannot_be_used_is_refused_and_not_quoted(
    s3: FakeS3, tmp_path: Path, text: str | None, problem: str
) -> None:
    settings = bucket(s3, tmp_path)
    assert settings.credentials_file is not None
    if text is None:
        settings.credentials_file.unlink()
    else:
        settings.credentials_file.write_text(text)
    with pytest.raises(ConfigError, match=problem) as raised:
        AccessWriter(settings_of(settings))
    assert SECRET not in str(raised.value)


def test_a_ca_file_that_is_not_there_is_refused(s3: FakeS3, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        AccessWriter(settings_of(bucket(s3, tmp_path, ca_file=tmp_path / "none.pem")))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.write_bytes(bytes(MAX_SMALL_BYTES + 1)), "has more than"),
    ],
    ids=["fifo", "zero", "large"],
)
def test_credentials_that_hang_or_grow_are_told(
    tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(tmp_path / "damaged")
    with pytest.raises(ConfigError, match=why):
        BucketSink(BucketSettings("logs", "", None, None, tmp_path / "damaged", "default", None))
