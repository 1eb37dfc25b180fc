"""The command `sluice`, as users call it: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from sluice.proxy.__main__ import main as entry_point
from sluice.proxy.config.config import LIVE_OPTIONS, Config
from sluice.proxy.config.file import variable_names
from sluice.proxy.config.schema import config_schema_text
from sluice.proxy.quota_store.schema import quotas_schema_text
from testkit.proxy.sluice_command import CONFIG, QUOTAS, Sluice
from tools.reference import documents


def test_check_of_a_good_configuration_tells_what_it_says(sluice: Sluice) -> None:
    code, out, err = sluice("check", "sluice.yaml")
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if not line.startswith("  warning: ")] == [
        "OK: sluice.yaml",
        "  listener clients: 0.0.0.0:9092 -> kafka:19092 (PLAINTEXT)",
        "  quota file quotas.yaml: limits for 2 entities",
        "  metrics and health: 0.0.0.0:9308",
    ]


def test_check_recognises_a_quota_file(sluice: Sluice) -> None:
    assert sluice("check", "quotas.yaml") == (0, "OK: quotas.yaml: limits for 2 entities\n", "")


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("sluice.yaml", CONFIG + "drian: 1\n", "sluice.yaml:4: drian: unknown key; did you mean drain?"),
        (
            "sluice.yaml",
            CONFIG.replace("quotas.yaml", "none.yaml"),
            "sluice.yaml:3: quotas.file: none.yaml: cannot read the quota file: no such file or directory",
        ),
        (
            "sluice.yaml",
            CONFIG.replace("quotas.yaml", "sluice.yaml"),
            "sluice.yaml:3: quotas.file: sluice.yaml: is a configuration; give the quota file that it names",
        ),
        (
            "quotas.yaml",
            QUOTAS.replace("5000", "0"),
            "quotas.yaml:6: quotas[1].producer_byte_rate: "
            "Quota producer_byte_rate must be greater than 0; is 0 (bytes per second)",
        ),
    ],
)
@pytest.mark.parametrize("command", [["check", "sluice.yaml"], ["run", "--config", "sluice.yaml"]])
def test_a_bad_file_is_told_by_key_and_line_with_exit_code_2(
    folder: Path, sluice: Sluice, command: list[str], file: str, text: str, problem: str
) -> None:
    (folder / file).write_text(text)
    code, out, err = sluice(*command)
    assert (code, out, err) == (2, "", problem + "\n")


def test_variables_count_when_a_configuration_is_checked(sluice: Sluice) -> None:
    code, _, err = sluice("check", "sluice.yaml", environ={"SLUICE_LOG__LEVEL": "loud"})
    assert code == 2
    assert err.startswith("SLUICE_LOG__LEVEL: log.level: must be 'debug'")


def test_run_takes_the_configuration_file_from_the_environment(folder: Path, sluice: Sluice) -> None:
    (folder / "sluice.yaml").write_text("mode: x\n")
    code, _, err = sluice("run", environ={"SLUICE_CONFIG": "sluice.yaml"})
    assert code == 2
    assert "sluice.yaml:1: mode: must be 'broker' or 'gateway'; is 'x'\n" in err


@pytest.mark.parametrize("source", [("--quotas", "quotas.yaml"), ("--config", "sluice.yaml")])
def test_explain_tells_which_level_applies_and_why(sluice: Sluice, source: tuple[str, str]) -> None:
    code, out, _ = sluice("quotas", "explain", "--user", "alice", "--client-id", "app-1", *source)
    assert code == 0
    assert (
        "producer_byte_rate: 1,048,576 bytes per second, shared by user 'alice', client-id 'app-1' "
        "(quotas.yaml:4)\n" in out
    )
    limited, others = out.split("unlimited: ")
    assert others.startswith("consumer_byte_rate, request_percentage, ")
    produce = limited.splitlines()
    assert [line for line in produce if line.startswith("→  user_client ")]
    other = next(line for line in produce if line.startswith("   default_user "))
    assert "5,000" in other
    assert "Has a producer_byte_rate, but user_client comes first in the order." in other


def test_explain_as_json_has_all_eight_levels_of_each_quota(sluice: Sluice) -> None:
    code, out, _ = sluice("quotas", "explain", "--user", "User:bob", "--json", "-q", "quotas.yaml")
    answer = json.loads(out)
    assert code == 0
    assert (answer["user"], answer["client_id"]) == ("bob", "")
    produce, fetch, *others = answer["quotas"]
    assert [quota["key"] for quota in others] == [
        "request_percentage",
        "controller_mutation_rate",
        "producer_ids_rate",
    ]
    assert (produce["limit"], produce["rule"], produce["shared_by"]) == (
        5000,
        "default_user",
        {"user": "bob"},
    )
    assert (fetch["limit"], fetch["rule"], fetch["shared_by"]) == (None, None, None)
    assert [level["rule"] for level in produce["levels"] if level["applies"]] == ["default_user"]
    assert len(produce["levels"]) == len(fetch["levels"]) == len(others[0]["levels"]) == 8


EXPLAINED = """\
exempt:
  - {user: alice, address: 10.0.0.0/8}
