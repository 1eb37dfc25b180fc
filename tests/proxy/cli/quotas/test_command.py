"""`sluice configs` and `sluice quotas export|diff|apply|import` on quota files, as users call them."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path
from typing import Protocol

import pytest

from sluice.proxy.cli.main import main
from sluice.proxy.cli.quotas.places import RELOAD_S
from sluice.proxy.config.quotas import QuotaOptions
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.kinds import QuotaKind

QUOTAS = """\
quotas:
  - user: alice  # the shop
    producer_byte_rate: 1000  # as agreed
  - user: <default>
    producer_ids_rate: 100
  - user: alice
    client-id: app
    consumer_byte_rate: 20000000
  - ip: 10.0.0.1
    connection_creation_rate: 5
"""
WANTED = """\
quotas:
  - {user: alice, producer_byte_rate: 2000, request_percentage: 50}
  - {user: alice, client-id: app, consumer_byte_rate: 20000000}
  - {client-id: <default>, producer_byte_rate: 9, shadow: true}
exempt:
  - user: backup
"""


class Sluice(Protocol):
    def __call__(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(QUOTAS)
    return file


@pytest.fixture
def sluice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sluice:
    """The command, called in a folder of its own."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["sluice", *arguments])
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode(errors="surrogateescape")))
        )
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return call


