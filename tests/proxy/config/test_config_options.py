"""Every option is documented, and those of producer ids reach the quota in its units."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluice.proxy.config.config import Config
from sluice.proxy.config.file import load_config, variable_names
from sluice.proxy.config.messages import inner_section
from sluice.proxy.config.options import Options
from sluice.proxy.config.producer_ids import ProducerIdOptions, producer_ids_of, settings_of
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.variables import NOT_OPTIONS
from sluice.quotas.producer_ids.buckets import BucketShape
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.store import StoreKind
from testkit.proxy.configurations import GOOD, errors_of, write

ROOT = Path(__file__).parents[3]


def sections(model: type[Options]) -> list[type[Options]]:
    inner = [inner_section(field.annotation) for field in model.model_fields.values()]
    return [model, *(each for section in inner if section for each in sections(section))]


def test_every_option_has_a_doc_line_and_every_number_a_unit_in_its_name() -> None:
    units = (
        "_s",
        "_bytes",
        "_port",
        "_series",
        "_sensors",
        "_connections",
        "_brokers",
        "_num",
        "_rows",
        "_keys",
    )
    shares_and_ids = ("_share", "_ids", "_partitions")
    counts = {
        "max_users",
        "partitions",
        "max_gates",
        "max_client_ids_per_user",
        "max_connections_per_ip",
        "max_connections_per_user",
        "first_broker_id",
        "leader_id",
        "replication_factor",
    }
    for section in sections(Config):
        for name, field in section.model_fields.items():
            assert field.description, name
            assert field.description.endswith("."), name
            if field.annotation in {int, float}:
                known = (*units, *shares_and_ids)
                assert name.endswith(known) or "_bytes_" in name or name in counts, name


def test_the_defaults_of_the_producer_id_options_are_those_of_the_quota() -> None:
    assert settings_of(ProducerIdOptions()) == ProducerIdSettings()
    assert (ProducerIdOptions().max_gates, ProducerIdOptions().gate_s) == (20_000, 120.0)


def test_the_gates_of_a_user_are_as_many_and_last_as_long_as_the_configuration_says() -> None:
    shared = producer_ids_of(ProducerIdOptions(max_gates=2, gate_s=45))
    table = shared.tables.table("alice", 0.0)
    for producer_id in range(3):
        table.refused({(producer_id, b"orders", 0): (0, 0)}, 0.0)
    assert (len(table), table.overflows) == (2, 1)
    table.expire(44_999.0)
    assert len(table) == 2
    table.expire(45_000.0)
    assert len(table) == 0


def test_each_producer_id_option_reaches_the_quota_in_its_unit(tmp_path: Path) -> None:
    text = """\
producer_ids:
  window_num: 3
  window_size_s: 60
  store: bloom
  false_positive_share: 0.02
  burst_s: 1800
  forced_share: 0.2
  forced_after_s: 7
  broker_heap_bytes: 270000000
  broker_heap_share: 0.5
  user_share: 0.75
  broker_expiration_s: 600
  max_waiting_ids: 5
  max_observed_ids: 6
  max_users: 8
  cleanup_interval_s: 9
  snapshot_file: ids.snapshot
"""
    options = load_config(write(tmp_path, GOOD + text), {}).producer_ids
    settings = settings_of(options)
    assert options.snapshot_file == tmp_path / "ids.snapshot"
    assert options.cleanup_interval_s == 9.0
    assert settings == ProducerIdSettings(
        window_num=3,
        sample_ms=60_000.0,
        store=StoreKind.BLOOM,
        false_positive_rate=0.02,
        buckets=BucketShape(burst_h=0.5, forced_share=0.2, expiration_ms=600_000.0),
        forced_after_ms=7_000.0,
        broker_heap_bytes=270_000_000,
        heap_share=0.5,
        principal_share=0.75,
        max_waiting_ids=5,
        max_observed_ids=6,
        max_principals=8,
    )
    assert settings.max_pairs == 500_000


NUL = "must not hold the character NUL (\\0), which no file, host or name can have"


@pytest.mark.parametrize("name", variable_names())
def test_a_nul_in_any_option_is_an_error_with_its_place(name: str, tmp_path: Path) -> None:
    """It passes every other check of a text, and would end the start in a traceback at a file's opening."""
    told = errors_of(tmp_path, GOOD, {name: "a\0b"})
    path = name.removeprefix("SLUICE_").lower().replace("__", ".")
    assert f"{name}: {path}: {NUL}" in told


