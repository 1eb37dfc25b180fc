"""`sluice check` tells every mistake of every file at once; it and `run` take their file alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testkit.proxy.sluice_command import Sluice

BAD_CONFIG = """\
mode: gateway
listeners:
  - name: clients
    bind_port: 9092x
    gateway: {bootstrap_upstreams: ["k:9092"], advertised_host: a, first_broker_port: 9093, max_brokers: 200}
  - name: clients
    bind_port: 9100
    gateway: {bootstrap_upstreams: ["k:9092"], advertised_host: a, first_broker_port: 9101, max_brokers: 200}
quotas: {file: quotas.yaml}
log: {level: loud}
"""
BAD_QUOTAS = """\
quotas:
  - user: alice
    producer_byte_rate: 1.5 MiB/s
"""


def test_check_tells_the_mistakes_of_all_files_at_once_also_those_behind_others(
    sluice: Sluice, folder: Path
) -> None:
    """Which name is given twice and which ports overlap is compared where each option is fine by itself."""
    (folder / "sluice.yaml").write_text(BAD_CONFIG)
    (folder / "quotas.yaml").write_text(BAD_QUOTAS)
    code, out, err = sluice("check", "sluice.yaml")
    assert (code, out) == (2, "")
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        ["sluice.yaml:4", "listeners[0].bind_port"],
        ["sluice.yaml:6", "listeners[1].name"],
        ["sluice.yaml:7", "listeners[1].bind_port"],
        ["sluice.yaml:8", "listeners[1].gateway.first_broker_port"],
        ["sluice.yaml:10", "log.level"],
        ["quotas.yaml:3", "quotas[0].producer_byte_rate"],
    ]
    assert "ports 9101 to 9292 are taken by listener 'clients' for a broker already" in err
    assert "(bytes per second); write 1572864" in err


def test_check_tells_mistakes_as_json(sluice: Sluice, folder: Path) -> None:
    code, out, err = sluice("check", "--json", "sluice.yaml")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["ok"], told["problems"]) == (True, [])
    (folder / "quotas.yaml").write_text(BAD_QUOTAS)
    code, out, err = sluice("check", "--json", "sluice.yaml")
    (problem,) = json.loads(out)["problems"]
    assert (code, err) == (2, "")
    assert (problem["file"], problem["line"], problem["key"]) == (
        "quotas.yaml",
        3,
        "quotas[0].producer_byte_rate",
    )


SASL_CONFIG = """\
listeners:
  - name: clients
    bind_port: 9092
    upstream_host: kafka
    upstream_port: 19092
    security_protocol: SASL_PLAINTEXT
