"""Brings Apache Kafka onto the machine: jars from Maven coordinates, pinned by requirements/kafka-jars.lock.

Knows nothing of running Kafka. Downloads through PyPI's `jgo` (pure Python: no Maven, no Java needed),
checks each jar's SHA-256 before it gets its final name, and keeps them in a cache folder that all
checkouts share: `$SLUICE_CACHE`, else `${XDG_CACHE_HOME:-~/.cache}/sluice`.

    python -m bench.harness.kafka_dist           fetch what is missing, print the folder and the Java to use
    python -m bench.harness.kafka_dist --quiet   the same, but say nothing if all is there
    python -m bench.harness.kafka_dist --lock    resolve ROOTS anew and rewrite the lock file
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.java_runtime import JavaNotFoundError, find_java

KAFKA_VERSION = "4.3.1"
LOCK_FILE = Path(__file__).resolve().parents[2] / "requirements" / "kafka-jars.lock"
# What a broker and the command-line tools need; slf4j-simple, the lightest binding, logs to standard error.
ROOTS = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
DOWNLOADS_AT_ONCE = 6
DOWNLOAD_TRIES = 3
DOWNLOAD_TIMEOUT_S = 60

Progress = Callable[[str], None]


class KafkaDistError(Exception):
    """The jars cannot be had, or one is not what the lock file says."""


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of the lock file: a Maven coordinate and what its jar must be."""

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


def ensure_kafka(progress: Progress = print_progress) -> KafkaDist:
    """Return Kafka's jars and a Java, downloading only jars that are missing or differ from the lock file.

    Safe to call from several processes at once: one downloads, the others wait. Some 10 ms once all is
    there; the first time 60 MB. Raises KafkaDistError if a jar cannot be downloaded or has a wrong
    checksum, JavaNotFoundError if no Java will do.
    """
    java = find_java()
    locked = read_lock()
    folder = _jar_folder(locked)
    if not _is_complete(folder, locked):
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one_process(folder.parent, progress):
            if not _is_complete(folder, locked):  # another process may have been quicker
                _fetch_missing(folder, locked, progress)
    classpath = os.pathsep.join(str(folder / jar.file_name) for jar in locked)
    return KafkaDist(version=KAFKA_VERSION, jars=folder, java=java, classpath=classpath)


def cache_folder() -> Path:
    """The folder for what is downloaded once for all checkouts. Not created here."""
    chosen = os.environ.get("SLUICE_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base, "sluice").absolute()


def read_lock() -> tuple[LockedJar, ...]:
    """Read requirements/kafka-jars.lock. Raises KafkaDistError, with the line number, if a line is broken."""
    jars = []
    for number, line in enumerate(LOCK_FILE.read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            coordinate, sha256, size = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(LockedJar(group, artifact, version, sha256.removeprefix("sha256:"), int(size)))
        except ValueError as error:
            raise KafkaDistError(f"{LOCK_FILE.name} line {number} cannot be read: {line!r}") from error
    return tuple(jars)


def _jar_folder(locked: tuple[LockedJar, ...]) -> Path:
    # The jars' digest is part of the name: checkouts with different locks share a cache in peace.
    digest = hashlib.sha256("".join(jar.sha256 for jar in locked).encode()).hexdigest()[:8]
    return cache_folder() / f"kafka-{KAFKA_VERSION}-{digest}" / "jars"


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


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def _fetch_missing(folder: Path, locked: tuple[LockedJar, ...], progress: Progress) -> None:
    missing = [jar for jar in locked if not _is_right(folder / jar.file_name, jar)]
    if missing:
        total_mb = sum(jar.size_bytes for jar in missing) / 1e6
        progress(f"Kafka {KAFKA_VERSION}: fetching {len(missing)} of {len(locked)} jars, {total_mb:.0f} MB")
        # jgo writes straight to the final name, hence a scratch folder: a jar moves only once it is right.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch, _machine_trust():
            _fetch_all(missing, Path(scratch), folder, progress)
        progress(f"Kafka {KAFKA_VERSION}: all {len(locked)} jars are there, every checksum is right")
    stamps = {jar.file_name: _stamp(folder / jar.file_name) for jar in locked}
    new = _stamp_file(folder).with_suffix(".new")
    new.write_text(json.dumps(stamps, indent=0), encoding="utf-8")
    new.replace(_stamp_file(folder))


@contextmanager
def _machine_trust() -> Iterator[None]:
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


def _is_right(path: Path, jar: LockedJar) -> bool:
    return path.is_file() and path.stat().st_size == jar.size_bytes and _sha256(path) == jar.sha256


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
        found = _sha256(fetched)
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


# --- locking ---------------------------------------------------------------------------------------------


def write_lock(progress: Progress = print_progress) -> None:
    """Resolve ROOTS and rewrite the lock file with the coordinate, SHA-256 and size of every jar.

    The checksums are those of the jars as downloaded now: review the diff. Raises KafkaDistError if two
    jars would have one file name.
    """
    from jgo.maven import MavenContext

    progress(f"resolving {', '.join(ROOTS)}")
    with tempfile.TemporaryDirectory(prefix="sluice-lock-") as folder, _machine_trust():
        home = Path(folder)
        context = MavenContext(repo_cache=home, timeout=DOWNLOAD_TIMEOUT_S)
        inputs, transitive = context.resolver.resolve([context.create_dependency(root) for root in ROOTS])
        lines: dict[str, str] = {}
        for dependency in [*inputs, *transitive]:
            jar = Path(dependency.artifact.resolve())
            if jar.name in lines:
                raise KafkaDistError(f"two jars have the name {jar.name}")
            coordinate = f"{dependency.groupId}:{dependency.artifactId}:{dependency.version}"
            lines[jar.name] = f"{coordinate} sha256:{_sha256(jar)} {jar.stat().st_size}"
    header = (
        f"# The jars of Apache Kafka {KAFKA_VERSION} (broker, tools) and all they depend on:\n"
        "# Maven coordinate, SHA-256, bytes. Written by `make lock`; every download is checked against it.\n"
    )
    LOCK_FILE.write_text(header + "\n".join(sorted(lines.values())) + "\n", encoding="utf-8")
    progress(f"{LOCK_FILE.name}: {len(lines)} jars")


def main(arguments: list[str]) -> None:
    """Run the command line that the module docstring shows; errors are a message and exit code 1."""
    if arguments not in ([], ["--quiet"], ["--lock"]):
        sys.exit("usage: python -m bench.harness.kafka_dist [--quiet | --lock]")
    try:
        if arguments == ["--lock"]:
            write_lock()
            return
        dist = ensure_kafka()
    except (KafkaDistError, JavaNotFoundError) as error:
        sys.exit(f"Kafka: {error}")
    if not arguments:
        print(f"jars: {dist.jars}\njava: {dist.java}")


if __name__ == "__main__":
    main(sys.argv[1:])
