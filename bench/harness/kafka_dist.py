"""Brings Apache Kafka onto the machine: jars from Maven coordinates, pinned by requirements/kafka-jars*.lock.

Knows nothing of running Kafka. Downloads through PyPI's `jgo` (pure Python: no Maven, no Java needed),
checks each jar's SHA-256 before it gets its final name, and keeps them in a cache folder that all
checkouts share: `$SLUICE_CACHE`, else `${XDG_CACHE_HOME:-~/.cache}/sluice`.

    python -m bench.harness.kafka_dist           fetch what is missing, print the folder and the Java to use
    python -m bench.harness.kafka_dist --quiet   the same, but say nothing if all is there
    python -m bench.harness.kafka_dist --all     the same for every release: the oldest supported one too
    python -m bench.harness.kafka_dist --lock    resolve every release's roots anew and rewrite the lock files
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.kafka_lock import (
    CURRENT,
    DOWNLOAD_TIMEOUT_S,
    RELEASES,
    KafkaDistError,
    KafkaRelease,
    LockedJar,
    Progress,
    machine_trust,
    read_lock,
    sha256_of,
    write_lock,
)
from sluice.recalibration.java_runtime import JavaNotFoundError, find_java

__all__ = ["JavaNotFoundError", "KafkaDist", "cache_folder", "ensure_kafka", "main", "print_progress"]

DOWNLOADS_AT_ONCE = 6
DOWNLOAD_TRIES = 3


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
    missing = [jar for jar in locked if not _is_right(folder / jar.file_name, jar)]
    if missing:
        total_mb = sum(jar.size_bytes for jar in missing) / 1e6
        progress(f"Kafka {release.version}: fetching {len(missing)} of {len(locked)} jars, {total_mb:.0f} MB")
        # jgo writes straight to the final name, hence a scratch folder: a jar moves only once it is right.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch, machine_trust():
            _fetch_all(missing, Path(scratch), folder, progress)
        progress(f"Kafka {release.version}: all {len(locked)} jars are there, every checksum is right")
    stamps = {jar.file_name: _stamp(folder / jar.file_name) for jar in locked}
    new = _stamp_file(folder).with_suffix(".new")
    new.write_text(json.dumps(stamps, indent=0), encoding="utf-8")
    new.replace(_stamp_file(folder))


def _is_right(path: Path, jar: LockedJar) -> bool:
    return path.is_file() and path.stat().st_size == jar.size_bytes and sha256_of(path) == jar.sha256


def _fetch_all(missing: list[LockedJar], scratch: Path, folder: Path, progress: Progress) -> None:
    done_count = done_bytes = told = 0
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        tasks = {pool.submit(_fetch_one, jar, scratch, folder): jar for jar in missing}
        try:
            for task in as_completed(tasks):
                task.result()
                done_count += 1
                done_bytes += tasks[task].size_bytes
                if done_bytes - told >= 10_000_000:
                    told = done_bytes
                    progress(f"  {done_count} of {len(missing)} jars, {done_bytes / 1e6:.0f} MB")
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _fetch_one(jar: LockedJar, scratch: Path, folder: Path) -> None:
    for attempt in range(1, DOWNLOAD_TRIES + 1):
        home = scratch / f"{jar.file_name}.{attempt}"
        try:
            fetched = _download(jar.group, jar.artifact, jar.version, home)
        except Exception as error:  # jgo raises RuntimeError, requests errors and OSError alike
            if attempt < DOWNLOAD_TRIES:
                continue
            raise KafkaDistError(
                f"{jar.coordinate} could not be downloaded in {DOWNLOAD_TRIES} tries: {error}"
            ) from error
        found = sha256_of(fetched)
        if found != jar.sha256:
            raise KafkaDistError(
                f"{jar.coordinate} has a wrong checksum: sha256 {jar.sha256} in the lock file, {found} in "
                f"the download ({fetched.stat().st_size} bytes, not {jar.size_bytes}). It was not installed."
            )
        fetched.replace(folder / jar.file_name)
        return


def _download(group: str, artifact: str, version: str, home: Path) -> Path:
    from jgo.maven import MavenContext  # late: jgo brings `requests`, and a finished set-up needs neither

    context = MavenContext(repo_cache=home, timeout=DOWNLOAD_TIMEOUT_S)
    return Path(context.project(group, artifact).at_version(version).artifact().resolve())


def main(arguments: list[str]) -> None:
    """Run the command line that the module docstring shows; errors are a message and exit code 1."""
    if len(arguments) > 1 or not set(arguments) <= {"--quiet", "--all", "--lock"}:
        sys.exit("usage: python -m bench.harness.kafka_dist [--quiet | --all | --lock]")
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