quotas: {file: quotas.yaml}
"""


def test_what_run_will_warn_of_is_told_and_is_no_mistake(sluice: Sluice, folder: Path) -> None:
    (folder / "sluice.yaml").write_text(SASL_CONFIG)
    (folder / "quotas.yaml").write_text("quotas: [{user: alice, producer_byte_rate: 1000}]\n")
    code, out, err = sluice("check", "sluice.yaml")
    assert (code, err) == (0, "")
    assert "  warning: inter broker not declared: a follower that fetches through this proxy" in out
    assert "  warning: unnamed users have the lowest limit (produce): logins whose user is not known" in out
    events = [one["event"] for one in json.loads(sluice("check", "--json", "sluice.yaml")[1])["warnings"]]
    assert events == ["inter_broker_not_declared", "unnamed_users_have_the_lowest_limit"]
    (folder / "sluice.yaml").write_text(SASL_CONFIG + "inter_broker: {}\n")
    (folder / "quotas.yaml").write_text("quotas: []\n")
    assert "warning" not in sluice("check", "sluice.yaml")[1]


def test_check_takes_its_file_as_run_does(sluice: Sluice) -> None:
    first = sluice("check", "sluice.yaml")
    assert first[0] == 0
    assert sluice("check", "--config", "sluice.yaml") == first
    assert sluice("check", environ={"SLUICE_CONFIG": "sluice.yaml"}) == first
    assert "give FILE, --config or SLUICE_CONFIG" in sluice("check")[2]


def test_run_takes_its_file_as_check_does(sluice: Sluice, folder: Path) -> None:
    (folder / "sluice.yaml").write_text("log: {level: loud}\n")
    code, _, err = sluice("run", "sluice.yaml")
    assert code == 2
    assert "sluice.yaml:1: log.level" in err


def test_the_versions_are_an_option_too(sluice: Sluice) -> None:
    assert sluice("--version") == sluice("version")


def test_a_quota_file_that_is_written_wrongly_is_not_taken_for_a_configuration(
    sluice: Sluice, folder: Path
) -> None:
    for text in (
        "quotas:\n  alice:\n    producer_byte_rate: 1\n",
        "quotas:\n  user: alice\n  producer_byte_rate: 1\n",
        "- user: alice\n  producer_byte_rate: 1\n",
    ):
        (folder / "quotas.yaml").write_text(text)
        code, _, err = sluice("check", "quotas.yaml")
        assert code == 2
        assert "a list of" in err, err
        assert "listeners" not in err, err


def test_names_that_look_like_the_default_are_warned_of(sluice: Sluice, folder: Path) -> None:
    entries = "".join(f"- {{user: '{name}', producer_byte_rate: 1}}\n" for name in ("*", "default", "bob "))
    (folder / "quotas.yaml").write_text(f"quotas:\n{entries}- {{user: <default>, producer_byte_rate: 1}}\n")
    for file in ("quotas.yaml", "sluice.yaml"):
        code, out, _ = sluice("check", file)
        assert code == 0
        assert "names taken to the letter ('*', 'bob ', 'default'): " in out
    (folder / "quotas.yaml").write_text("quotas:\n- {user: <default>, producer_byte_rate: 1}\n")
    assert "to the letter" not in sluice("check", "quotas.yaml")[1]


def test_names_that_are_nearly_those_of_sluice_are_warned_of(sluice: Sluice, folder: Path) -> None:
    """`<defualt>` is nobody, and whom it was to hold has no limit."""
    users = ["<defualt>", "<delegation_token>", "anonymous", "ANONYMOUS", "<unknown>", "<delegation-token>"]
    client_ids = ["<defualt-id>", "<unknown>", "anonymous"]
    entries = "".join(f"- {{user: '{name}', producer_byte_rate: 1}}\n" for name in users)
    entries += "".join(f"- {{client-id: '{name}', producer_byte_rate: 1}}\n" for name in client_ids)
    (folder / "quotas.yaml").write_text(f"quotas:\n{entries}")
    told = "'<defualt-id>', '<defualt>', '<delegation_token>', '<unknown>', 'anonymous'"
    assert f"names taken to the letter ({told}): " in sluice("check", "quotas.yaml")[1]
    entries = "".join(f"- {{user: '{name}', producer_byte_rate: 1}}\n" for name in users[3:])
    (folder / "quotas.yaml").write_text(
        f"quotas:\n{entries}- {{client-id: anonymous, producer_byte_rate: 1}}\n"
    )
    assert "to the letter" not in sluice("check", "quotas.yaml")[1]


def test_an_empty_quota_file_is_told_what_one_without_limits_is(sluice: Sluice, folder: Path) -> None:
    for text in ("", "# - user: alice\n", "quotas:\n", "quotas:\nexempt: []\n"):
        (folder / "quotas.yaml").write_text(text)
        code, _, err = sluice("check", "quotas.yaml")
        assert code == 2
        assert "quotas: []" in err, (text, err)


def test_all_keys_that_stand_twice_are_told_at_once(sluice: Sluice, folder: Path) -> None:
    (folder / "sluice.yaml").write_text(
        "quotas:\n  file: quotas.yaml\n  file: other.yaml\nmode: broker\nmode: gateway\n"
    )
    code, _, err = sluice("check", "sluice.yaml")
    assert (code, [line.split(": ")[:2] for line in err.splitlines()]) == (
        2,
        [["sluice.yaml:3", "quotas.file"], ["sluice.yaml:5", "mode"]],
    )


def test_a_configuration_and_a_quota_file_in_the_place_of_one_another_are_told_apart(
    sluice: Sluice, folder: Path
) -> None:
    for command in ("run", "top", "connections"):
        code, _, err = sluice(command, "quotas.yaml")
        assert (code, err) == (2, "quotas.yaml: is a quota file; give the configuration that names it\n")
    told = "sluice.yaml: is a configuration; give the quota file that it names\n"
    asked = (("quotas", "explain", "--user", "alice"), ("configs", "--describe"), ("quotas", "export"))
    for arguments in asked:
        code, _, err = sluice(*arguments, "--quotas", "sluice.yaml")
        assert (code, err) == (2, told)


def test_a_fetch_without_anything_asks_for_a_configuration(sluice: Sluice) -> None:
    code, _, err = sluice("access-log", "fetch", "folder")
    assert (code, "give --config or SLUICE_CONFIG" in err) == (2, True)


@pytest.mark.parametrize("command", [["check", "sluice.yaml"], ["run", "--config", "sluice.yaml"]])
def test_a_nul_in_the_quota_files_name_is_told_as_other_mistakes_are(
    command: list[str], sluice: Sluice, folder: Path
) -> None:
    """Which file it is `check` tells also of a configuration that has mistakes."""
    listener = "{name: a, bind_port: 39092, upstream_host: kafka, upstream_port: 9092}"
    (folder / "sluice.yaml").write_text(f'listeners: [{listener}]\nquotas: {{file: "a\\0b"}}\n')
    code, out, err = sluice(*command)
    assert (code, out) == (2, "")
    nul = "must not hold the character NUL (\\0), which no file, host or name can have"
    assert err == f"sluice.yaml:2: quotas.file: {nul}\n"


def test_bounds_that_are_never_reached_are_warned_of_where_somebody_has_set_them(
    sluice: Sluice, folder: Path
) -> None:
    base = (folder / "sluice.yaml").read_text()
    (folder / "sluice.yaml").write_text(base + "limits: {max_connections: 10}\n")
    assert "bounds without effect" not in sluice("check", "sluice.yaml")[1]
    above = "max_unauthenticated_connections: 1000, max_connections_per_user: 10, max_connections_per_ip: 11"
    (folder / "sluice.yaml").write_text(base + f"limits: {{max_connections: 10, {above}}}\n")
    code, out, err = sluice("check", "sluice.yaml")
    assert (code, err) == (0, "")
    (told,) = (line for line in out.splitlines() if "bounds without effect" in line)
    assert "(limits.max_unauthenticated_connections 1000, limits.max_connections_per_ip 11)" in told
    assert "limits.max_connections is 10" in told
