"""`sluice configs` and `sluice quotas` at a real broker, beside Kafka's own tool: same options, same quotas.

No proxy stands between: both speak Kafka's API.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka.protocol.admin import AlterClientQuotasRequest

from sluice.proxy.cli.quotas.client_properties import ClientSettings
from sluice.proxy.cli.quotas.server import QuotaServer
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.sasl_clients import java_client_properties, write_properties
from testkit.proxy.sluice_process import SLUICE

Unique = Callable[[str], str]


def sluice(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    return subprocess.run(
        [SLUICE, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )


def configs(kafka: KafkaNode, *arguments: str) -> str:
    """What `sluice configs` prints."""
    done = sluice("configs", "--bootstrap-server", kafka.bootstrap, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kafka_configs(kafka: KafkaNode, *arguments: str) -> str:
    return run_tool(kafka.dist, "configs", "--bootstrap-server", kafka.bootstrap, *arguments).stdout


def quotas(text: str) -> list[tuple[str, frozenset[str]]]:
    """The lines of --describe, in which Kafka's tool has no order."""
    found = []
    for line in text.splitlines():
        if line.startswith("Quota configs for "):
            who, _, limits = line.removeprefix("Quota configs for ").partition(" are ")
            found.append((who, frozenset(limits.split(", "))))
    return sorted(found, key=lambda one: one[0])


@pytest.mark.long
def test_both_tools_set_and_describe_the_same_quotas(kafka: KafkaNode, unique: Unique) -> None:
    user, app = unique("user 'ü'"), unique("app")
    added = ("--alter", "--add-config")
    cases: list[tuple[str, ...]] = [
        ("--entity-type", "users", "--entity-name", user),
        ("--entity-type", "clients", "--entity-name", app, "--entity-type", "users", "--entity-name", user),
        ("--entity-type", "clients", "--entity-default", "--entity-type", "users", "--entity-name", user),
        ("--user-defaults", "--client", app),
        ("--client", app),
    ]
    try:
        for index, whom in enumerate(cases):
            theirs, ours = (kafka_configs, configs) if index % 2 else (configs, kafka_configs)
            limits = f"producer_byte_rate={10**index * 1234567},request_percentage={index + 0.5}"
            ours(kafka, *added, limits, *whom)
            described = [quotas(tool(kafka, "--describe", *whom)) for tool in (kafka_configs, configs)]
            assert described[0] == described[1]
            assert len(described[0]) == 1
            assert f"request_percentage={index + 0.5}" in described[0][0][1]
            assert theirs(kafka, "--alter", "--delete-config", "request_percentage", *whom).startswith(
                "Completed updating"
            )
        for whom in (("--entity-type", "users", "--entity-type", "clients"), ("--entity-type", "users")):
            both = [quotas(tool(kafka, "--describe", *whom)) for tool in (kafka_configs, configs)]
            assert both[0] == both[1]
            assert len([who for who, _ in both[0] if user in who]) == (2 if "clients" in whom else 1)
    finally:
        for whom in cases:
            configs(kafka, "--alter", "--delete-config", "producer_byte_rate,request_percentage", *whom)
    assert not [
        who for who, _ in quotas(configs(kafka, "--describe", "--entity-type", "users")) if user in who
    ]


def test_addresses_and_defaults_are_described_alike(kafka: KafkaNode) -> None:
    rate = ("--alter", "--add-config", "connection_creation_rate=1000000")
    for whom in (("--ip", "10.99.0.1"), ("--ip-defaults",)):
        done, written = configs(kafka, *rate, *whom).splitlines()
        assert done in {
            "Completed updating config for ip 10.99.0.1.",
            "Completed updating default config for ips.",
        }
        assert written.startswith(f"Taken by {kafka.bootstrap}: ")
    described = [
        quotas(tool(kafka, "--describe", "--entity-type", "ips")) for tool in (kafka_configs, configs)
    ]
    assert described[0] == described[1]
    assert [who for who, _ in described[1]] == ["ip '10.99.0.1'", "the default ip"]
    for whom in (("--ip", "10.99.0.1"), ("--ip-defaults",)):
        configs(kafka, "--alter", "--delete-config", "connection_creation_rate", *whom)
    assert configs(kafka, "--describe", "--entity-type", "ips") == ""