def test_a_nul_in_a_list_or_a_listener_has_its_line(tmp_path: Path) -> None:
    text = GOOD.replace("127.0.0.1", '"127.0\\0.0.1"') + 'admin:\n  status:\n    token_file: "a\\0b"\n'
    assert errors_of(tmp_path, text + 'quotas_admins: ["x\\0"]\n')[:3] == [
        f"sluice.yaml:4: listeners[0].upstream_host: {NUL}",
        f"sluice.yaml:10: admin.status.token_file: {NUL}",
        f"sluice.yaml:11: quotas_admins[0]: {NUL}",
    ]


def variables_named() -> set[str]:
    """Those that documents, the image and the examples name."""
    files = [ROOT / "Dockerfile", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files += [
        file
        for file in (ROOT / "deploy").rglob("*")
        if file.suffix in {".env", ".yaml", ".yml", ".md", ".tpl", ".service"}
    ]
    return {name for file in files for name in re.findall(r"\bSLUICE_[A-Z][A-Z0-9_]*", file.read_text())}


def test_each_variable_that_is_documented_may_stand_beside_a_configuration(tmp_path: Path) -> None:
    named = variables_named()
    assert {"SLUICE_CONFIG", "SLUICE_JAVA", "SLUICE_SPARK_JARS", "SLUICE_LOG__LEVEL"} <= named
    of_kubernetes = {"SLUICE_PORT": "tcp://10.0.0.1:9092", "SLUICE_SERVICE_HOST": "10.0.0.1"}
    file, unknown = write(tmp_path, GOOD), []
    for name in sorted(named):
        try:
            load_config(file, {name: of_kubernetes.get(name, "x")})
        except ConfigError as error:  # "x" is not a number, say, but the name is known
            unknown += [str(problem) for problem in error.problems if "unknown" in problem.message]
    assert unknown == []


@pytest.mark.parametrize("name", sorted(NOT_OPTIONS))
def test_a_variable_that_is_no_option_is_passed_over_whatever_its_value(name: str, tmp_path: Path) -> None:
    for value in ("", "/usr/bin/java", "[", "{}"):
        assert load_config(write(tmp_path, GOOD), {name: value}) == load_config(tmp_path / "sluice.yaml", {})
    assert name not in variable_names()


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("True", True), ("yes", True), ("off", False), ("1", True)],
)
def test_true_and_false_may_be_spelt_as_people_do(tmp_path: Path, text: str, value: bool) -> None:
    content = GOOD + f"metrics: {{kafka_page: {text}}}\n"
    assert load_config(write(tmp_path, content), {}).metrics.kafka_page is value
    environ = {"SLUICE_METRICS__KAFKA_PAGE": text}
    assert load_config(write(tmp_path, GOOD), environ).metrics.kafka_page is value
    (problem,) = errors_of(tmp_path, GOOD, {"SLUICE_METRICS__KAFKA_PAGE": "maybe"})
    assert problem == "SLUICE_METRICS__KAFKA_PAGE: metrics.kafka_page: must be true or false, is 'maybe'"


@pytest.mark.parametrize("value", ["[kgo]", "kgo", "5", ""])
def test_a_mapping_of_names_is_asked_for_in_our_words(tmp_path: Path, value: str) -> None:
    (problem,) = errors_of(tmp_path, GOOD + f"pacing:\n  client_patience: {value}\n")
    assert problem.startswith("sluice.yaml:9: pacing.client_patience: must be a mapping of names to values")
