"""The committed tables are what Kafka's jar gives; the proxy does not load what only the cold path needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from testkit.kafka.dist import ensure_kafka
from tools.protocol_tables import generate


def test_the_committed_tables_are_what_the_pinned_jar_gives() -> None:
    assert generate.main(["--check", "--jar", str(ensure_kafka().clients_jar)]) == 0


def test_the_generator_finds_the_jar_of_the_test_harness_by_itself() -> None:
    assert generate.default_jar() == ensure_kafka().clients_jar


def test_a_harness_that_cannot_help_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_JAVA", "/nowhere/java")
    assert generate.main(["--check"]) == 2
    assert capsys.readouterr().err.startswith("generate: no kafka-clients jar: SLUICE_JAVA=/nowhere/java")


def test_the_tables_do_not_load_the_message_descriptions() -> None:
    program = "import sys, sluice.protocol._tables, sluice.protocol.names; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"sluice.protocol.codec._schemas", "sluice.protocol.codec.codec"} & set(loaded.stdout.split())