def test_what_the_broker_refuses_is_told_in_its_words_with_exit_code_1(
    kafka: KafkaNode, unique: Unique
) -> None:
    # A key that only Sluice has.
    done = sluice(
        *("configs", "--bootstrap-server", kafka.bootstrap, "--alter", "--user", unique("user")),
        *("--add-config", "producer_ids_rate=5"),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "error 42 INVALID_REQUEST: Invalid configuration key producer_ids_rate" in done.stderr


@pytest.mark.parametrize(
    "mechanism",
    ["PLAIN", *(pytest.param(name, marks=pytest.mark.long) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"))],
)
def test_the_properties_file_of_kafkas_tools_logs_in(
    mechanism: str, kafka: KafkaNode, unique: Unique, tmp_path: Path
) -> None:
    user, app = next(iter(USERS)), unique("app")
    properties = write_properties(
        tmp_path / "client.properties", java_client_properties(mechanism, user, USERS[user])
    )
    place = ("--bootstrap-server", kafka.bootstrap_sasl, "--command-config", str(properties))
    whom = ("--client", app)
    done = sluice("configs", *place, "--alter", "--add-config", "consumer_byte_rate=77", *whom)
    assert done.returncode == 0, done.stderr
    described = run_tool(kafka.dist, "configs", *place, "--describe", *whom).stdout
    assert quotas(described) == [(f"client-id '{app}'", frozenset({"consumer_byte_rate=77.0"}))]
    assert (
        sluice("configs", *place, "--alter", "--delete-config", "consumer_byte_rate", *whom).returncode == 0
    )
    wrong = java_client_properties(mechanism, user, "wrong-password")
    write_properties(properties, wrong)
    done = sluice("configs", *place, "--describe", *whom)
    assert (done.returncode, done.stdout) == (1, "")
    assert "SASL_AUTHENTICATION_FAILED" in done.stderr
    assert "wrong-password" not in done.stderr


def test_a_server_that_is_not_there_is_named(kafka: KafkaNode) -> None:
    done = sluice("configs", "--bootstrap-server", "127.0.0.1:1", "--describe", "--entity-type", "users")
    assert done.returncode == 1
    assert done.stderr.startswith("cannot connect to 127.0.0.1:1: ")


def test_quotas_move_from_a_broker_to_a_file_and_back(
    kafka: KafkaNode, unique: Unique, tmp_path: Path
) -> None:
    user = unique("user")
    server = ("--bootstrap-server", kafka.bootstrap)
    before = sluice("quotas", "export", *server).stdout
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: []\n")
    kafka_configs(kafka, "--alter", "--add-config", "producer_byte_rate=1048576", "--user", user)
    exported = sluice("quotas", "export", *server)
    assert exported.returncode == 0
    assert sluice("quotas", "import", "-", "-q", file, stdin=exported.stdout).returncode == 0
    assert sluice("quotas", "diff", file, *server).stdout == ""
    sluice("configs", "-q", file, "--alter", "--add-config", "producer_byte_rate=2097152", "--user", user)
    line = f"user-principal '{user}': producer_byte_rate=1048576 → 2097152\n"
    dry = sluice("quotas", "apply", file, *server, "--dry-run")
    assert dry.stdout == f"~ {line}{kafka.bootstrap}: 1 change not made (--dry-run).\n"
    assert sluice("quotas", "diff", file, *server).returncode == 1
    assert sluice("quotas", "apply", file, *server).stdout == f"~ {line}{kafka.bootstrap}: 1 change.\n"
    described = quotas(kafka_configs(kafka, "--describe", "--user", user))
    assert described == [(f"user-principal '{user}'", frozenset({"producer_byte_rate=2097152.0"}))]
    assert sluice("quotas", "apply", "-", *server, stdin=before).returncode == 0
    assert sluice("quotas", "export", *server).stdout == before


def test_shadow_mode_is_not_put_in_force_at_a_server(kafka: KafkaNode, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas:\n  - {user: a-shadow, producer_byte_rate: 1, shadow: true}\n")
    done = sluice("quotas", "apply", file, "--bootstrap-server", kafka.bootstrap, "--keep")
    assert done.returncode == 2
    assert "user-principal 'a-shadow': producer_byte_rate is in shadow mode; only a quota file" in done.stderr
    assert "a-shadow" not in configs(kafka, "--describe", "--entity-type", "users")


def test_exempt_rules_for_which_a_server_has_no_place_are_named(kafka: KafkaNode, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    rules = "".join(f"  - user: backup-{number}\n" for number in range(7))
    file.write_text(f"quotas: []\nexempt:\n{rules}")
    server = ("--bootstrap-server", kafka.bootstrap)
    done = sluice("quotas", "apply", file, *server, "--keep")
    assert (done.returncode, done.stdout) == (0, f"{kafka.bootstrap}: 0 changes.\n")
    begin = f"left out, {kafka.bootstrap} has no place for it: "
    assert done.stderr.startswith(f'{begin}exempt: {{"user": "backup-0"}}; exempt: {{')
    assert done.stderr.endswith("; and 2 more\n")
    told = sluice("quotas", "diff", file, *server).stderr
    assert told.startswith(f"not compared, {kafka.bootstrap} cannot tell it: exempt: {{")


def test_nothing_is_changed_where_one_limit_is_refused(kafka: KafkaNode, tmp_path: Path) -> None:
    """By a broker, which has no limit of producer ids; its line names whose it is."""
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "quotas:\n  - {user: a-1, producer_byte_rate: 5}\n  - {user: z-9, producer_ids_rate: 3}\n"
    )
    done = sluice("quotas", "apply", file, "--bootstrap-server", kafka.bootstrap, "--keep")
    assert done.returncode == 1
    assert "user-principal 'z-9': error 42 INVALID_REQUEST: Invalid configuration key" in done.stderr
    assert "a-1" not in configs(kafka, "--describe", "--entity-type", "users")


def test_the_largest_limits_of_a_file_are_those_of_a_server(kafka: KafkaNode, tmp_path: Path) -> None:
    """Kafka keeps doubles: 2⁶³ - 1 came back as 2⁶³, which no file takes, and differed for ever."""
    file, most = tmp_path / "quotas.yaml", 2**63 - 1
    file.write_text(
        f"quotas:\n  - {{user: m-1, producer_byte_rate: {most}}}\n"
        "  - {user: m-2, consumer_byte_rate: 9007199254740993}\n"
    )
    server = ("--bootstrap-server", kafka.bootstrap)
    before = sluice("quotas", "export", *server).stdout
    assert sluice("quotas", "apply", file, *server, "--keep").stdout.endswith(": 2 changes.\n")
    assert sluice("quotas", "apply", file, *server, "--keep").stdout.endswith(": 0 changes.\n")
    set_again = ("--alter", "--add-config", f"producer_byte_rate={most}", "--user", "m-1")
    assert "Nothing to change" in configs(kafka, *set_again)
    exported = sluice("quotas", "export", *server)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert f"producer_byte_rate: {most}\n" in exported.stdout
    assert sluice("quotas", "diff", "-", *server, stdin=exported.stdout).returncode == 0
    assert sluice("quotas", "apply", "-", *server, stdin=before).returncode == 0


def test_who_is_really_called_default_is_not_the_default(kafka: KafkaNode, tmp_path: Path) -> None:
    """A name that a broker takes, and no quota file can write; others it can, and no proxy reads them."""
    server = ("--bootstrap-server", kafka.bootstrap)
    place = QuotaServer(kafka.bootstrap, ClientSettings())
    entities = [("user", "<default>"), ("ip", "localhost"), ("user", " "), ("user", None)]

    def change(rate: float | None) -> None:
        keys = {"user": "producer_byte_rate", "ip": "connection_creation_rate"}
        entries = [
            AlterClientQuotasRequest.EntryData(
                entity=[AlterClientQuotasRequest.EntryData.EntityData(entity_type=kind, entity_name=name)],
                ops=[
                    AlterClientQuotasRequest.EntryData.OpData(
                        key=keys[kind], value=rate or 0.0, remove=rate is None
                    )
                ],
            )
            for kind, name in entities
        ]
        answer = place.server.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
        assert not [entry for entry in answer.entries if entry.error_code]

    change(77.0)
    try:
        described = configs(kafka, "--describe", "--entity-type", "users")
        assert "Quota configs for the default user-principal are producer_byte_rate=77.0\n" in described
        assert (
            "Quota configs for user-principal '<default>' are producer_byte_rate=77.0 (not the" in described
        )
        configs(kafka, "--alter", "--delete-config", "producer_byte_rate", "--user-defaults")
        described = configs(kafka, "--describe", "--entity-type", "users")
        assert "the default user-principal" not in described
        exported = sluice("quotas", "export", *server)
        assert exported.returncode == 1
        assert "<default>" not in exported.stdout
        assert (
            "no quota file can name it: user-principal '<default>': producer_byte_rate=77" in exported.stderr
        )
        assert "'localhost'" in exported.stderr
        assert exported.stderr.count("as printed") == 2
    finally:
        change(None)


@pytest.mark.long
def test_explain_warns_of_limits_that_the_broker_itself_has(
    kafka: KafkaNode, unique: Unique, tmp_path: Path
) -> None:
    """Set by Kafka's own tool; the lower of both rules, of each kind."""
    user, app = unique("user"), unique("app")
    kafka_configs(
        kafka,
        *("--alter", "--add-config", "producer_byte_rate=500000,controller_mutation_rate=7", "--user", user),
    )
    kafka_configs(kafka, "--alter", "--add-config", "consumer_byte_rate=900", "--user", user, "--client", app)
    file = tmp_path / "quotas.yaml"
    file.write_text(
        f"quotas:\n  - {{user: {user}, producer_byte_rate: 600000, consumer_byte_rate: 800}}\n"
        f"  - {{client-id: {app}, controller_mutation_rate: 5, shadow: true}}\n"
    )
    explain = ("quotas", "explain", "--user", user, "--client-id", app, "-q", file)
    server = ("--bootstrap-server", kafka.bootstrap)
    wait_for = time.monotonic() + 20.0
    while "consumer_byte_rate=900" not in configs(kafka, "--describe", "--user", user, "--client", app):
        assert time.monotonic() < wait_for
    done = sluice(*explain, *server)
    assert done.returncode == 0, done.stderr
    begin = f"A limit at the broker {kafka.bootstrap} applies, too: "
    told = [line for line in done.stdout.splitlines() if "t the broker " in line]
    assert told == [
        f"{begin}500,000 bytes per second, shared by user '{user}' (user). "
        "Both apply; the lower rules: the broker's, 500,000 bytes per second.",
        f"{begin}900 bytes per second, shared by user '{user}', client-id '{app}' (user_client). "
        "Both apply; the lower rules: the proxy's, 800 bytes per second.",
        f"{begin}7 partitions created or deleted per second, shared by user '{user}' (user). "
        "The proxy delays nobody here: the broker's rules.",
        f"unlimited, at the broker {kafka.bootstrap}, too: request_percentage, producer_ids_rate",
    ]
    alone = sluice("quotas", "explain", "--user", user, "--client-id", app, *server)
    assert alone.stdout.startswith(f"Limits that {kafka.bootstrap} tells; of tenants, client-id prefixes, ")
    assert f"consumer_byte_rate: 900 bytes per second, shared by user '{user}', " in alone.stdout
    quotas = json.loads(sluice(*explain, *server, "--json").stdout)["quotas"]
    rules = {quota["key"]: (quota["broker"]["limit"], quota["broker"]["rules"]) for quota in quotas}
    assert rules == {
        "producer_byte_rate": (500_000.0, "broker"),
        "consumer_byte_rate": (900.0, "proxy"),
        "request_percentage": (None, None),
        "controller_mutation_rate": (7.0, "broker"),
        "producer_ids_rate": (None, None),
    }
    other = sluice(*explain, *server, "--broker-user", unique("proxy"))
    assert "applies, too" not in other.stdout
    assert "t the broker " not in sluice(*explain).stdout


def test_explain_names_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: []\n")
    explain = ("quotas", "explain", "--user", "alice", "-q", file)
    done = sluice(*explain, "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, "cannot connect to 127.0.0.1:1" in done.stderr) == (1, True)
    assert sluice(*explain, "--broker-user", "bob").returncode == 2


@pytest.mark.slow
def test_both_tools_set_and_describe_the_same_replication_throttles(kafka: KafkaNode, unique: Unique) -> None:
    """KIP-73's four settings, each set by one tool and told, changed and removed by the other."""
    topic = unique("throttled")
    run_tool(kafka.dist, "topics", "--create", "--bootstrap-server", kafka.bootstrap, "--topic", topic)
    rates = "leader.replication.throttled.rate=5000000,follower.replication.throttled.rate=6000000"
    replicas = "leader.replication.throttled.replicas=[0:1,1:1],follower.replication.throttled.replicas=*"
    whoms = {
        ("--entity-type", "brokers", "--entity-name", "1"): rates,
        ("--entity-type", "brokers", "--entity-default"): rates,
        ("--entity-type", "topics", "--entity-name", topic): replicas,
    }
    for whom, values in whoms.items():
        keys = ",".join(re.findall(r"[a-z.]+\.(?:rate|replicas)", values))
        for sets, removes in ((configs, kafka_configs), (kafka_configs, configs)):
            told = sets(kafka, "--alter", *whom, "--add-config", values).splitlines()[0]
            assert settings(configs(kafka, "--describe", *whom)) == settings(
                kafka_configs(kafka, "--describe", *whom)
            )
            assert len(settings(configs(kafka, "--describe", *whom))) == 3
            done = removes(kafka, "--alter", *whom, "--delete-config", keys).splitlines()[0]
            assert done == told
            assert len(settings(configs(kafka, "--describe", *whom))) == 1
    assert configs(kafka, "--describe", "--entity-type", "topics") == ""

    of_nobody = ("--describe", "--entity-type", "brokers", "--entity-name", "77")
    refused = sluice("configs", "--bootstrap-server", kafka.bootstrap, *of_nobody)
    assert (refused.returncode, "there is no broker 77; known: 1" in refused.stderr) == (1, True)


def settings(text: str) -> list[str]:
    """What --describe tells of replication; in Kafka's tool the lines below the first have no order."""
    first, *others = text.splitlines()
    return [first, *sorted(line for line in others if ".replication.throttled." in line)]
