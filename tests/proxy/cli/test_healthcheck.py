"""The image's health check finds the probe port as the proxy does, and says no when nobody answers there."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.proxy.cli.healthcheck import DEFAULT_PORT, config_in, failure, probe_address
from sluice.proxy.config.admin import AdminOptions
from sluice.proxy.config.file import load_config
from testkit.processes.ports import LOOPBACK, free_port

REQUIRED = (
    "listeners: [{name: c, bind_port: 9092, upstream_host: k, upstream_port: 9093}]\nquotas: {file: q.yaml}\n"
)


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server that answers every GET with this status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer((LOOPBACK, 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            serving.join()


SLUICE = [str(Path(sys.executable).with_name("sluice")), "healthcheck"]
OLD_NAME = [sys.executable, "-m", "sluice.proxy.alive"]


def run(environ: Mapping[str, str], command: Sequence[str] = SLUICE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environ},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_default_is_the_proxys() -> None:
    assert AdminOptions().probe_address[1] == DEFAULT_PORT


@pytest.mark.parametrize(
    ("section", "environ"),
    [
        ("", {}),
        ("admin: {bind_port: 1234}", {}),
        ("admin: {bind_host: 127.0.0.2, bind_port: 1234}", {}),
        ("admin: {bind_port: 1234}", {"SLUICE_ADMIN__BIND_PORT": "4321"}),
        ("admin: {bind_host: '::', bind_port: 1234}", {"SLUICE_ADMIN__BIND_HOST": "127.0.0.3"}),
        ("", {"SLUICE_ADMIN": "{bind_port: 77}"}),
        ("admin: {bind_port: 65535}", {}),
        ("admin: {probes: {bind_port: 55}}", {}),
        ("admin: {bind_port: 1234, probes: {bind_host: 127.0.0.2, bind_port: 55}}", {}),
        ("admin: {bind_host: 127.0.0.3, probes: {bind_port: 55}}", {"SLUICE_ADMIN__PROBES__BIND_PORT": "56"}),
        ("", {"SLUICE_ADMIN__PROBES": "{bind_port: 77}"}),
        ("", {"SLUICE_ADMIN__PROBES__BIND_HOST": "127.0.0.4"}),
    ],
)
def test_it_finds_the_port_that_the_proxy_binds(
    tmp_path: Path, section: str, environ: dict[str, str]
) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(f"{REQUIRED}{section}\n")
    bound_host, bound_port = load_config(file, environ).admin.probe_address
    host, port = probe_address({"SLUICE_CONFIG": str(file), **environ})
    assert port == bound_port
    assert host == {"0.0.0.0": LOOPBACK, "::": "::1"}.get(bound_host, bound_host)


@pytest.mark.parametrize(
    "text",
    [
        *("", "listeners: [", "just text", "admin: 5", "admin: {bind_port: none}", None),
        *("admin: {bind_port: .inf}", "since: 2026-13-45", "admin: " + "[" * 3_000),
    ],
)
def test_a_file_that_somebody_broke_leaves_the_default(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "sluice.yaml"
    if text is not None:
        file.write_text(text)
    assert probe_address({"SLUICE_CONFIG": str(file)}) == (LOOPBACK, DEFAULT_PORT)


@pytest.mark.parametrize("command", [SLUICE, OLD_NAME])
def test_it_is_fine_if_livez_is(command: Sequence[str]) -> None:
    with answering(200) as port:
        asked = run({"SLUICE_CONFIG": "", "SLUICE_ADMIN__PROBES__BIND_PORT": str(port)}, command)
        assert (asked.returncode, asked.stderr) == (0, "")


@pytest.mark.parametrize("option", [("--config", "{}"), ("-c", "{}"), ("--config={}",), ("{}",)])
def test_the_configuration_file_may_be_given_as_to_other_commands(
    option: tuple[str, ...], tmp_path: Path
) -> None:
    file, other = tmp_path / "sluice.yaml", tmp_path / "other.yaml"
    other.write_text(f"{REQUIRED}admin: {{probes: {{bind_port: {free_port()}}}}}\n")
    arguments = [part.format(file) for part in option]
    with answering(200) as port:
        file.write_text(f"{REQUIRED}admin: {{probes: {{bind_host: {LOOPBACK}, bind_port: {port}}}}}\n")
        asked = run({"SLUICE_CONFIG": str(other)}, [*SLUICE, *arguments])
        assert (asked.returncode, asked.stderr) == (0, "")
    assert config_in(arguments) == str(file), "without the imports of other commands"


def test_two_files_are_refused_as_in_run(tmp_path: Path) -> None:
    asked = run({}, [*SLUICE, str(tmp_path / "one.yaml"), "--config", str(tmp_path / "other.yaml")])
    assert asked.returncode == 2
    assert "two files are given" in asked.stderr


def test_other_arguments_are_told_by_the_command() -> None:
    assert config_in(["--conf", "a"]) is None
    assert config_in(["--help"]) is None
    asked = run({}, [*SLUICE, "--conf", "a"])
    assert (asked.returncode, "No such option" in asked.stderr) == (2, True)


@pytest.mark.parametrize("host", ["no such host", "a\nb", "a" * 64, "::1%x"])
def test_a_host_that_is_none_is_told_in_a_line(host: str) -> None:
    told = failure(host, 1234)
    assert told is not None
    assert told.startswith(f"/livez at {host}:1234: ")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "{} cannot be read: No such file or directory"),
        (b"\xff", "{} cannot be read: it is not UTF-8"),
        (b"listeners: [", "{} is no configuration"),
    ],
)
def test_if_nobody_answers_it_says_that_the_file_told_nothing(
    text: bytes | None, why: str, tmp_path: Path
) -> None:
    """The port that it asks is then the default one, which nobody has named."""
    file = tmp_path / "sluice.yaml"
    if text is not None:
        file.write_bytes(text)
    asked = run({"SLUICE_ADMIN__PROBES__BIND_PORT": str(free_port())}, [*SLUICE, str(file)])
    assert asked.returncode == 1
    (line,) = asked.stderr.splitlines()
    assert line.endswith(f"({why.format(file)})")


def test_a_pipe_is_no_configuration_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sluice.yaml")
    environ = {"SLUICE_ADMIN__PROBES__BIND_PORT": str(free_port())}
    asked = run(environ, [*SLUICE, str(tmp_path / "sluice.yaml")])
    assert asked.returncode == 1
    (line,) = asked.stderr.splitlines()
    assert line.endswith(f"({tmp_path}/sluice.yaml is no file)")


def test_it_fails_and_says_why_if_livez_is_not_fine() -> None:
    with answering(503) as port:
        assert failure(LOOPBACK, port) == f"/livez at {LOOPBACK}:{port} answers 503"


@pytest.mark.parametrize("command", [SLUICE, OLD_NAME])
def test_it_fails_and_says_where_if_nobody_listens(command: Sequence[str]) -> None:
    port = free_port()
    asked = run({"SLUICE_CONFIG": "", "SLUICE_ADMIN__PROBES__BIND_PORT": str(port)}, command)
    assert asked.returncode == 1
    assert f"/livez at {LOOPBACK}:{port}" in asked.stderr


def test_it_loads_neither_pydantic_nor_typer() -> None:
    code = (
        "import sys; sys.argv = ['sluice', 'healthcheck']\n"
        "from sluice.proxy.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'pydantic', 'typer', 'asyncio'} & set(sys.modules)))\n"
    )
    environ = {**os.environ, "SLUICE_CONFIG": "", "SLUICE_ADMIN__PROBES__BIND_PORT": str(free_port())}
    asked = subprocess.run(
        [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
    )
    assert asked.stdout == "[]\n"
