"""What a configuration may say, where a value comes from, and that errors say key, place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from sluice.proxy.config.config import Config
from sluice.proxy.config.file import load_config, variable_names
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.pacing import PacingOptions
from sluice.proxy.config.quotas import QuotaOptions
from sluice.quotas.files.config_error import ConfigError
from testkit.proxy.configurations import GOOD, errors_of, write


def test_the_smallest_configuration_names_a_listener_and_the_quota_file(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD), {})
    assert config.listeners == (
        ListenerOptions(name="clients", bind_port=9092, upstream_host="127.0.0.1", upstream_port=19092),
    )
    assert config.pacing == PacingOptions()
    assert config.admin.bind_port == 9308


def test_a_relative_quota_file_starts_at_the_configuration_files_folder(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, GOOD), {}).quotas.file == tmp_path / "quotas.yaml"


def test_a_quota_file_named_in_the_environment_starts_at_the_working_directory(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD), {"SLUICE_QUOTAS__FILE": "here.yaml"})
    assert config.quotas.file == Path("here.yaml")


def test_the_environment_goes_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    text = GOOD + "pacing:\n  burst_s: 2\n  max_debt_s: 30\n"
    config = load_config(write(tmp_path, text), {"SLUICE_PACING__BURST_S": "3.5"})
    assert (config.pacing.burst_s, config.pacing.max_debt_s, config.pacing.answer_budget_s) == (
        3.5,
        30.0,
        8.0,
    )


def test_the_environment_alone_can_configure_everything() -> None:
    environ = {
        "SLUICE_LISTENERS": '[{"name": "a", "bind_port": 1, "upstream_host": "kafka", "upstream_port": 2}]',
        "SLUICE_QUOTAS__FILE": "/etc/sluice/quotas.yaml",
        "SLUICE_DRAIN": "{deadline_s: 7}",
    }
    config = load_config(None, environ)
    assert config.listeners[0].upstream_host == "kafka"
    assert config.drain.deadline_s == 7


def test_a_built_configuration_cannot_be_changed(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, GOOD), {})
    with pytest.raises(ValidationError):
        config.pacing.burst_s = 9.0


ONE_WRONG_KEY = [
    (
        "brust_s",
        "pacing:\n  brust_s: 2\n",
        "sluice.yaml:9: pacing.brust_s: unknown key; did you mean burst_s?",
    ),
    (
        "only the quota topic has a copy",
        "access_log:\n  topic:\n    bootstrap: [kafka:9092]\n    copy_file: copy.json\n",
        "sluice.yaml:11: access_log.topic.copy_file: unknown key; known here: bootstrap, name, partitions, "
        "replication_factor, request_timeout_s, retention_s, sasl, security_protocol, tls",
    ),
    ("top level", "moed: broker\n", "sluice.yaml:8: moed: unknown key; did you mean mode?"),
    ("mode", "mode: sidecar\n", "sluice.yaml:8: mode: must be 'broker' or 'gateway'; is 'sidecar'"),
    ("text", "drain:\n  deadline_s: soon\n", "sluice.yaml:9: drain.deadline_s: must be a number, is 'soon'"),
    ("bool", "drain:\n  deadline_s: true\n", "sluice.yaml:9: drain.deadline_s: must be a number, is true"),
    (
        "seconds with a unit",
        "drain:\n  deadline_s: 500ms\n",
        "sluice.yaml:9: drain.deadline_s: must be a number, is '500ms'; write 0.5",
    ),
    (
        "bytes with a unit",
        "limits:\n  max_buffered_bytes: 256MiB\n",
        "sluice.yaml:9: limits.max_buffered_bytes: must be a whole number, is '256MiB'; write 268435456",
    ),
    (
        "a count in short",
        "limits:\n  max_connections: 10k\n",
        "sluice.yaml:9: limits.max_connections: must be a whole number, is '10k'; write 10000",
    ),
    ("nan", "drain:\n  deadline_s: .nan\n", "sluice.yaml:9: drain.deadline_s: must be a number, is nan"),
    (
        "blank",
        "log:\n  level:\n",
        "sluice.yaml:9: log.level: must be 'debug', 'info', 'warning' or 'error'; is null",
    ),
    (
        "fraction",
        "limits:\n  max_sensors: 1.5\n",
        "sluice.yaml:9: limits.max_sensors: must be a whole number, is 1.5",
    ),
    (
        "low",
        "pacing:\n  answer_budget_s: 0\n",
        "sluice.yaml:9: pacing.answer_budget_s: must be greater than 0, is 0",
    ),
    (
        "high",
        "pacing:\n  answer_budget_s: 20\n",
        "sluice.yaml:9: pacing.answer_budget_s: must be at most 15, is 20",
    ),
    (
        "group",
        "pacing:\n  group_delay_max_s: 3\n",
        "sluice.yaml:9: pacing.group_delay_max_s: must be at most 2, is 3",
    ),
    ("blank text", "admin:\n  bind_host: ''\n", "sluice.yaml:9: admin.bind_host: must not be blank"),
    (
        "blank section",
        "upstream:\n",
        "sluice.yaml:8: upstream: is blank; leave it out, or give keys: dial_timeout_s, dial_total_s",
    ),
    (
        "section of the wrong shape",
        "upstream: 5\n",
        "sluice.yaml:8: upstream: is 5; must be a mapping: dial_timeout_s, dial_total_s",
    ),
    (
        "debt below the answer budget",
        "pacing:\n  max_debt_s: 5\n",
        "sluice.yaml:9: pacing.max_debt_s: must be at least answer_budget_s (8), "
        "or requests would go before their turn; is 5",
    ),
    (
        "frames before authentication",
        "limits:\n  max_frame_bytes: 2048\n",
        "sluice.yaml:8: limits.max_frame_bytes_before_authentication: "
        "must be at most max_frame_bytes (2048), is 524288",
    ),
    (
        "admin port taken",
        "admin:\n  bind_port: 9092\n",
        "sluice.yaml:9: admin.bind_port: port 9092 is taken by listener 'clients' already; give each its own",
    ),
]


@pytest.mark.parametrize(
    ("text", "message"), [row[1:] for row in ONE_WRONG_KEY], ids=[r[0] for r in ONE_WRONG_KEY]
)
def test_an_error_names_the_key_its_line_and_what_would_be_right(
    tmp_path: Path, text: str, message: str
) -> None:
    assert errors_of(tmp_path, GOOD + text) == [message]


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "listeners:\n  - name: 12\n    bind_prt: 1\nmode: brokr\n"
    assert [line.split(": ")[:2] for line in errors_of(tmp_path, text)] == [
        ["sluice.yaml", "quotas"],
        ["sluice.yaml:2", "listeners[0].name"],
        ["sluice.yaml:2", "listeners[0].bind_port"],
        ["sluice.yaml:3", "listeners[0].bind_prt"],
        ["sluice.yaml:4", "mode"],
    ]


def test_a_missing_key_is_told_with_what_it_is_for(tmp_path: Path) -> None:
    text = GOOD.replace("    bind_port: 9092\n", "")
    assert errors_of(tmp_path, text) == [
        "sluice.yaml:2: listeners[0].bind_port: missing; it is required: "
        "Port to listen on; 0 lets the system choose one."
    ]


def test_a_number_where_a_text_belongs_is_asked_to_be_quoted(tmp_path: Path) -> None:
    assert errors_of(tmp_path, GOOD.replace("name: clients", "name: 12")) == [
        "sluice.yaml:2: listeners[0].name: must be a text, is 12; write it in quotes: '12'"
    ]


def test_an_empty_file_is_told_what_is_missing(tmp_path: Path) -> None:
    assert [line.split(";")[0] for line in errors_of(tmp_path, "")] == [
        "sluice.yaml: listeners: missing",
        "sluice.yaml: quotas: missing",
    ]


SECOND = """\
  - name: {name}
    bind_host: {host}
    bind_port: {port}
    upstream_host: kafka
    upstream_port: 1
