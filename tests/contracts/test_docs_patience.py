"""The table of how long clients wait (docs/sizing.md) has the versions and defaults that are in use here."""

from __future__ import annotations

import inspect
import json
import re
from importlib.metadata import version
from math import inf
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka

from sluice.proxy.config.pacing import PacingOptions
from sluice.proxy.session.delays import PATIENCE_S, PIPELINING_PATIENCE_S, UNNAMED_PATIENCE_S, DelayLimits
from testkit.kafka.lock import CURRENT

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("produce", "in flight", "max wait", "fetch", "group", "session", "transaction")
Row = dict[str, float]


def figure(cell: str) -> float:
    """Its first one; of an empty cell, or of `none`, infinite."""
    found = re.search(r"[\d,.]+", cell)
    return float(found[0].replace(",", "")) if found else inf


def table() -> dict[str, Row]:
    section = (ROOT / "docs/sizing.md").read_text(encoding="utf-8").split("## How long clients wait\n")[1]
    first = section[: section.index("\n\n", section.index("\n|"))]
    lines = [line.strip("|").split("|") for line in first.splitlines() if line.startswith("|")]
    return {
        name.strip(" *"): {column: figure(cell) for column, cell in zip(COLUMNS, cells, strict=True)}
        for name, *cells in lines[2:]
    }


def test_what_sluice_makes_clients_wait_is_its_default() -> None:
    row, limits = table()["Sluice, at most"], DelayLimits()
    assert PacingOptions().answer_budget_s * 1_000 == limits.answer_budget_ms
    assert row["produce"] == row["fetch"] == row["transaction"] == limits.answer_budget_ms / 1_000
    assert row["group"] == limits.group_max_ms / 1_000


def test_who_is_less_patient_than_sluice_is_named_below_the_table() -> None:
    rows = table()
    sluice = rows.pop("Sluice, at most")
    impatient = {
        (name.split()[0], column)
        for name, row in rows.items()
        for column, wait_s in sluice.items()
        if wait_s < inf and row[column] <= wait_s
    }
    assert impatient == {("platformatic", "transaction")}


def test_how_long_sluice_believes_clients_to_wait_is_what_the_table_says() -> None:
    """Of platformatic its transactions', which may be one Produce; of those without a name the least."""
    rows = {name.split()[0]: row for name, row in table().items()}
    names = {
        "apache-kafka-java": "Java", "kgo": "franz-go", "platformatic-kafka": "platformatic",
        "confluent-kafka-dotnet": "librdkafka", "confluent-kafka-go": "librdkafka",
        "confluent-kafka-python": "librdkafka",
    }  # fmt: skip
    for software, patience_s in PATIENCE_S.items():
        row = rows[names.get(software, software)]
        assert patience_s == min(row["produce"], row["transaction"] if software.startswith("plat") else inf)
    assert min(rows[name]["produce"] for name in ("aiokafka", "kafkajs", "kafka-go")) == UNNAMED_PATIENCE_S
    assert rows["franz-go"]["produce"] == PIPELINING_PATIENCE_S


def test_the_versions_are_those_that_tests_and_benchmarks_run() -> None:
    packages = json.loads((ROOT / "bench/clients/node/package.json").read_text())["dependencies"]
    modules = (ROOT / "bench/clients/go/go.mod").read_text()
    go = {name: re.search(rf"/{name} v(\S+)", modules) for name in ("franz-go", "sarama", "kafka-go")}
    assert set(table()) - {"Sluice, at most"} == {
        f"Java {CURRENT.version}",
        f"librdkafka {confluent_kafka.libversion()[0]}",
        f"aiokafka {version('aiokafka')}",
        f"kafka-python {version('kafka-python')}",
        *(f"{name} {found[1]}" for name, found in go.items() if found),
        f"kafkajs {packages['kafkajs']}",
        f"platformatic {packages['@platformatic/kafka']}",
    }


def test_the_figures_of_the_python_clients_are_their_defaults() -> None:
    rows = table()
    consumer = inspect.signature(aiokafka.AIOKafkaConsumer).parameters
    producer = inspect.signature(aiokafka.AIOKafkaProducer).parameters
    of_aiokafka = {
        "produce": producer["request_timeout_ms"].default,
        "max wait": consumer["fetch_max_wait_ms"].default,
        "fetch": consumer["request_timeout_ms"].default,
        "group": consumer["request_timeout_ms"].default,
        "session": consumer["session_timeout_ms"].default,
        "transaction": producer["transaction_timeout_ms"].default,
    }
    consumes, produces = kafka.KafkaConsumer.DEFAULT_CONFIG, kafka.KafkaProducer.DEFAULT_CONFIG
    of_kafka_python = {
        "produce": produces["request_timeout_ms"],
        "max wait": consumes["fetch_max_wait_ms"],
        "fetch": consumes["request_timeout_ms"],
        "group": consumes["request_timeout_ms"],
        "session": consumes["session_timeout_ms"],
        "transaction": produces["transaction_timeout_ms"],
    }
    for name, defaults in (("aiokafka", of_aiokafka), ("kafka-python", of_kafka_python)):
        row = rows[f"{name} {version(name)}"]
        assert {column: row[column] * 1_000 for column in defaults} == defaults
