"""`sluice quotas explain` at every place where quotas are, and of addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.limits.scheduled import limits_at
from testkit.proxy.served_limits import served_limits
from testkit.proxy.sluice_command import CONFIG, QUOTAS, Sluice

TOPIC_CONFIG = CONFIG.replace(
    "quotas: {file: quotas.yaml}", "quotas: {source: topic, topic: {bootstrap: ['127.0.0.1:1']}}"
)
OPEN_UNIX_S = 1_795_050_000.0
IN_FORCE = """\
tenants:
  - {name: team-a, members: [alice]}
exempt:
  - {user: backup}
quotas:
  - tenant: team-a
    producer_byte_rate: 700000
    shadow: true
    schedule:
      - {date: 2026-11-18, last_date: 2026-11-30, producer_byte_rate: 900000}
  - {ip: 127.0.0.1, connection_creation_rate: 5}
  - {ip: <default>, connection_creation_rate: 9}
"""
ALICE = ("quotas", "explain", "--user", "alice")


def by_key(out: str) -> dict[str, dict[str, Any]]:
    return {quota["key"]: quota for quota in json.loads(out)["quotas"]}


@pytest.mark.parametrize("place", [("--admin-socket", "admin.sock"), ("--config", "topic.yaml")])
def test_a_running_proxy_tells_what_is_in_force(place: tuple[str, str], folder: Path, sluice: Sluice) -> None:
    (folder / "topic.yaml").write_text(f"{TOPIC_CONFIG}admin: {{socket: admin.sock}}\n")
    limits = limits_at(parse_quotas(IN_FORCE, "f"), OPEN_UNIX_S).limits
    with served_limits(folder / "admin.sock", limits):
        code, out, err = sluice(*ALICE, *place, "--at", "2026-11-19T12:00+00:00")
        assert (code, err) == (0, "")
        assert out.startswith("Limits in force at the proxy of ")
        assert "Member of tenant 'team-a'.\n" in out
        shown = "producer_byte_rate: 900,000 bytes per second, shared by tenant 'team-a'; in shadow mode"
        assert shown in out
        assert "By its schedule (2026-11-18 to 2026-11-30" in out
        _, out, _ = sluice(*ALICE, *place, "--at", "2026-12-19T12:00+00:00", "--json")
        assert by_key(out)["producer_byte_rate"]["limit"] == 700_000
        assert by_key(out)["producer_byte_rate"]["line"] is None


def test_a_configuration_with_a_topic_and_no_socket_is_told_what_else_to_give(
    folder: Path, sluice: Sluice
) -> None:
    (folder / "topic.yaml").write_text(TOPIC_CONFIG)
    for command in (ALICE, ("quotas", "export"), ("configs", "--describe", "--user", "alice")):
        code, out, err = sluice(*command, "-c", "topic.yaml")
        assert (code, out) == (2, "")
        ways = (
            "--bootstrap-server",
            "--command-config FILE",
            "admin.socket",
            "--quotas FILE",
            "sluice top --why",
        )
        for told in ("come from a topic", *ways):
            assert told in " ".join(err.replace("│", " ").split())


def test_a_server_alone_is_the_place_and_beside_a_file_the_broker_behind(
    folder: Path, sluice: Sluice
) -> None:
    (folder / "topic.yaml").write_text(TOPIC_CONFIG)
    for arguments in ((), ("-q", "quotas.yaml"), ("-c", "topic.yaml")):
        code, _, err = sluice(*ALICE, "--bootstrap-server", "127.0.0.1:1", *arguments)
        assert (code, "cannot connect to 127.0.0.1:1" in err) == (1, True)
    assert sluice(*ALICE, "--bootstrap-server", "127.0.0.1:1", "--broker-user", "x")[0] == 2
    assert sluice(*ALICE, "--broker-user", "x", "-q", "quotas.yaml")[0] == 2


def test_standard_input_is_a_place_that_is_only_read(sluice: Sluice) -> None:
    told = "5,000 bytes per second, shared by user 'bob' (standard input:6)\n"
    code, out, err = sluice("quotas", "explain", "--user", "bob", "-q", "-", stdin=QUOTAS)
    assert (code, told in out, err) == (0, True, "")
    code, out, _ = sluice("configs", "--describe", "--user-defaults", "-q", "-", stdin=QUOTAS)
    assert (code, out.count("producer_byte_rate=5000.0")) == (0, 1)
    alter = ("configs", "--alter", "--add-config", "producer_byte_rate=1", "--user", "a")
    code, out, err = sluice(*alter, "-q", "-", stdin=QUOTAS)
    assert (code, out, err) == (2, "", "standard input: is only read; name a file to change\n")


def test_file_and_line_of_the_entry_that_applies_are_told(sluice: Sluice) -> None:
    code, out, _ = sluice(*ALICE, "--client-id", "app-1", "-q", "quotas.yaml", "--json")
    assert (code, json.loads(out)["source"]) == (0, "quotas.yaml")
    assert by_key(out)["producer_byte_rate"]["line"] == 4
    assert by_key(out)["consumer_byte_rate"]["line"] is None


@pytest.mark.parametrize(
    ("address", "limit", "rule", "line"),
    [("127.0.0.1", 5, "ip", 11), ("::ffff:127.0.0.1", 5, "ip", 11), ("10.0.0.1", 9, "default_ip", 12)],
)
def test_an_address_has_its_limit_of_new_connections(
    address: str, limit: int, rule: str, line: int, folder: Path, sluice: Sluice
) -> None:
    (folder / "quotas.yaml").write_text(IN_FORCE)
    _, out, _ = sluice(*ALICE, "-q", "quotas.yaml", "--address", address, "--json")
    found = by_key(out)["connection_creation_rate"]
    assert (found["limit"], found["rule"], found["line"]) == (limit, rule, line)
    assert [level["rule"] for level in found["levels"] if level["applies"]] == [rule]
    _, out, _ = sluice(*ALICE, "-q", "quotas.yaml", "--address", address)
    assert f"connection_creation_rate: {limit} new connections per second from ip " in out
    assert f"(quotas.yaml:{line})\n" in out


def test_without_an_address_it_is_told_that_there_are_limits_of_addresses(
    folder: Path, sluice: Sluice
) -> None:
    (folder / "quotas.yaml").write_text(IN_FORCE)
    _, out, _ = sluice(*ALICE, "-q", "quotas.yaml")
    assert "connection_creation_rate: is of addresses; --address tells which limit applies.\n" in out
    code, _, err = sluice(*ALICE, "-q", "quotas.yaml", "--address", "a-host")
    assert (code, "must be an address such as 10.1.2.3" in err) == (2, True)


def test_who_is_exempt_by_the_address_alone_connects_as_fast_as_he_likes(
    folder: Path, sluice: Sluice
) -> None:
    for rule, is_told in (("address: 127.0.0.0/8", True), ("user: alice, address: 127.0.0.0/8", False)):
        (folder / "quotas.yaml").write_text(IN_FORCE.replace("user: backup", rule))
        _, out, _ = sluice(*ALICE, "-q", "quotas.yaml", "--address", "127.0.0.1")
        (line,) = [line for line in out.splitlines() if line.startswith("connection_creation_rate: ")]
        assert ("; exempt by the rule address 127.0.0.0/8" in line) is is_told


def test_quotas_without_a_limit_are_one_line(folder: Path, sluice: Sluice) -> None:
    (folder / "quotas.yaml").write_text("quotas: []\n")
    code, out, _ = sluice(*ALICE, "-q", "quotas.yaml", "--address", "10.0.0.1")
    keys = "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, "
    assert code == 0
    assert out == (
        "Limits of the quota file quotas.yaml.\n\n"
        f"unlimited: {keys}producer_ids_rate, connection_creation_rate\n"
    )


LONG_NAME = "team-a-very-long-name-of-a-service-account@EXAMPLE.COM"


@pytest.mark.parametrize("columns", ["60", "80", "100"])
def test_a_narrow_terminal_has_every_name_whole_and_a_level_a_line(
    columns: str, folder: Path, sluice: Sluice
) -> None:
    (folder / "quotas.yaml").write_text(
        "quotas:\n- {user: <default>, producer_byte_rate: 1048576}\n- {user: x, producer_byte_rate: 1}\n"
    )
    asked = ("quotas", "explain", "--user", LONG_NAME, "--client-id", "reports", "--quotas", "quotas.yaml")
    _, out, _ = sluice(*asked, environ={"COLUMNS": columns})
    assert "…" not in out
    assert f"  user '{LONG_NAME}' (user)\n" in out
    assert "→ user <default> (default_user): 1,048,576\n    Applies: the first level" in out
    assert "Nothing is configured" not in out  # a level without a limit needs no sentence


def test_no_line_ends_in_blanks(folder: Path, sluice: Sluice) -> None:
    (folder / "quotas.yaml").write_text("quotas:\n- {user: alice, producer_byte_rate: 1048576}\n")
    _, out, _ = sluice(*ALICE, "--quotas", "quotas.yaml")
    assert "→  user" in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        (
            ("--user", "tenant:team-a"),
            "tenant:team-a is what metrics call a tenant; ask for a member: --user alice",
        ),
        (
            ("--user", "alice", "--client-id", "etl-*"),
            "etl-* is what metrics call a prefix; ask for a client id: --client-id etl-1",
        ),
        (("--user", "<default>"), "<default> is no client's name; ask for one that has no entry of its own."),
    ],
)
def test_a_label_or_the_default_in_the_place_of_a_name_is_told_what_to_ask_for(
    asked: tuple[str, ...], hint: str, folder: Path, sluice: Sluice
) -> None:
    (folder / "quotas.yaml").write_text(IN_FORCE)
    _, out, _ = sluice("quotas", "explain", *asked, "--quotas", "quotas.yaml")
    assert hint in out.splitlines()
    _, out, _ = sluice(*ALICE, "--quotas", "quotas.yaml")
    assert "ask for" not in out