quotas:
  - user: alice
    producer_byte_rate: 1000
    shadow: true
"""


def test_explain_tells_of_exempt_rules_and_of_shadow_mode(folder: Path, sluice: Sluice) -> None:
    (folder / "quotas.yaml").write_text(EXPLAINED)
    explain = ("quotas", "explain", "--user", "alice", "-q", "quotas.yaml")
    _, out, _ = sluice(*explain, "--address", "::ffff:10.1.2.3")
    assert "exempt: no limit delays it, by the rule user 'alice', address 10.0.0.0/8\n" in out
    _, out, _ = sluice(*explain)
    assert "Some exempt rules name addresses; --address tells whether one of them applies.\n" in out
    shown = (
        "1,000 bytes per second, shared by user 'alice'; in shadow mode: measured and logged, delays nobody "
    )
    assert shown in out
    assert "1,000 (shadow)" in out
    _, out, _ = sluice(*explain, "--json", "--address", "10.1.2.3")
    answer = json.loads(out)
    assert answer["exempt_by"] == {"user": "alice", "address": "10.0.0.0/8"}
    assert [quota["shadow"] for quota in answer["quotas"]] == [True, *[False] * 5]
    _, out, _ = sluice(*explain, "--json", "--address", "11.1.2.3")
    assert json.loads(out)["exempt_by"] is None
    assert sluice("check", "quotas.yaml")[1] == "OK: quotas.yaml: limits for 1 entity, 1 exempt rule\n"


def test_explain_tells_what_becomes_of_what_is_over_budget(folder: Path, sluice: Sluice) -> None:
    entry = "quotas:\n  - user: alice\n    producer_byte_rate: 1000\n    consumer_byte_rate: 1000\n"
    explain = ("quotas", "explain", "--user", "alice", "-q", "quotas.yaml")
    for said, told in (("", "forward"), ("    over_budget: refuse\n", "refuse")):
        (folder / "quotas.yaml").write_text(entry + said)
        _, out, _ = sluice(*explain, "--json")
        over = {quota["key"]: quota["over_budget"] for quota in json.loads(out)["quotas"]}
        assert (over["producer_byte_rate"], over["consumer_byte_rate"]) == (told, None)
        _, out, _ = sluice(*explain)
        assert out.count("; over budget: refuse (") == bool(said)


GROUPS = """\
tenants:
  - {name: team-a, members: [alice, bob]}
quotas:
  - tenant: team-a
    producer_byte_rate: 1000
  - user: <default>
    client-id-prefix: etl-
    consumer_byte_rate: 2000
