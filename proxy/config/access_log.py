"""The section `access_log` of the configuration (docs/access-log.md)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from sluice.proxy.config.options import NO_BLANK, NO_BOOL, File, Options, Text
from sluice.proxy.config.quotas import TopicOptions

_SINKS = ("directory", "bucket", "topic")


class AccessLogDirectoryOptions(Options):
    """Files below a folder: a volume, or what lasts as long as the pod."""

    path: File = Field(description="The folder; it must be there.")


class AccessLogBucketOptions(Options):
    """Objects in S3, or in what speaks like it."""

    bucket: Text = Field(description="The bucket; it must be there.")
    prefix: str = Field(default="", description="Before every object's name, without slashes around it.")
    endpoint: Text | None = Field(
        default=None, description="host:port or URL of another storage than AWS (MinIO, Ceph, …)."
    )
    region: Text | None = Field(default=None, description="Of the bucket, where it cannot be found out.")
    credentials_file: File | None = Field(
        default=None,
        description="In the form of ~/.aws/credentials; if left out, AWS' own chain: environment, files, web "
        "identity.",
    )
    profile: Text = Field(default="default", description="Section of that file.")
    ca_file: File | None = Field(
        default=None, description="PEM: the CA of the endpoint's certificate; if left out, the machine's."
    )


class AccessLogTopicOptions(TopicOptions):
    """Records of a Kafka topic, each of them a whole Parquet file."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$"), NO_BLANK] = Field(
        default="__sluice_access_log", description="The topic; made if it is missing."
    )
    partitions: Annotated[int, Field(ge=1, le=10_000), NO_BOOL] = Field(
        default=8, description="Of the topic when it is made."
    )
    retention_s: Annotated[float, Field(ge=3600, le=315_360_000), NO_BOOL] = Field(
        default=604_800.0, description="Of the topic when it is made; at least until the job has read it."
    )


class AccessLogOptions(Options):
    """What was asked, by whom, and what became of it (docs/access-log.md); one section says where it goes."""

    directory: AccessLogDirectoryOptions | None = Field(default=None, description="Files below a folder.")
    bucket: AccessLogBucketOptions | None = Field(default=None, description="Objects in S3 and its like.")
    topic: AccessLogTopicOptions | None = Field(default=None, description="Records of a Kafka topic.")
    instance: Text | None = Field(
        default=None,
        description="This proxy's name in the rows and the files' names, one for each process; if left out "
        "the host's name, which in Kubernetes is the pod's.",
    )
    sample_share: Annotated[float, Field(ge=0, le=1), NO_BOOL] = Field(
        default=0.01,
        description="Share of the requests that get a row of their own without a reason; each row then "
        "stands for 1 ÷ share.",
    )
    slow_s: Annotated[float, Field(gt=0, le=86_400), NO_BOOL] = Field(
        default=1.0, description="A request that was answered no sooner gets a row of its own."
    )
    max_keys: Annotated[int, Field(ge=10, le=1_000_000), NO_BOOL] = Field(
        default=50_000,
        description="Rows of a 10-second window at most, half as many of one user, at 0.7 kB each; what is "
        "beyond is added up in one row of the class `other`.",
    )
    max_request_rows: Annotated[int, Field(ge=0, le=1_000_000), NO_BOOL] = Field(
        default=10_000, description="Rows of single requests in such a window at most; others are dropped."
    )
    rotate_s: Annotated[float, Field(ge=1, le=3600), NO_BOOL] = Field(
        default=60.0, description="How long a file is filled, and what a SIGKILL may lose."
    )
    journal_folder: File | None = Field(
        default=None,
        description="Where it is noted what is not yet written, so that the next start of this instance can "
        "tell what a SIGKILL lost: a folder that outlives the process, made if it is not there. If left "
        "out, in the folder of directory; with bucket and topic nowhere.",
    )
    max_pending_rows: Annotated[int, Field(ge=1000, le=100_000_000), NO_BOOL] = Field(
        default=500_000, description="Rows that wait to be encoded; beyond it rows are dropped and counted."
    )
    max_pending_bytes: Annotated[int, Field(ge=1_048_576, le=2**40), NO_BOOL] = Field(
        default=67_108_864,
        description="Bytes of finished files that wait for a slow or failing sink; beyond it rows are "
        "dropped and counted.",
    )
    close_deadline_s: Annotated[float, Field(ge=0, le=300), NO_BOOL] = Field(
        default=4.0,
        description="Longest that the end of the process waits for what is left to be written; keep it and "
        "drain.deadline_s together below the pod's terminationGracePeriodSeconds.",
    )


def access_log_contradictions(
    options: AccessLogOptions | None,
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is fine by itself but not together: (path of the key to change, what is wrong and the remedy)."""
    if options is None:
        return
    named = [name for name in _SINKS if getattr(options, name) is not None]
    if not named:
        yield ("access_log",), "must say where it goes: one of directory, bucket, topic"
    for name in named[1:]:
        yield ("access_log", name), f"{named[0]} is given too; there is one place for the log"


def instance_name(options: AccessLogOptions) -> str:
    """The proxy's, in each row."""
    return options.instance or socket.gethostname()
