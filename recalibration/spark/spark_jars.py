"""The jars that Spark lacks for S3A: pinned, and fetched when an image is built (`sluice spark-jars FOLDER`).

SLUICE_SPARK_JARS=FOLDER (session.py) then puts them on Spark's class path; a night fetches nothing.

hadoop-aws asks for the AWS SDK as one bundle of 686 MB. Those modules of it that S3A calls, with what they
need beyond Spark's own jars, are a fiftieth of that, and stand in for it. Without the bundle's shaded copies
S3A cannot be told to use a native TLS library; the JVM's own serves. There is no Kafka source: its jar for
this Spark is not published.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from sluice.recalibration.spark.maven_jars import fetch, is_right, read_lock, write_lock_of

LOCK_FILE: Final = Path(__file__).with_name("spark_jars.lock")
HADOOP: Final = "3.5.0"
"""that of pyspark 4.3.0's jars"""
AWS_SDK: Final = "2.35.4"
"""what that hadoop-aws was built with"""
_MODULES: Final = [
    "annotations",
    "apache-client",
    "arns",
    "auth",
    "aws-core",
    "aws-query-protocol",
    "aws-xml-protocol",
    "checksums",
    "checksums-spi",
    "crt-core",
    "endpoints-spi",
    "http-auth",
    "http-auth-aws",
    "http-auth-aws-eventstream",
    "http-auth-spi",
    "http-client-spi",
    "identity-spi",
    "json-utils",
    "metrics-spi",
    "netty-nio-client",
    "profiles",
    "protocol-core",
    "regions",
    "retries",
    "retries-spi",
    "s3",
    "s3-transfer-manager",
    "sdk-core",
    "sts",
    "third-party-jackson-core",
    "utils",
    "utils-lite",
]
COORDINATES: Final = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    *(f"software.amazon.awssdk:{module}:{AWS_SDK}" for module in _MODULES),
    "software.amazon.eventstream:eventstream:1.0.1",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    "org.reactivestreams:reactive-streams:1.0.4",
)
_HEADER: Final = f"""\
# The jars that Spark lacks for S3A (Hadoop {HADOOP}).
# Maven coordinate, SHA-256, bytes. Written by `sluice spark-jars --lock`; each download is checked.
"""


def fetch_jars(folder: Path) -> int:
    """Put every jar of the lock file into `folder`; those that are there and right stay. Returns how many.

    Raises JarError if one cannot be had, or is not what the lock file says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jars = read_lock(LOCK_FILE)
    missing = [jar for jar in jars if not is_right(folder / jar.file_name, jar)]
    if missing:
        fetch(missing, folder, _tell)
    return len(jars)


def write_lock() -> None:
    """Resolve COORDINATES anew and write the lock file. Raises JarError, or ImportError without jgo."""
    write_lock_of(LOCK_FILE, COORDINATES, _HEADER, _tell)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