"""


def test_explain_tells_of_tenants_and_prefixes(folder: Path, sluice: Sluice) -> None:
    (folder / "quotas.yaml").write_text(GROUPS)
    explain = ("quotas", "explain", "--user", "alice", "--client-id", "etl-7", "-q", "quotas.yaml")
    _, out, _ = sluice(*explain)
    assert "Member of tenant 'team-a'.\n" in out
    assert "producer_byte_rate: 1,000 bytes per second, shared by tenant 'team-a' (quotas.yaml:5)\n" in out
    assert "shared by user 'alice', client-id-prefix 'etl-' (quotas.yaml:8)\n" in out
    _, out, _ = sluice(*explain, "--json")
    answer = json.loads(out)
    produce, fetch = answer["quotas"][:2]
    assert (answer["tenant"], produce["rule"], produce["shared_by"]) == (
        "team-a",
        "tenant",
        {"tenant": "team-a"},
    )
    assert fetch["rule"] == "default_user_client_prefix"
    assert [level["rule"] for level in fetch["levels"] if not level["kafkas"]] == [
        "tenant_client",
        "tenant_default_client",
        "tenant",
        "default_user_client_prefix",
    ]
    assert sluice("check", "quotas.yaml")[1] == "OK: quotas.yaml: limits for 2 entities, 1 tenant\n"


def test_explain_needs_a_file(sluice: Sluice) -> None:
    code, _, err = sluice("quotas", "explain", "--user", "bob")
    assert code == 2
    assert "give --quotas FILE or --config FILE" in err
    code, out, _ = sluice(
        "quotas", "explain", "--user", "bob", environ={"SLUICE_QUOTAS__FILE": "quotas.yaml"}
    )
    assert code == 0
    assert "producer_byte_rate: 5,000 bytes per second" in out


def test_decode_answers_each_line_and_ends_with_1_if_one_was_bad(sluice: Sluice) -> None:
    # ApiVersions v0 request: api key 18, version 0, correlation id 7, client id "a", no body.
    good = json.dumps(
        {"api_key": 18, "api_version": 0, "direction": "request", "hex": "0012000000000007000161"}
    )
    code, out, _ = sluice("decode", "--roundtrip", stdin=good + "\n")
    assert code == 0
    assert json.loads(out)["hex"] == "0012000000000007000161"
    code, out, err = sluice("decode", stdin=good + "\nnonsense\n")
    assert (code, err) == (1, "")
    assert ["error" in json.loads(line) for line in out.splitlines()] == [False, True]
    code, out, err = sluice("decode", stdin=f"\udcff\n{good}\n")  # a byte that is not UTF-8
    assert (code, err) == (1, "")
    assert ["error" in json.loads(line) for line in out.splitlines()] == [True, False]


def test_version_names_sluice_and_the_protocol(sluice: Sluice) -> None:
    code, out, _ = sluice("version")
    assert code == 0
    assert out.startswith("sluice 0.")
    assert "Kafka protocol 4.3.1" in out


def test_wrong_usage_ends_with_2_and_help_names_the_exit_codes(sluice: Sluice) -> None:
    assert sluice("bogus")[0] == 2
    assert sluice("check")[0] == 2
    code, out, _ = sluice("run", "--help")
    assert code == 0
    assert "2 bad configuration, quota file or arguments" in " ".join(out.split())


@pytest.mark.parametrize("command", [["version"], ["check", "quotas.yaml"], ["--help"]])
def test_a_small_command_does_not_load_the_server(folder: Path, command: list[str]) -> None:
    program = (
        "import sys\nfrom sluice.proxy.cli.main import main\n"
        f"sys.argv = ['sluice', *{command!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "sluice.proxy.cli.main" in loaded
    assert not {"uvicorn", "starlette", "structlog", "prometheus_client", "uvloop"} & loaded


def test_a_reader_that_leaves_early_causes_no_traceback(folder: Path) -> None:
    command = f"{sys.executable} -m sluice.proxy schema config | true"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_the_schemas_are_printed_as_they_stand_in_docs(sluice: Sluice) -> None:
    assert sluice("schema", "config")[:2] == (0, config_schema_text())
    assert sluice("schema", "quotas")[:2] == (0, quotas_schema_text())


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (CONFIG, True),
        (CONFIG + "pacing: {burst_s: 2}\n", True),
        (CONFIG + "pacing: {burst_s: 0}\n", False),
        (CONFIG + "pacing: {brust_s: 1}\n", False),
        (CONFIG.replace("9092", "99999"), False),
        ("quotas: {file: q}\n", False),
    ],
)
def test_the_json_schema_of_the_configuration_judges_as_the_reader_does(text: str, is_valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(config_schema_text()))
    assert validator.is_valid(yaml.safe_load(text)) == is_valid


def test_the_reference_in_docs_is_what_the_code_says() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs"
    for name, text in documents().items():
        assert (docs / name).read_text(encoding="utf-8") == text, "run `python -m tools.reference`"


def test_every_option_is_in_the_reference_with_its_variable() -> None:
    text = documents()["configuration.md"]
    sections = {name.removeprefix("SLUICE_").lower().rpartition("__")[0] for name in variable_names()} - {""}
    assert sections > {"quotas", "quotas__topic", "quotas__topic__tls"}
    for variable in variable_names():
        path = variable.removeprefix("SLUICE_").lower().split("__")
        if len(path) > 1 and "__".join(path) not in sections:
            live = " ↻" if ".".join(path) in LIVE_OPTIONS else ""
            assert f"| `{path[-1]}`{live} | `{variable}` |" in text


def test_options_that_change_while_traffic_flows_are_marked_and_exist() -> None:
    text = documents()["configuration.md"]
    for option in LIVE_OPTIONS:
        section, _, name = option.rpartition(".")
        owner = Config.model_fields[section].annotation if section else Config
        assert name in getattr(owner, "model_fields", {}), option
        assert f"| `{name}` ↻ |" in text


@pytest.mark.parametrize("command", [["check", "sluice.yaml"], ["run", "--config", "sluice.yaml"]])
def test_a_folder_that_is_not_there_for_the_snapshot_is_named(
    sluice: Sluice, folder: Path, command: list[str]
) -> None:
    (folder / "sluice.yaml").write_text(CONFIG + "producer_ids: {snapshot_file: away/ids}\n")
    code, out, err = sluice(*command)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(
        "sluice.yaml:4: producer_ids.snapshot_file: there is no folder away; make it"
    )


def test_metrics_named_beside_kafkas_sensors_exist() -> None:
    text = documents()["metrics.md"]
    tables, sensors = text.split("## Kafka's sensors and metrics, and ours")
    named = set(re.findall(r"`(sluice_[a-z_]+)", sensors))
    assert len(named) > 10
    assert named <= set(re.findall(r"^\| `(sluice_[a-z_]+)`", tables, re.MULTILINE))


@pytest.mark.parametrize("arguments", [("check", "quotas.yaml"), ("schema", "config"), ("--version",)])
def test_a_full_disk_is_told_in_a_line(arguments: tuple[str, ...], folder: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sluice.proxy", *arguments], cwd=folder, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "cannot write: no space left on device\n")


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_mistake_has_its_exit_code_where_it_cannot_be_told(tmp_path: Path, command: str) -> None:
    (tmp_path / "bad.yaml").write_text("listenrs: []\n")
    with open("/dev/full", "w", encoding="utf-8") as full:
        arguments = [sys.executable, "-m", "sluice.proxy", command, "--config", str(tmp_path / "bad.yaml")]
        done = subprocess.run(arguments, stderr=full, timeout=60, check=False)
    assert done.returncode == 2


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sluice.proxy.cli.main.main", interrupted)
    monkeypatch.setattr(sys, "argv", ["sluice", "check"])
    with pytest.raises(SystemExit) as ended:
        entry_point()
    assert (ended.value.code, capsys.readouterr().err) == (130, "")


def test_run_without_anything_asks_for_a_file(sluice: Sluice) -> None:
    code, _, err = sluice("run")
    assert code == 2
    assert "give FILE, --config or SLUICE_CONFIG" in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("top",), "Exit codes: 0 success; 1 failed; 2 bad configuration, quota file or arguments."),
        (("quotas", "diff"), "Exit codes: 0 no difference; 1 they differ"),
        (("run",), "Exit codes: 0 drained, after SIGTERM or SIGINT;"),
    ],
)
def test_help_has_the_exit_codes_of_its_command_alone(
    arguments: tuple[str, ...], told: str, sluice: Sluice
) -> None:
    _, out, _ = sluice(*arguments, "--help")
    assert told in " ".join(out.split())
    assert "decode" not in out


@pytest.mark.parametrize("command", ["recalibrate", "spark-jars"])
def test_completion_is_the_whole_commands_to_install(command: str, sluice: Sluice) -> None:
    assert "--install-completion" not in sluice(command, "--help")[1]


@pytest.mark.parametrize("command", ["top", "connections"])
def test_a_running_proxy_is_found_by_the_file_as_run_takes_it(
    command: str, folder: Path, sluice: Sluice
) -> None:
    (folder / "sluice.yaml").write_text(f"{CONFIG}admin: {{socket: none.sock}}\n")
    code, _, err = sluice(command, "sluice.yaml")
    assert (code, err) == (
        1,
        "none.sock: no such file or directory; does the proxy run, with admin.socket set?\n",
    )
