"""`sluice configs` of brokers and topics in a quota file: the section `replication:`, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

import pytest

from sluice.proxy.cli.main import main
from sluice.quotas.files.quota_file import parse_quotas, replication_of
from sluice.quotas.files.replication_section import ReplicationSection
from sluice.quotas.replication.limits import FOLLOWER_RATE, LEADER_RATE, LEADER_REPLICAS, ThrottledReplicas

FILE = """# kept by hand
quotas:
  - client-id: etl   # the nightly one
    producer_byte_rate: 1000
replication:
  brokers:
    - id: <default>
      leader.replication.throttled.rate: 7000000
exempt: []
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(FILE)
    return path


def section(file: Path) -> ReplicationSection:
    """As a proxy reads it; the file as a whole can be used."""
    text = file.read_text()
    parse_quotas(text, "quotas.yaml")
    return replication_of(text, "quotas.yaml")


class Configs(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Exit code, and what was printed, errors behind it."""


@pytest.fixture
def configs(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Configs:
    """The command on that file."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["sluice", "configs", "-q", str(file), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out + printed.err

    return call


@pytest.mark.parametrize("user", [("--user", "alice"), ("--user-defaults",)])
@pytest.mark.parametrize("what", [("--describe",), ("--alter", "--add-config", f"{LEADER_RATE}=1")])
def test_a_user_is_not_passed_over_beside_a_broker(
    file: Path, configs: Configs, what: tuple[str, ...], user: tuple[str, ...]
) -> None:
    code, told = configs(*what, "--entity-type", "brokers", "--entity-name", "1", *user)
    assert (code, "do not go with --user and the like" in told) == (2, True), told
    assert file.read_text() == FILE


def test_a_brokers_rates_are_set_shown_and_removed_and_the_rest_of_the_file_stays(
    file: Path, configs: Configs
) -> None:
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    rates = f"{LEADER_RATE}=5000000,{FOLLOWER_RATE}=6000000"
    code, told = configs("--alter", *of_broker, "--add-config", rates)
    assert (code, told.splitlines()[0]) == (0, "Completed updating config for broker 1.")
    assert "replication.source: quotas" in told
    assert section(file).rates == {LEADER_RATE: {None: 7e6, 1: 5e6}, FOLLOWER_RATE: {1: 6e6}}
    text = file.read_text()
    assert text.startswith(FILE[: FILE.index("replication:")])
    assert text.endswith("exempt: []\n")

    shown = ["Dynamic configs for broker 1 are:", f"  {LEADER_RATE}=5000000", f"  {FOLLOWER_RATE}=6000000"]
    assert configs("--describe", *of_broker) == (0, "\n".join(shown) + "\n")
    assert configs("--alter", *of_broker, "--add-config", rates) == (
        0, "Nothing to change in config for broker 1.\n"
    )  # fmt: skip

    assert configs("--alter", *of_broker, "--delete-config", f"{LEADER_RATE},{FOLLOWER_RATE}")[0] == 0
    code, told = configs("--describe", "--entity-type", "brokers")
    assert told.splitlines() == [
        "Default configs for brokers in the cluster are:",
        f"  {LEADER_RATE}=7000000",
    ]


def test_a_topics_replicas_may_be_a_list_in_brackets_and_all(file: Path, configs: Configs) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", "orders")
    assert configs("--alter", *of_topic, "--add-config", f"{LEADER_REPLICAS}=[0:1,1:2]")[0] == 0
    replicas = section(file).replicas[LEADER_REPLICAS]
    assert replicas == {"orders": ThrottledReplicas(frozenset({(0, 1), (1, 2)}))}
    assert configs("--alter", *of_topic, "--add-config", f"{LEADER_REPLICAS}=*")[0] == 0
    assert section(file).replicas[LEADER_REPLICAS]["orders"].all


def test_a_file_without_the_section_gets_one_and_loses_it_when_nothing_is_left(
    file: Path, configs: Configs
) -> None:
    file.write_text("quotas: []\n")
    default = ("--entity-type", "brokers", "--entity-default")
    assert configs("--alter", *default, "--add-config", f"{LEADER_RATE}=1000")[0] == 0
    assert section(file).rates[LEADER_RATE] == {None: 1000.0}
    assert configs("--alter", *default, "--delete-config", LEADER_RATE)[0] == 0
    assert section(file).is_empty


BROKER_1 = "--alter --entity-type brokers --entity-name 1"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"--alter --entity-type brokers --add-config {LEADER_RATE}=5", "give --entity-name"),
        ("--describe --entity-type brokers --entity-name one", "must be a broker's id, is 'one'"),
        ("--describe --entity-type topics --entity-default", "topics have no default"),
        ("--describe --entity-type topics --entity-type users", "one at a time"),
        (
            f"{BROKER_1} --add-config log.retention.ms=5",
            f"unknown key; known here: {FOLLOWER_RATE}, {LEADER_RATE}",
        ),
        (f"{BROKER_1} --add-config {LEADER_RATE}=5MB", "not '5MB'; write 5000000 (5 MB) or 5242880 (5 MiB)"),
        (f"{BROKER_1} --add-config {LEADER_RATE}", "has no value"),
        (f"{BROKER_1} --add-config {LEADER_RATE}=5 --delete-config {LEADER_RATE}", "is in --add-config too"),
        (f"{BROKER_1} --delete-config log.dirs", "unknown key"),
        (f"{BROKER_1}", "give --add-config"),
        (
            f"--alter --entity-type topics --entity-name t --add-config {LEADER_REPLICAS}=5000",
            "a rate is set with",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_the_file_stays(
    file: Path, configs: Configs, line: str, told: str
) -> None:
    code, said = configs(*line.split())
    assert code == 2
    assert told in " ".join(said.split())
    assert file.read_text() == FILE
