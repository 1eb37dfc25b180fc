"""Which Kafka versions tests and benchmarks run, and the exact jars of each: requirements/kafka-jars*.lock.

Knows nothing of fetching or running them. `make lock` resolves each version anew and rewrites its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice.recalibration.spark import maven_jars
from sluice.recalibration.spark.maven_jars import JarError, LockedJar, Progress

REQUIREMENTS: Final = Path(__file__).resolve().parents[2] / "requirements"

KafkaDistError = JarError


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """One version of Kafka, and the file that pins its jars."""

    version: str
    lock_file: Path
    left_out: frozenset[str] = frozenset()
    """artifacts that the roots ask for and that must not be on the class path"""

    @property
    def roots(self) -> tuple[str, ...]:
        """What a broker and the command-line tools need.

        slf4j-simple, the lightest binding, logs to standard error.
        """
        return (
            f"org.apache.kafka:kafka_2.13:{self.version}",
            f"org.apache.kafka:kafka-tools:{self.version}",
            "org.slf4j:slf4j-simple:1.7.36",
        )


CURRENT: Final = KafkaRelease("4.3.1", REQUIREMENTS / "kafka-jars.lock")
"""what everything runs with unless it says otherwise, and what the protocol tables are made from"""
OLDEST: Final = KafkaRelease(
    "3.9.2",
    REQUIREMENTS / "kafka-jars-3.9.lock",
    # Its tools ask for a second binding, which would win by its place in the alphabet, and be silent. Log4j
    # itself (reload4j) stays: the broker calls it.
    left_out=frozenset({"slf4j-reload4j"}),
)
"""the oldest broker that is supported. From 3.9.1 on the 3.9 line runs on Java 24 and newer (KAFKA-17078)"""
RELEASES: Final = (CURRENT, OLDEST)


def read_lock(release: KafkaRelease = CURRENT) -> tuple[LockedJar, ...]:
    """Read a release's lock file. Raises KafkaDistError, with the line number, if a line is broken."""
    return maven_jars.read_lock(release.lock_file)


def write_lock(release: KafkaRelease, progress: Progress) -> None:
    """Resolve a release's roots and rewrite its lock file: coordinate, SHA-256 and size of every jar.

    The checksums are those of the jars as downloaded now: review the diff. Raises KafkaDistError if two
    jars would have one file name.
    """
    header = (
        f"# The jars of Apache Kafka {release.version} (broker, tools) and all they depend on:\n"
        "# Maven coordinate, SHA-256, bytes. Written by `make lock`; every download is checked against it.\n"
    )
    maven_jars.write_lock(release.lock_file, release.roots, header, release.left_out, progress)