"""


def two_listeners(name: str, host: str, port: int) -> str:
    return GOOD.replace("quotas:\n", SECOND.format(name=name, host=host, port=port) + "quotas:\n")


def test_two_listeners_on_one_port_are_refused(tmp_path: Path) -> None:
    assert errors_of(tmp_path, two_listeners("other", "127.0.0.1", 9092)) == [
        "sluice.yaml:8: listeners[1].bind_port: "
        "port 9092 is taken by listener 'clients' already; give each its own"
    ]


def test_the_probe_port_is_nobody_elses(tmp_path: Path) -> None:
    taken = "port 9092 is taken by listener 'clients' already; give each its own"
    for admin in ("{bind_port: 9091}", "{probes: {bind_port: 9092}}"):
        (said,) = errors_of(tmp_path, f"{GOOD}admin: {admin}\n")
        assert said.endswith(f"admin.probes.bind_port: {taken}")


def test_two_addresses_may_share_a_port_and_port_0_is_never_taken(tmp_path: Path) -> None:
    text = two_listeners("other", "127.0.0.2", 9092).replace(
        "bind_port: 9092\n", "bind_port: 9092\n    bind_host: 127.0.0.1\n", 1
    )
    assert len(load_config(write(tmp_path, text), {}).listeners) == 2
    text = two_listeners("other", "0.0.0.0", 0).replace("bind_port: 9092", "bind_port: 0")
    assert len(load_config(write(tmp_path, text), {}).listeners) == 2


def test_two_listeners_of_one_name_are_refused(tmp_path: Path) -> None:
    assert errors_of(tmp_path, two_listeners("clients", "0.0.0.0", 9093)) == [
        "sluice.yaml:6: listeners[1].name: 'clients' names an earlier listener too; names must be unique"
    ]


@pytest.mark.parametrize(
    ("bind_host", "upstream_host", "loops"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "localhost", True),
        ("::", "::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "127.0.0.1", False),
        ("127.0.0.2", "127.0.0.1", False),
        ("0.0.0.0", "kafka-0.kafka", False),
    ],
)
def test_an_upstream_that_is_the_proxy_itself_is_refused(
    bind_host: str, upstream_host: str, loops: bool
) -> None:
    def build() -> Config:
        listener = ListenerOptions(
            name="a", bind_host=bind_host, bind_port=9092, upstream_host=upstream_host, upstream_port=9092
        )
        return Config(listeners=(listener,), quotas=QuotaOptions(file=Path("q.yaml")))

    if not loops:
        assert build().listeners
        return
    with pytest.raises(ValidationError, match="of this proxy itself"):
        build()


def test_an_upstream_that_is_the_admin_port_is_refused(tmp_path: Path) -> None:
    assert errors_of(tmp_path, GOOD.replace("19092", "9308")) == [
        "sluice.yaml:5: listeners[0].upstream_port: 127.0.0.1:9308 is the admin port of this proxy itself; "
        "name the broker's own"
    ]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "SLUICE_LOG__LEVEL",
            "loud",
            "SLUICE_LOG__LEVEL: log.level: must be 'debug', 'info', 'warning' or 'error'; is 'loud'",
        ),
        (
            "SLUICE_DRAIN__DEADLINE_S",
            "",
            "SLUICE_DRAIN__DEADLINE_S: drain.deadline_s: must be a number, is ''",
        ),
        (
            "SLUICE_PACING__BRUST_S",
            "2",
            "SLUICE_PACING__BRUST_S: pacing.brust_s: unknown key; did you mean burst_s?",
        ),
        (
            "SLUICE_ADMIN_BIND_PORT",
            "1",
            "SLUICE_ADMIN_BIND_PORT: unknown variable; did you mean SLUICE_ADMIN__BIND_PORT?",
        ),
        ("SLUICE_X", "1", "SLUICE_X: unknown variable; remove it"),
        ("SLUICE_MODE__X", "1", "SLUICE_MODE__X: mode has no keys below it; set SLUICE_MODE whole"),
        (
            "SLUICE_LIMITS__MAX_CONNECTIONS__X",
            "5",
            "SLUICE_LIMITS__MAX_CONNECTIONS__X: limits.max_connections has no keys below it; "
            "set SLUICE_LIMITS__MAX_CONNECTIONS whole",
        ),
        (
            "SLUICE_LISTENERS__0__NAME",
            "x",
            "SLUICE_LISTENERS__0__NAME: listeners has no keys below it; set SLUICE_LISTENERS whole",
        ),
        (
            "SLUICE_DRAIN",
            "[1",
            "SLUICE_DRAIN: not YAML: while parsing a flow sequence that begins on line 1, "
            "did not find expected ',' or ']'",
        ),
    ],
)
def test_an_error_of_the_environment_names_the_variable(
    tmp_path: Path, variable: str, value: str, message: str
) -> None:
    assert errors_of(tmp_path, GOOD, {variable: value}) == [message]


def test_an_error_across_two_keys_names_the_variable_that_brought_one(tmp_path: Path) -> None:
    assert errors_of(tmp_path, GOOD, {"SLUICE_PACING__MAX_DEBT_S": "1"})[0].startswith(
        "SLUICE_PACING__MAX_DEBT_S: pacing.max_debt_s: must be at least answer_budget_s (8)"
    )


def test_the_variables_that_kubernetes_adds_for_a_service_named_sluice_are_ignored(tmp_path: Path) -> None:
    environ = {
        "SLUICE_PORT": "tcp://10.0.0.1:9092",
        "SLUICE_SERVICE_HOST": "10.0.0.1",
        "SLUICE_SERVICE_PORT_METRICS": "9308",
        "SLUICE_ADMIN_PORT_9308_TCP_ADDR": "10.0.0.1",
        "SLUICE_CONFIG": "elsewhere.yaml",
        "OTHER": "x",
    }
    assert load_config(write(tmp_path, GOOD), environ).listeners


def test_every_option_outside_a_list_has_a_variable() -> None:
    assert "SLUICE_PACING__BURST_S" in variable_names()
    assert "SLUICE_UNKNOWN_APIS" in variable_names()
    assert not [name for name in variable_names() if name.startswith("SLUICE_LISTENERS__")]


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"none\.yaml: cannot read the configuration file: no such file or directory"
    ):
        load_config(tmp_path / "none.yaml", {})
    (tmp_path / "latin.yaml").write_bytes(b"mode: broker\nx: \xff\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: not UTF-8"):
        load_config(tmp_path / "latin.yaml", {})


def test_a_relative_file_that_may_be_left_out_starts_at_the_configuration_files_folder_too(
    tmp_path: Path,
) -> None:
    tls = """\
    security_protocol: SSL
    accept_shared_upstream_identity: true
    tls:
      certificate_file: a.pem
      key_file: /k/a.key
      client_ca_file: ca.pem
      client_auth: required
quotas:
"""
    found = load_config(write(tmp_path, GOOD.replace("quotas:\n", tls)), {}).listeners[0].tls
    assert found is not None
    assert (found.certificate_file, found.key_file) == (tmp_path / "a.pem", Path("/k/a.key"))
    assert found.client_ca_file == tmp_path / "ca.pem"
