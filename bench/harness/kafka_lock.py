"""Which Kafka versions tests and benchmarks run, and the exact jars of each: requirements/kafka-jars*.lock.

Knows nothing of fetching or running them. `make lock` resolves each version anew and rewrites its file.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REQUIREMENTS: Final = Path(__file__).resolve().parents[2] / "requirements"
DOWNLOAD_TIMEOUT_S: Final = 60

Progress = Callable[[str], None]


class KafkaDistError(Exception):
    """The jars cannot be had, or one is not what the lock file says."""


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


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of a lock file: a Maven coordinate and what its jar must be."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def read_lock(release: KafkaRelease = CURRENT) -> tuple[LockedJar, ...]:
    """Read a release's lock file. Raises KafkaDistError, with the line number, if a line is broken."""
    jars = []
    for number, line in enumerate(release.lock_file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            coordinate, sha256, size = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(LockedJar(group, artifact, version, sha256.removeprefix("sha256:"), int(size)))
        except ValueError as error:
            raise KafkaDistError(
                f"{release.lock_file.name} line {number} cannot be read: {line!r}"
            ) from error
    return tuple(jars)


def write_lock(release: KafkaRelease, progress: Progress) -> None:
    """Resolve a release's roots and rewrite its lock file: coordinate, SHA-256 and size of every jar.

    The checksums are those of the jars as downloaded now: review the diff. Raises KafkaDistError if two
    jars would have one file name.
    """
    from jgo.maven import MavenContext

    progress(f"resolving {', '.join(release.roots)}")
    with tempfile.TemporaryDirectory(prefix="sluice-lock-") as folder, machine_trust():
        context = MavenContext(repo_cache=Path(folder), timeout=DOWNLOAD_TIMEOUT_S)
        inputs, transitive = context.resolver.resolve(
            [context.create_dependency(root) for root in release.roots]
        )
        lines: dict[str, str] = {}
        for dependency in [*inputs, *transitive]:
            if dependency.artifactId in release.left_out:
                continue
            jar = Path(dependency.artifact.resolve())
            if jar.name in lines:
                raise KafkaDistError(f"two jars have the name {jar.name}")
            coordinate = f"{dependency.groupId}:{dependency.artifactId}:{dependency.version}"
            lines[jar.name] = f"{coordinate} sha256:{sha256_of(jar)} {jar.stat().st_size}"
    header = (
        f"# The jars of Apache Kafka {release.version} (broker, tools) and all they depend on:\n"
        "# Maven coordinate, SHA-256, bytes. Written by `make lock`; every download is checked against it.\n"
    )
    release.lock_file.write_text(header + "\n".join(sorted(lines.values())) + "\n", encoding="utf-8")
    progress(f"{release.lock_file.name}: {len(lines)} jars")


def sha256_of(path: Path) -> str:
    """The checksum of a file as lock files have it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def machine_trust() -> Iterator[None]:
    """Let `requests` trust the authorities that this machine trusts, as pip and curl do.

    It would take only those that it ships, and fail behind a company's proxy. Integrity rests on the
    checksums.
    """
    paths = ssl.get_default_verify_paths()
    store = paths.cafile or paths.capath
    told = "REQUESTS_CA_BUNDLE" in os.environ or "CURL_CA_BUNDLE" in os.environ
    if told or store is None or not _is_filled(Path(store)):
        yield
        return
    os.environ["REQUESTS_CA_BUNDLE"] = store
    try:
        yield
    finally:
        del os.environ["REQUESTS_CA_BUNDLE"]


def _is_filled(store: Path) -> bool:
    return store.is_file() or any(store.iterdir())  # Debian without ca-certificates has an empty folder
