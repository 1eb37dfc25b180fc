"""Where the files of the access log go: what every sink takes, and how it says that it could not.

A sink is called by one thread that may wait: it blocks as long as its storage does, and never longer than its
own timeouts. Settings of the three sinks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from sluice.proxy.config.quotas import TopicOptions

UNBOUNDED_BYTES: Final = 1 << 40


class SinkError(Exception):
    """It could not be written now; the same may work later. Says why, without secrets."""


class SinkRefuses(Exception):
    """It will never be written as it is: too large for the topic, say."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One finished Parquet file; as a whole or not at all is how a sink shows it to readers."""

    table: str
    folder: str
    """below the sink's root: TABLE/date=YYYY-MM-DD/hour=HH"""
    name: str
    """unique among all proxies; ends in .parquet"""
    begin_ms: int
    """of the first row's window"""
    rows: int
    data: memoryview


class Sink(Protocol):
    """One place for finished files."""

    max_file_bytes: int
    """what is larger is cut into several files before it comes"""

    def write(self, file: LogFile) -> None:
        """Returns when it is as safe as the sink can make it. Raises SinkError, SinkRefuses, OSError."""
        ...

    def close(self) -> None:
        """Let go of connections. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Files below a folder that is there: a volume, as a rule."""

    path: Path


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """Objects in S3 or what speaks like it. Credentials never stand here, so that nothing can print them."""

    bucket: str
    prefix: str = ""
    """before every object's name, without slashes around it"""
    endpoint: str | None = None
    """host:port or URL of another storage than AWS"""
    region: str | None = None
    credentials_file: Path | None = None
    """in the form of ~/.aws/credentials; None: AWS' own chain of environment, files and web identity"""
    profile: str = "default"
    """section of that file"""
    ca_file: Path | None = None
    """of the storage's certificate; None: the machine's"""
    request_timeout_s: float = 30.0
    """in which not a byte moved; there are two attempts at a time"""
    connect_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Records of a Kafka topic, each a whole Parquet file."""

    cluster: TopicOptions
    """the way to the brokers, and the topic's name"""
    partitions: int = 8
    """of the topic, when it is made"""
    retention_s: float = 7 * 86_400.0
    """of the topic, when it is made"""
    max_record_bytes: int = 1_000_000
    """a little below the brokers' usual message.max.bytes of 1,048,588"""


SinkSettings: TypeAlias = DirectorySettings | BucketSettings | TopicSettings
