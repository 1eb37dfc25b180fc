"""The jars that Spark lacks for S3A: pinned, and fetched when an image is built (`sluice spark-jars FOLDER`).

SLUICE_SPARK_JARS=FOLDER (session.py) then puts them on Spark's class path; a night fetches nothing.

hadoop-aws must be of the very Hadoop that Spark's own jars are of; hence a set, and a lock file, for each of
those that the range of PySpark in pyproject.toml brings. It asks for the AWS SDK as one bundle of 686 MB.
Those modules of it that S3A calls, with what they need beyond Spark's own jars, are a fiftieth of that, and
stand in for it. Without the bundle's shaded copies S3A cannot be told to use a native TLS library; the JVM's
own serves. There is no Kafka source: its jar for this Spark is not published.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sluice.recalibration.spark.installed import installed_hadoop
from sluice.recalibration.spark.maven_jars import JarError, fetch, is_right, read_lock, write_lock_of

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


@dataclass(frozen=True, slots=True)
class JarSet:
    """What S3A of one Hadoop takes."""

    hadoop: str
    aws_sdk: str
    """what that hadoop-aws was built with"""
    without: frozenset[str]
    """modules that this SDK did not have yet"""
    analytics: str | None
    """version of the reader that S3A may be told to use, and whose classes it wants in any case"""
    other_versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """module → version, where that of the SDK is not published"""

    @property
    def lock_file(self) -> Path:
        return Path(__file__).with_name(f"spark_jars-{self.hadoop}.lock")

    @property
    def coordinates(self) -> list[str]:
        modules = [module for module in _MODULES if module not in self.without]
        found = [f"org.apache.hadoop:hadoop-aws:{self.hadoop}"]
        found += [
            f"software.amazon.awssdk:{module}:{self.other_versions.get(module, self.aws_sdk)}"
            for module in modules
        ]
        if self.analytics is not None:
            found.append(f"software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:{self.analytics}")
        return [
            *found,
            "software.amazon.eventstream:eventstream:1.0.1",
            "org.reactivestreams:reactive-streams:1.0.4",
        ]

    @property
    def header(self) -> str:
        return (
            f"# The jars that Spark lacks for S3A (Hadoop {self.hadoop}).\n"
            "# Maven coordinate, SHA-256, bytes. Written by `sluice spark-jars --lock`; "
            "each download is checked.\n"
        )


SETS: Final = (
    JarSet(  # Spark 4.0
        "3.4.1",
        "2.24.6",
        frozenset({"http-auth-aws-eventstream", "retries", "retries-spi", "utils-lite"}),
        None,
        {"s3-transfer-manager": "2.24.5"},
    ),
    JarSet("3.4.2", "2.29.52", frozenset({"utils-lite"}), "1.2.1"),  # Spark 4.1
    JarSet("3.5.0", "2.35.4", frozenset(), "1.3.1"),  # Spark 4.2, 4.3
)
NEWEST: Final = SETS[-1]


def jar_set(hadoop: str | None = None) -> JarSet:
    """That of a Hadoop; None: of the Spark that is installed here, else the newest. Raises JarError."""
    wanted = hadoop or installed_hadoop() or NEWEST.hadoop
    for each in SETS:
        if each.hadoop == wanted:
            return each
    known = ", ".join(each.hadoop for each in SETS)
    raise JarError(f"no jars are pinned for Hadoop {wanted}; there are those for {known}")


def fetch_jars(folder: Path, jars_of: JarSet | None = None) -> int:
    """Put every jar of the set's lock file into `folder`; those that are there and right stay.

    None: what `jar_set` says. Returns how many jars. Raises JarError if one cannot be had, or is not what the
    lock file says, or if a set for another Hadoop lies there.
    """
    found = jars_of or jar_set()
    others = [name for name in hadoop_of(folder) if name != found.hadoop]
    if others:
        raise JarError(
            f"{folder} has the jars for Hadoop {others[0]}, not {found.hadoop}: take another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    jars = read_lock(found.lock_file)
    missing = [jar for jar in jars if not is_right(folder / jar.file_name, jar)]
    if missing:
        fetch(missing, folder, _tell)
    return len(jars)


def hadoop_of(folder: Path) -> list[str]:
    """The Hadoop, or several, whose S3A lies in a folder of jars."""
    return sorted(jar.stem.removeprefix("hadoop-aws-") for jar in folder.glob("hadoop-aws-*.jar"))


def write_lock() -> None:
    """Resolve all sets anew and write their lock files. Raises JarError, or ImportError without jgo."""
    for each in SETS:
        write_lock_of(each.lock_file, each.coordinates, each.header, _tell)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
