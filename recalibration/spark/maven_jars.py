"""Jars by Maven coordinates, pinned in a lock file by their checksums; downloaded by PyPI's `jgo`.

`jgo` is pure Python: no Maven, no Java. It is wanted where jars are fetched or locked, when an image or a
checkout is set up, and nowhere else. Knows no Kafka and no Spark.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOWNLOAD_TIMEOUT_S: Final = 60
DOWNLOADS_AT_ONCE: Final = 6
DOWNLOAD_TRIES: Final = 3
_TOLD_EVERY_BYTES: Final = 10_000_000

Progress = Callable[[str], None]


class JarError(Exception):
    """Jars cannot be had, or one is not what the lock file says."""


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


def read_lock(lock_file: Path) -> tuple[LockedJar, ...]:
    """Raises JarError, with the line number, if a line is broken."""
    jars = []
    for number, line in enumerate(lock_file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            coordinate, sha256, size = line.split()
            group, artifact, version = coordinate.split(":")
            jars.append(LockedJar(group, artifact, version, sha256.removeprefix("sha256:"), int(size)))
        except ValueError as error:
            raise JarError(f"{lock_file.name} line {number} cannot be read: {line!r}") from error
    return tuple(jars)


def write_lock(
    lock_file: Path, roots: Iterable[str], header: str, left_out: Collection[str], progress: Progress
) -> None:
    """Resolve `roots` (coordinates) and all they depend on, and write each jar's SHA-256 and size.

    The checksums are those of the jars as downloaded now: review the diff. `left_out`: artifacts that are not
    wanted, whoever asks for them. Raises JarError if two jars would have one file name.
    """
    from jgo.maven import MavenContext

    roots = list(roots)
    progress(f"resolving {', '.join(roots)}")
    with tempfile.TemporaryDirectory(prefix="sluice-lock-") as folder, machine_trust():
        context = MavenContext(repo_cache=Path(folder), timeout=DOWNLOAD_TIMEOUT_S)
        inputs, transitive = context.resolver.resolve([context.create_dependency(root) for root in roots])
        found = {
            f"{each.groupId}:{each.artifactId}:{each.version}": Path(each.artifact.resolve())
            for each in [*inputs, *transitive]
            if each.artifactId not in left_out
        }
        _write(lock_file, header, found, progress)


def write_lock_of(lock_file: Path, coordinates: Iterable[str], header: str, progress: Progress) -> None:
    """The same of jars that are all named: nothing is resolved."""
    with tempfile.TemporaryDirectory(prefix="sluice-lock-") as folder, machine_trust():
        found = {}
        for coordinate in coordinates:
            group, artifact, version = coordinate.split(":")
            found[coordinate] = _download(group, artifact, version, Path(folder))
        _write(lock_file, header, found, progress)


def _write(lock_file: Path, header: str, found: Mapping[str, Path], progress: Progress) -> None:
    lines: dict[str, str] = {}
    for coordinate, jar in found.items():
        if jar.name in lines:
            raise JarError(f"two jars have the name {jar.name}")
        lines[jar.name] = f"{coordinate} sha256:{sha256_of(jar)} {jar.stat().st_size}"
    lock_file.write_text(header + "\n".join(sorted(lines.values())) + "\n", encoding="utf-8")
    progress(f"{lock_file.name}: {len(lines)} jars")


def is_right(path: Path, jar: LockedJar) -> bool:
    """Whether the file is there and is what the lock file says; reads all of it."""
    return path.is_file() and path.stat().st_size == jar.size_bytes and sha256_of(path) == jar.sha256


def fetch(missing: list[LockedJar], folder: Path, progress: Progress) -> None:
    """Download jars into `folder`; each gets its name there when its checksum is right.

    Raises JarError if one cannot be downloaded in several tries, or has a wrong checksum.
    """
    # jgo writes straight to the final name, hence a scratch folder: a jar moves only once it is right.
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder.parent) as scratch, machine_trust():
        done_count = done_bytes = told = 0
        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            tasks = {pool.submit(_fetch_one, jar, Path(scratch), folder): jar for jar in missing}
            try:
                for task in as_completed(tasks):
                    task.result()
                    done_count += 1
                    done_bytes += tasks[task].size_bytes
                    if done_bytes - told >= _TOLD_EVERY_BYTES:
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
            raise JarError(
                f"{jar.coordinate} could not be downloaded in {DOWNLOAD_TRIES} tries: {error}"
            ) from error
        found = sha256_of(fetched)
        if found != jar.sha256:
            raise JarError(
                f"{jar.coordinate} has a wrong checksum: sha256 {jar.sha256} in the lock file, {found} in "
                f"the download ({fetched.stat().st_size} bytes, not {jar.size_bytes}). It was not installed."
            )
        fetched.replace(folder / jar.file_name)
        return


def _download(group: str, artifact: str, version: str, home: Path) -> Path:
    from jgo.maven import MavenContext  # late: jgo brings `requests`, and a finished set-up needs neither

    context = MavenContext(repo_cache=home, timeout=DOWNLOAD_TIMEOUT_S)
    return Path(context.project(group, artifact).at_version(version).artifact().resolve())


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
