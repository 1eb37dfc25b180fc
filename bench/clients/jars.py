"""Kafka Streams' jar beside those of the broker: pinned by requirements/kafka-streams-jars.lock.

python -m bench.clients.jars --lock     rewrite the lock file
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

from sluice.recalibration.spark.maven_jars import fetch, is_right, read_lock, write_lock_of
from testkit.kafka.dist import KafkaDist, cache_folder, print_progress
from testkit.kafka.lock import CURRENT, REQUIREMENTS

LOCK: Final = REQUIREMENTS / "kafka-streams-jars.lock"
ROOTS: Final = (f"org.apache.kafka:kafka-streams:{CURRENT.version}",)
HEADER: Final = (
    f"# Kafka Streams {CURRENT.version}, without RocksDB: the benchmark's topology keeps no state.\n"
    "# Maven coordinate, SHA-256, bytes. Written by `python -m bench.clients.jars --lock`.\n"
)


def streams_classpath(kafka: KafkaDist) -> str:
    """Kafka's jars and Streams', which is downloaded if it is missing. Raises JarError if it cannot be."""
    locked = read_lock(LOCK)
    digest = hashlib.sha256("".join(jar.sha256 for jar in locked).encode()).hexdigest()[:8]
    folder = cache_folder() / f"kafka-streams-{kafka.version}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    if missing := [jar for jar in locked if not is_right(folder / jar.file_name, jar)]:
        fetch(missing, folder, print_progress)
    return os.pathsep.join([kafka.classpath, *(str(folder / jar.file_name) for jar in locked)])


def main(arguments: list[str]) -> None:
    """Run the command line that the module docstring shows."""
    if arguments != ["--lock"]:
        sys.exit(f"usage: python -m {Path(__file__).stem} --lock")
    write_lock_of(LOCK, ROOTS, HEADER, print_progress)


if __name__ == "__main__":
    main(sys.argv[1:])
