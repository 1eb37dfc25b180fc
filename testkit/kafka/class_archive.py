"""Archives of the classes that brokers and tools load, so that they start in half the time.

    python -m testkit.kafka.class_archive     make those that are missing: some 10 s, once for each Java

Java takes an archive only with the class path and the Java that it was made with, and goes on without it
otherwise. So nothing but time depends on one; where it cannot be made, all goes on as before.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from testkit.kafka.dist import KafkaDist, ensure_kafka, print_progress
from testkit.kafka.java_tools import MAIN_CLASSES, QUIET, java_command
from testkit.kafka.node import KafkaNode

WHAT: Final = ("broker", "tools")
_STOPS_WITHIN_S: Final = 60.0


@contextmanager
def _made(archive: Path) -> Iterator[list[str]]:
    """The options of the JVM that writes the archive as it ends; it gets its name when it is whole."""
    new = archive.with_suffix(f".{os.getpid()}")
    try:
        yield [f"-XX:ArchiveClassesAtExit={new}", *QUIET]
        if new.exists():
            new.replace(archive)
    finally:
        new.unlink(missing_ok=True)


def make_archives(dist: KafkaDist) -> list[Path]:
    """Make them if one is missing; returns those that are there then: none with a Java that makes none."""
    broker, tools = (dist.class_archive(what) for what in WHAT)
    if not (broker.exists() and tools.exists()):
        print_progress(f"Kafka {dist.version}: archiving its classes, for quicker starts")
        for archive in (broker, tools):  # none is made on top of another
            archive.unlink(missing_ok=True)
        with _made(broker) as of_broker, KafkaNode(dist, java_options=of_broker) as node:
            with _made(tools) as of_tools:
                arguments = ("--bootstrap-server", node.bootstrap, "--describe", "--entity-type", "users")
                command = java_command(dist, MAIN_CLASSES["configs"], arguments, options=of_tools)
                subprocess.run(command, check=True, capture_output=True, timeout=_STOPS_WITHIN_S)
            node.stop()
    return [archive for archive in (broker, tools) if archive.exists()]


if __name__ == "__main__":
    make_archives(ensure_kafka())
