"""Jars beside those of the broker: Kafka Streams', Connect's file source, MirrorMaker's. Pinned likewise.

python -m testkit.kafka.added_jars --lock     rewrite requirements/kafka-{streams,connect}-jars.lock
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sluice.recalibration.spark.maven_jars import fetch, is_right, read_lock, write_lock_of
from testkit.kafka.dist import KafkaDist, cache_folder, print_progress
from testkit.kafka.lock import CURRENT, REQUIREMENTS


@dataclass(frozen=True, slots=True)
class AddedJars:
    """What to add to the class path; all that these jars need is among the broker's."""

    name: str
    artifacts: Sequence[str]
    note: str

    @property
    def lock_file(self) -> Path:
        """The file with their checksums."""
        return REQUIREMENTS / f"kafka-{self.name}-jars.lock"

    def beside(self, kafka: KafkaDist) -> KafkaDist:
        """The same Kafka with these jars; missing ones are downloaded. Raises JarError if they cannot be."""
        locked = read_lock(self.lock_file)
        digest = hashlib.sha256("".join(jar.sha256 for jar in locked).encode()).hexdigest()[:8]
        folder = cache_folder() / f"kafka-{self.name}-{kafka.version}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        if missing := [jar for jar in locked if not is_right(folder / jar.file_name, jar)]:
            fetch(missing, folder, print_progress)
        added = (str(folder / jar.file_name) for jar in locked)
        return replace(kafka, classpath=os.pathsep.join([kafka.classpath, *added]))

    def write_lock(self) -> None:
        """Write the checksums anew, of the jars as they are downloaded now."""
        coordinates = [f"org.apache.kafka:{artifact}:{CURRENT.version}" for artifact in self.artifacts]
        header = (
            f"# {self.note}\n"
            "# Maven coordinate, SHA-256, bytes. Written by `python -m testkit.kafka.added_jars --lock`.\n"
        )
        write_lock_of(self.lock_file, coordinates, header, print_progress)


STREAMS: Final = AddedJars(
    "streams",
    ["kafka-streams"],
    f"Kafka Streams {CURRENT.version}, without RocksDB: the benchmark's topology keeps no state.",
)
CONNECT: Final = AddedJars(
    "connect",
    ["connect-file", "connect-mirror", "connect-mirror-client"],
    f"Kafka Connect {CURRENT.version}: the source of a file's lines, and MirrorMaker.",
)


def main(arguments: list[str]) -> None:
    """Run the command line that the module docstring shows."""
    if arguments != ["--lock"]:
        sys.exit(f"usage: python -m {Path(__file__).stem} --lock")
    for jars in (STREAMS, CONNECT):
        jars.write_lock()


if __name__ == "__main__":
    main(sys.argv[1:])