def test_a_piped_quota_file_that_is_too_large_is_refused_whole(
    file: Path, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its beginning is a good list: taken for all of it, it removed the limits of all that come behind."""
    monkeypatch.setattr("sluice.proxy.cli.quotas.places.MAX_QUOTAS_BYTES", len(QUOTAS))
    code, _, err = sluice("quotas", "apply", "-", "-q", "quotas.yaml", stdin=QUOTAS + "  - {user: bob}\n")
    told = f"standard input: cannot read the quota file: has more than {len(QUOTAS)} bytes\n"
    assert (code, err) == (2, told)
    assert file.read_text() == QUOTAS


def configs(sluice: Sluice, line: str) -> tuple[int, str, str]:
    return sluice("configs", "-q", "quotas.yaml", *line.split())


def limit(file: Path, kind: QuotaKind, user: str, client_id: str = "") -> float | None:
    match = parse_quotas(file.read_text(), "f").resolve(kind, user, client_id)
    return None if match is None else match.limit


def test_no_name_that_was_copied_from_a_log_steers_the_terminal(file: Path, sluice: Sluice) -> None:
    name = "\x1b[2J\u202ex\x9b"
    line = ["configs", "-q", "quotas.yaml", "--entity-type", "clients", "--entity-name", name]
    assert sluice(*line, "--alter", "--add-config", "producer_byte_rate=50")[0] == 0
    for more in (["--alter", "--add-config", "producer_byte_rate=60"], ["--describe"]):
        code, out, err = sluice(*line, *more)
        assert (code, err, r"\x1b[2J\u202ex\x9b" in out) == (0, "", True)
        assert all(one.isprintable() for one in out.split("\n"))
    assert limit(file, QuotaKind.PRODUCE, "anybody", name) == 60


@pytest.mark.parametrize(
    ("whom", "done", "user", "client_id"),
    [
        ("--entity-type users --entity-name bob", "config for user bob", "bob", ""),
        ("--entity-type users --entity-name User:bob", "config for user bob", "bob", ""),
        ("--entity-type users --entity-default", "default config for users", "anybody", ""),
        ("--entity-type users", "default config for users", "anybody", ""),
        ("--user bob", "config for user bob", "bob", ""),
        ("--entity-type clients --entity-name c", "config for client c", "anybody", "c"),
        ("--client-defaults", "default config for clients", "anybody", "any"),
        (
            "--entity-type clients --entity-default --entity-type users --entity-name bob",
            "default config for clients",
            "bob",
            "any",
        ),
        ("--user-defaults --client c", "config for client c", "anybody", "c"),
    ],
)
def test_a_limit_is_set_by_the_options_of_kafkas_tool(
    whom: str, done: str, user: str, client_id: str, file: Path, sluice: Sluice
) -> None:
    code, out, err = configs(
        sluice, f"--alter --add-config producer_byte_rate=50,request_percentage=7 {whom}"
    )
    written = f"Written to the file {file}; a proxy that runs with it takes it within 1 s, or its quotas."
    assert (code, err) == (0, "")
    assert out == f"Completed updating {done}.\n{written}reload_interval_s.\n"
    assert limit(file, QuotaKind.PRODUCE, user, client_id) == 50
    assert limit(file, QuotaKind.REQUEST, user, client_id) == 7
    assert limit(file, QuotaKind.PRODUCE, "somebody else", "of another kind") == (
        50
        if whom in {"--entity-type users --entity-default", "--entity-type users", "--client-defaults"}
        else None
    )
    assert file.read_text().startswith(QUOTAS[: QUOTAS.index("  - user: <default>")])
    assert configs(sluice, f"--alter --add-config producer_byte_rate=50 {whom}")[1].startswith("Nothing to")


def test_it_is_told_when_the_proxy_of_a_configuration_takes_a_change(file: Path, sluice: Sluice) -> None:
    config = "listeners: [{name: c, bind_port: 9092, upstream_host: k, upstream_port: 9093}]\n"
    quotas = "quotas: {file: quotas.yaml, reload_interval_s: 30}\n"
    file.with_name("sluice.yaml").write_text(config + quotas)
    alter = ("configs", "-c", "sluice.yaml", "--alter", "--user", "bob", "--add-config")
    _, out, _ = sluice(*alter, "producer_byte_rate=1")
    assert (
        out.splitlines()[1] == f"Written to the file {file}; a proxy that runs with it takes it within 30 s."
    )
    assert sluice(*alter, "producer_byte_rate=1")[1] == "Nothing to change in config for user bob.\n"
    assert QuotaOptions().reload_interval_s == RELOAD_S


def test_limits_are_removed_and_an_entity_goes_with_its_last_one(file: Path, sluice: Sluice) -> None:
    assert configs(sluice, "--alter --delete-config connection_creation_rate --ip 10.0.0.1")[0] == 0
    assert file.read_text() == QUOTAS[: QUOTAS.index("  - ip:")]


@pytest.mark.parametrize(
    ("whom", "lines"),
    [
        (
            "--entity-type users",
            [
                "Quota configs for user-principal 'alice' are producer_byte_rate=1000.0",
                "Quota configs for the default user-principal are producer_ids_rate=100.0",
            ],
        ),
        ("--user-defaults", ["Quota configs for the default user-principal are producer_ids_rate=100.0"]),
        (
            "--entity-type users --entity-type clients",
            ["Quota configs for user-principal 'alice', client-id 'app' are consumer_byte_rate=2.0E7"],
        ),
        ("--entity-type ips", ["Quota configs for ip '10.0.0.1' are connection_creation_rate=5.0"]),
        ("--entity-type clients", []),
        (
            "",
            [
                "Quota configs for user-principal 'alice' are producer_byte_rate=1000.0",
                "Quota configs for the default user-principal are producer_ids_rate=100.0",
                "Quota configs for user-principal 'alice', client-id 'app' are consumer_byte_rate=2.0E7",
                "Quota configs for ip '10.0.0.1' are connection_creation_rate=5.0",
            ],
        ),
    ],
)
def test_limits_are_described_as_by_kafkas_tool(
    whom: str, lines: list[str], file: Path, sluice: Sluice
) -> None:
    assert configs(sluice, f"--describe {whom}") == (0, "".join(f"{line}\n" for line in lines), "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--alter --add-config producer_ids_rate=0 --entity-type users", "producer_ids_rate: Quota"),
        ("--alter --add-config producer_ids_rate=5 --entity-type clients", "producer_ids_rate: is for users"),
        ("--alter --add-config producer_byte=5 --user a", "did you mean producer_byte_rate?"),
        ("--alter --entity-type users", "give --add-config KEY=VALUE"),
        ("--alter --describe --entity-type users", "give one of --alter and --describe"),
        ("--entity-type users", "give one of --alter and --describe"),
        ("--describe --add-config producer_byte_rate=5 --user a", "go with --alter"),
        ("--describe --entity-type users --entity-name a --entity-default", "more names than types"),
        ("--describe --entity-type groups", "must be users, clients, ips, brokers or topics"),
        (
            "--describe --user a --bootstrap-server localhost:1",
            "give one of --quotas, --bootstrap-server and --admin-socket",
        ),
        ("--describe --user a --command-config f", "--command-config goes with --bootstrap-server"),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_file_left(
    line: str, message: str, file: Path, sluice: Sluice
) -> None:
    code, out, err = configs(sluice, line)
    assert (code, out) == (2, "")
    assert message in err
    assert file.read_text() == QUOTAS


def test_without_a_place_it_is_asked_for(sluice: Sluice) -> None:
    code, _, err = sluice("configs", "--describe", "--user", "a")
    assert code == 2
    assert "give --quotas FILE or --config FILE, --bootstrap-server HOST:PORT or --admin-socket FILE" in err


# quotas export, diff, apply ---------------------------------------------------------------------------------


def test_an_export_is_a_quota_file_that_differs_in_nothing(
    file: Path, sluice: Sluice, tmp_path: Path
) -> None:
    code, out, _ = sluice("quotas", "export", "-q", "quotas.yaml")
    assert code == 0
    assert parse_quotas(out, "out").entries == parse_quotas(QUOTAS, "in").entries
    assert sluice("quotas", "diff", "-", "-q", "quotas.yaml", stdin=out) == (0, "", "")


DIFFERENCES = """\
~ user-principal 'alice': producer_byte_rate=1000 → 2000
+ user-principal 'alice': request_percentage=50
- the default user-principal: producer_ids_rate=100
- ip '10.0.0.1': connection_creation_rate=5
+ the default client-id: producer_byte_rate=9 (shadow)
+ exempt: {"user": "backup"}
"""


def test_differences_are_told_with_exit_code_1(file: Path, sluice: Sluice, tmp_path: Path) -> None:
    (tmp_path / "wanted.yaml").write_text(WANTED)
    assert sluice("quotas", "diff", "quotas.yaml", "-q", "wanted.yaml") == (1, DIFFERENCES, "")


@pytest.mark.parametrize("command", ["apply", "import"])
def test_a_file_is_made_to_say_what_another_says(
    command: str, file: Path, sluice: Sluice, tmp_path: Path
) -> None:
    (tmp_path / "wanted.yaml").write_text(WANTED)
    call = ("quotas", command, "wanted.yaml", "-q", "quotas.yaml")
    assert sluice(*call, "--dry-run") == (
        0,
        DIFFERENCES + "quotas.yaml: 6 changes not made (--dry-run).\n",
        "",
    )
    assert file.read_text() == QUOTAS
    assert sluice(*call) == (0, DIFFERENCES + "quotas.yaml: 6 changes.\n", "")
    assert "producer_byte_rate: 2000  # as agreed\n" in file.read_text()
    assert sluice("quotas", "diff", "wanted.yaml", "-q", "quotas.yaml") == (0, "", "")
    assert sluice(*call) == (0, "quotas.yaml: 0 changes.\n", "")


@pytest.mark.parametrize("command", ["import", "apply"])
def test_a_file_that_is_not_there_is_made(command: str, file: Path, sluice: Sluice) -> None:
    new = file.with_name("new.yaml")
    code, out, _ = sluice("quotas", command, "-", "-q", "new.yaml", "--keep", "--dry-run", stdin=QUOTAS)
    assert (code, out.splitlines()[-1]) == (0, "new.yaml: 4 changes not made (--dry-run).")
    assert not new.exists()
    code, out, err = sluice("quotas", command, "-", "-q", "new.yaml", "--keep", stdin=QUOTAS)
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == ["new.yaml is a new file.", "new.yaml: 4 changes."]
    assert sluice("quotas", "diff", "quotas.yaml", "-q", "new.yaml") == (0, "", "")
    new.unlink()
    assert sluice("quotas", command, "-", "-q", "new.yaml", stdin="quotas: []\n")[0] == 0
    assert new.read_text() == "quotas: []\n"


def test_other_commands_make_no_file(file: Path, sluice: Sluice) -> None:
    """A name that was typed wrong shall not be a file without limits."""
    for command in (
        ("configs", "--alter", "--add-config", "producer_byte_rate=1", "--user", "a"),
        ("quotas", "export"),
    ):
        code, _, err = sluice(*command, "-q", "new.yaml")
        assert (code, "new.yaml: cannot read the quota file" in err) == (2, True)
    assert not file.with_name("new.yaml").exists()


def test_with_keep_nothing_goes(file: Path, sluice: Sluice, tmp_path: Path) -> None:
    (tmp_path / "wanted.yaml").write_text(WANTED)
    _, out, _ = sluice("quotas", "apply", "wanted.yaml", "-q", "quotas.yaml", "--keep")
    assert (
        out
        == "".join(f"{line}\n" for line in DIFFERENCES.splitlines() if line[0] != "-")
        + "quotas.yaml: 4 changes.\n"
    )
    found = parse_quotas(file.read_text(), "f").entries
    assert len(found) == 5


def test_a_bad_file_is_told_by_key_and_line_and_changes_nothing(
    file: Path, sluice: Sluice, tmp_path: Path
) -> None:
    (tmp_path / "wanted.yaml").write_text(WANTED.replace("2000", "0", 1))
    code, out, err = sluice("quotas", "apply", "wanted.yaml", "-q", "quotas.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("wanted.yaml:2: quotas[0].producer_byte_rate: ")
    assert file.read_text() == QUOTAS


@pytest.mark.parametrize("command", ["diff", "apply", "import"])
def test_standard_input_that_is_not_utf8_is_told_with_its_line(
    sluice: Sluice, file: Path, command: str
) -> None:
    damaged = "quotas:\n  - user: \udcff\n    producer_byte_rate: 1\n"
    assert sluice("quotas", command, "-", "-q", "quotas.yaml", stdin=damaged) == (
        2,
        "",
        "standard input:2: not UTF-8\n",
    )
    assert file.read_text() == QUOTAS


def test_a_pipe_that_is_not_utf8_is_told_with_its_line(sluice: Sluice, file: Path) -> None:
    pipe = file.with_name("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"quotas: []\n\xff",), daemon=True)
    writer.start()
    assert sluice("quotas", "diff", "pipe", "-q", "quotas.yaml") == (2, "", "pipe:2: not UTF-8\n")
    writer.join(10.0)


@pytest.mark.parametrize("value", ["1e308", "1e19", "9.3e18"])
def test_a_number_is_set_however_large_it_is(sluice: Sluice, file: Path, value: str) -> None:
    for user in ("alice", "new"):  # in an entry that is there, and in one of its own
        done = configs(sluice, f"--alter --add-config request_percentage={value} --user {user}")
        assert done[0] == 0, done
        assert limit(file, QuotaKind.REQUEST, user) == float(value)
    exported = sluice("quotas", "export", "-q", "quotas.yaml")[1]
    assert sluice("quotas", "diff", "-", "-q", "quotas.yaml", stdin=exported) == (0, "", "")
