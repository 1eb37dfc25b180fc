"""The committed tables are what Kafka's jar gives; the proxy does not load what only the cold path needs."""

from __future__ import annotations

import subprocess
import sys

from bench.harness.kafka_dist import ensure_kafka
from sluice.protocol import generate


def test_the_committed_tables_are_what_the_pinned_jar_gives() -> None:
    assert generate.main(["--check", "--jar", str(ensure_kafka().clients_jar)]) == 0


def test_the_generator_finds_the_jar_of_the_test_harness_by_itself() -> None:
    assert generate.default_jar() == ensure_kafka().clients_jar


def test_the_tables_do_not_load_the_message_descriptions() -> None:
    program = "import sys, sluice.protocol._tables, sluice.protocol.names; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"sluice.protocol._schemas", "sluice.protocol.codec"} & set(loaded.stdout.split())
