"""The access log in S3, or in what speaks like it, through pyarrow's file system.

An object is put with one request, and so is there as a whole or not at all, without a temporary name.
Credentials are read when a connection is made, and again after every failure, so that they may change while
the proxy runs; they are in no log line and in no setting.
"""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any, Final

from sluice.proxy.access_log.sinks.sink import BucketSettings, LogFile, SinkError
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_bytes

_ATTEMPTS: Final = 2
"""of one write; the sender has its own pauses, in which the process can end"""
_ONE_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""S3 has no parts of an upload smaller than 5 MiB: what is smaller is sent when the stream is closed, by one
PUT. An upload in parts could not be abandoned: pyarrow completes it even after a failure."""
_ANY_REGION: Final = "us-east-1"
"""of a storage that is not AWS: one has to be named in signatures"""
_KEYS: Final = {
    "aws_access_key_id": "access_key",
    "aws_secret_access_key": "secret_key",
    "aws_session_token": "session_token",
}


class BucketSink:
    """Puts the files of one process into a bucket."""

    max_file_bytes = _ONE_REQUEST_BYTES

    def __init__(self, settings: BucketSettings) -> None:
        """Raises ConfigError for a file that cannot be used. Connects to nothing."""
        self._settings = settings
        self._storage: Any = None
        problems = []
        if settings.ca_file is not None and not settings.ca_file.is_file():
            problems.append(Problem(f"there is no file {settings.ca_file}", path="access_log.bucket.ca_file"))
        try:
            self._credentials()
        except SinkError as error:
            problems.append(Problem(str(error), path="access_log.bucket.credentials_file"))
        if problems:
            raise ConfigError(problems)

    def write(self, file: LogFile) -> None:
        """Returns when the storage has confirmed it. Raises SinkError, OSError."""
        settings = self._settings
        parts = (settings.bucket, settings.prefix.strip("/"), file.folder, file.name)
        try:
            if self._storage is None:
                self._storage = self._connected()
            with self._storage.open_output_stream("/".join(filter(None, parts))) as stream:
                stream.write(file.data)
        except Exception:
            self._storage = None
            raise

    def close(self) -> None:
        """Its connections end with the object."""
        self._storage = None

    def _connected(self) -> Any:
        from pyarrow import fs

        settings = self._settings
        scheme, _, endpoint = (settings.endpoint or "").rpartition("://")
        options: dict[str, Any] = {
            "endpoint_override": endpoint or None,
            "scheme": scheme or "https",
            "region": settings.region or (_ANY_REGION if endpoint else None),
            "request_timeout": settings.request_timeout_s,
            "connect_timeout": settings.connect_timeout_s,
            "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            "tls_ca_file_path": None if settings.ca_file is None else str(settings.ca_file),
            "allow_delayed_open": True,
            "background_writes": False,
        }
        return fs.S3FileSystem(**options, **self._credentials())

    def _credentials(self) -> dict[str, str]:
        """Credentials of the file; empty: AWS' own chain finds them. Raises SinkError, which quotes none of
        it."""
        path = self._settings.credentials_file
        return {} if path is None else _read(path, self._settings.profile)


def _read(path: Path, profile: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_bytes(path, MAX_SMALL_BYTES).decode("utf-8"))
    except OSError as error:
        raise SinkError(f"{path} cannot be read: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError):
        raise SinkError(f"{path} is not in the form of ~/.aws/credentials") from None
    if not parser.has_section(profile):
        raise SinkError(f"{path} has no section [{profile}]")
    found = {ours: parser[profile][key] for key, ours in _KEYS.items() if parser[profile].get(key)}
    if not {"access_key", "secret_key"} <= found.keys():
        raise SinkError(f"{path} [{profile}] lacks aws_access_key_id or aws_secret_access_key")
    return found
