"""Brings Apache Kafka onto the machine: jars from Maven coordinates, pinned by requirements/kafka-jars*.lock.

Knows nothing of running Kafka. Downloads through PyPI's `jgo` (pure Python: no Maven, no Java needed),
checks each jar's SHA-256 before it gets its final name, and keeps them in a cache folder that all
checkouts share: `$SLUICE_CACHE`, else `${XDG_CACHE_HOME:-~/.cache}/sluice`.

    python -m testkit.kafka.dist           fetch what is missing, print the folder and the Java to use
    python -m testkit.kafka.dist --quiet   the same, but say nothing if all is there
    python -m testkit.kafka.dist --all     the same for every release: the oldest supported one too
    python -m testkit.kafka.dist --lock    resolve every release's roots anew and rewrite the lock files
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluice.recalibration.spark.java_runtime import JavaNotFoundError, find_java
from sluice.recalibration.spark.maven_jars import LockedJar, Progress, fetch, is_right
from testkit.kafka.lock import (
    CURRENT,
    RELEASES,
    KafkaDistError,
    KafkaRelease,
    read_lock,
    write_lock,
)

__all__ = ["JavaNotFoundError", "KafkaDist", "cache_folder", "ensure_kafka", "main", "print_progress"]


@dataclass(frozen=True, slots=True)
class KafkaDist:
    """Kafka on this machine: a folder of checked jars and the Java to run them with."""

    version: str
    jars: Path
    java: Path
    classpath: str  # every jar by name, in the lock file's order: the same string on each run

    @property
    def clients_jar(self) -> Path:
        """The kafka-clients jar; Kafka's message JSON lies inside, under common/message."""
        return self.jars / f"kafka-clients-{self.version}.jar"

    def class_archive(self, what: str) -> Path:
        """Where the classes of `what` are archived for this Java (testkit.kafka.class_archive); maybe not."""
        java = self.java.resolve()
        told = f"{java} {java.stat().st_mtime_ns}"
        return self.jars.parent / f"{what}-{hashlib.sha256(told.encode()).hexdigest()[:8]}.jsa"


def print_progress(line: str) -> None:
    """Write a progress line to standard error at once."""
    print(line, file=sys.stderr, flush=True)


def ensure_kafka(progress: Progress = print_progress, release: KafkaRelease = CURRENT) -> KafkaDist:
    """Return Kafka's jars and a Java, downloading only jars that are missing or differ from the lock file.

    Safe to call from several processes at once: one downloads, the others wait. Some 10 ms once all is
    there; the first time 60 MB. Raises KafkaDistError if a jar cannot be downloaded or has a wrong
    checksum, JavaNotFoundError if no Java will do.
    """
    java = find_java()
    locked = read_lock(release)
    folder = _jar_folder(release, locked)
    if not _is_complete(folder, locked):
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one_process(folder.parent, progress):
            if not _is_complete(folder, locked):  # another process may have been quicker
                _fetch_missing(release, folder, locked, progress)
    classpath = os.pathsep.join(str(folder / jar.file_name) for jar in locked)
    return KafkaDist(version=release.version, jars=folder, java=java, classpath=classpath)


def cache_folder() -> Path:
    """The folder for what is downloaded once for all checkouts. Not created here."""
    chosen = os.environ.get("SLUICE_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base, "sluice").absolute()


def _jar_folder(release: KafkaRelease, locked: tuple[LockedJar, ...]) -> Path:
    # The jars' digest is part of the name: checkouts with different locks share a cache in peace.
    digest = hashlib.sha256("".join(jar.sha256 for jar in locked).encode()).hexdigest()[:8]
    return cache_folder() / f"kafka-{release.version}-{digest}" / "jars"


# --- checking --------------------------------------------------------------------------------------------


def _stamp_file(folder: Path) -> Path:
    return folder.parent / "verified.json"


def _read_stamps(folder: Path) -> dict[str, list[int]]:
    """Size and modification time of each jar when its checksum was last found right."""
    try:
        stamps: dict[str, list[int]] = json.loads(_stamp_file(folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps


def _stamp(jar: Path) -> list[int]:
    status = jar.stat()
    return [status.st_size, status.st_mtime_ns]


def _is_complete(folder: Path, locked: tuple[LockedJar, ...]) -> bool:
    stamps = _read_stamps(folder)
    return all(_is_stamped(folder / jar.file_name, stamps) for jar in locked)


def _is_stamped(jar: Path, stamps: dict[str, list[int]]) -> bool:
    try:
        return stamps.get(jar.name) == _stamp(jar)
    except OSError:
        return False


@contextmanager
def _only_one_process(folder: Path, progress: Progress) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("Kafka: another process is fetching it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- fetching --------------------------------------------------------------------------------------------


def _fetch_missing(
    release: KafkaRelease, folder: Path, locked: tuple[LockedJar, ...], progress: Progress
) -> None:
    missing = [jar for jar in locked if not is_right(folder / jar.file_name, jar)]
    if missing:
        total_mb = sum(jar.size_bytes for jar in missing) / 1e6
        progress(f"Kafka {release.version}: fetching {len(missing)} of {len(locked)} jars, {total_mb:.0f} MB")
        fetch(missing, folder, progress)
        progress(f"Kafka {release.version}: all {len(locked)} jars are there, every checksum is right")
    stamps = {jar.file_name: _stamp(folder / jar.file_name) for jar in locked}
    new = _stamp_file(folder).with_suffix(".new")
    new.write_text(json.dumps(stamps, indent=0), encoding="utf-8")
    new.replace(_stamp_file(folder))


def main(arguments: list[str]) -> None:
    """Run the command line that the module docstring shows; errors are a message and exit code 1."""
    if len(arguments) > 1 or not set(arguments) <= {"--quiet", "--all", "--lock"}:
        sys.exit("usage: python -m testkit.kafka.dist [--quiet | --all | --lock]")
    try:
        if arguments == ["--lock"]:
            for release in RELEASES:
                write_lock(release, print_progress)
            return
        for release in RELEASES if arguments == ["--all"] else [CURRENT]:
            dist = ensure_kafka(release=release)
            if not arguments:
                print(f"jars: {dist.jars}\njava: {dist.java}")
    except (KafkaDistError, JavaNotFoundError) as error:
        sys.exit(f"Kafka: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
