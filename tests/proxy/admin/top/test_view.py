"""What `sluice top` shows of a snapshot."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from sluice.proxy.admin.top.text import IDS_PER_HOUR, amount, duration, share, who
from sluice.proxy.admin.top.view import cut, view
from sluice.proxy.cli.main import main
from sluice.quotas.names import printable
from testkit.proxy.sluice_process import SLUICE

ROW: Final[dict[str, Any]] = {
    "quota": "produce",
    "key": "producer_byte_rate",
    "unit": "bytes per second",
    "bucket": {"user": "alice", "client-id": "\x1b[31mred"},
    "rule": "user_client",
    "limit": 1_048_576,
    "shadow": False,
    "used": 990_000.0,
    "utilisation": 0.944,
    "tokens": -523_456.0,
    "delay_ms": 523.5,
    "delayed_share_1m": 0.3721,
    "delayed_s_1m": 71.4,
    "charged": 12_345_678,
    "waiting": 0,
    "connections": 5,
    "throttled_connections": 1,
    "shown": [
        {
            "peer": f"10.0.0.{number}:5000",
            "user": "alice",
            "client_id": "red",
            "state": "holding" if number == 1 else "reading",
            "throttled_by": "produce" if number == 1 else "",
            "for_ms": 120.4 if number == 1 else 0.0,
            "in_flight": 1,
            "requests": 7,
        }
        for number in range(1, 6)
    ],
    "why": ["user_client: because", "so \x07much"],
}
SNAPSHOT: Final[dict[str, Any]] = {
    "at": "2026-01-01T00:00:00.000+00:00",
    "age_ms": 1.0,
    "work_ms": 2.0,
    "pacing": "smooth",
    "not_in_force": [],
    "buckets": 9,
    "active_buckets": 4,
    "throttled_buckets": 1,
    "delayed_buckets_1m": 3,
    "connections": 1234,
    "throttled_connections": 1,
    "rows": [ROW],
}


def shown(snapshot: dict[str, Any], *, why: bool = False, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(view(snapshot, why=why, width=width))
    return out.getvalue()


def test_a_row_tells_who_owes_how_much_by_which_rule_on_which_connections() -> None:
    text = shown(SNAPSHOT)
    assert text.splitlines()[0].rstrip() == (
        "3 of 4 buckets delayed in the last minute · now 1 · 1 of 1,234 connections · pacing smooth · "
        "2026-01-01T00:00:00.000+00:00"
    )
    words = " ".join(text.split())
    assert "produce user_client 1.05 MB/s 990.00 kB/s 94% 37% 524 ms 1/5" in words
    assert "10.0.0.1:5000 holding 120 ms, 10.0.0.2:5000, 10.0.0.3:5000 and 2 more" in words
    assert "because" not in text


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (42, "who quota delayed"),
        (60, "who quota of limit delayed"),
        (66, "who quota limit of limit delayed"),
        (80, "who quota limit of limit delayed throttled"),
        (99, "who quota limit of limit delayed throttled"),
        (100, "who quota limit used of limit delayed throttled"),
        (112, "who quota limit used of limit delayed owes throttled"),
        (130, "who quota rule limit used of limit delayed owes throttled"),
        (170, "who quota rule limit used of limit delayed owes throttled connections"),
    ],
)
def test_a_row_is_a_line_however_narrow_and_columns_drop_out_by_width(width: int, titles: str) -> None:
    long = {
        **ROW,
        "bucket": {"user": "a-user-of-" + "x" * 200, "client-id": "y" * 200},
        "rule": "user_client_ip",
    }
    worst = {
        **long, "quota": "producer_ids", "shadow": True, "limit": 999.99e9, "used": 999.99e9,
        "delay_ms": 3.6e8, "throttled_connections": 9_999, "connections": 9_999, "utilisation": 99.99,
    }  # fmt: skip
    lines = shown({**SNAPSHOT, "rows": [ROW, long, worst]}, width=width).splitlines()[1:]
    assert all(len(line) <= width for line in lines)
    table = [line for line in lines if line.strip() and not set(line) <= set("─ ")]
    assert len(table) == 1 + 3
    assert " ".join(table[0].split()) == titles
    assert "37%" in table[2]
    if width >= 130:
        assert "524 ms" in table[2]
        assert table[2].startswith(" user a-us")


def test_a_file_whose_content_could_not_be_used_is_told_above_all() -> None:
    text = shown({**SNAPSHOT, "not_in_force": ["quotas: quotas.yaml:3: unknown key\x1b[0m"]})
    assert text.splitlines()[0].rstrip() == "not in force: quotas: quotas.yaml:3: unknown key\\x1b[0m"


def test_of_producer_ids_what_is_gone_of_the_burst_is_no_rate() -> None:
    ids = {**ROW, "quota": "producer_ids", "unit": IDS_PER_HOUR, "limit": 20.0, "used": 19.9}
    assert "20 ids/h 19.9 ids" in " ".join(shown({**SNAPSHOT, "rows": [ids]}).split())


def test_why_follows_the_table() -> None:
    lines = [line.rstrip() for line in shown(SNAPSHOT, why=True).splitlines()]
    at = lines.index("user alice, client-id \\x1b[31mred: producer_byte_rate")
    assert lines[at + 1 : at + 3] == ["  user_client: because", "  so \\x07much"]


def test_names_do_nothing_to_the_terminal_nor_to_the_layout() -> None:
    assert "\x1b" not in shown(SNAPSHOT)
    assert printable("a\x1b]0;x\x07\n\u202e\ud800é") == "a\\x1b]0;x\\x07\\n\\u202e?é"
    assert who({"user": "[bold]x[/bold]"}) == "user [bold]x[/bold]"
    markup = {**ROW, "bucket": {"user": "[bold]x[/bold]"}}
    assert "user [bold]x[/bold]" in shown({**SNAPSHOT, "rows": [markup]})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (999, "bytes per second", "999 B/s"),
        (1_500, "bytes per second", "1.50 kB/s"),
        (2.5e9, "bytes per second", "2.50 GB/s"),
        (50, "percent of one broker thread", "50 %"),
        (12.5, "new producer ids per hour", "12.5 ids/h"),
        (3, "new connections per second", "3 connections/s"),
    ],
)
def test_rates_are_short(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.0, ""), (0.4, "0 ms"), (999.0, "999 ms"), (3_210, "3.2 s"), (90_000, "1.5 min"), (5.4e6, "1.5 h")],
)
def test_durations_are_short(ms: float, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("part", "text"), [(0.0, ""), (0.0001, "<1%"), (0.009, "<1%"), (0.01, "1%"), (0.37, "37%"), (1.0, "100%")]
)
def test_shares_of_a_minute_are_short(part: float, text: str) -> None:
    assert share(part) == text


# The command, against a port that answers as a proxy's does -------------------------------------------------


@pytest.fixture
def port() -> Iterator[tuple[int, list[str]]]:
    """An admin port, and the paths that were asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            body = b"no JSON" if "rows=13" in self.path else json.dumps(SNAPSHOT).encode()
            refused = "rows=17" in self.path and self.headers["authorization"] != "Bearer the-token"
            if refused:
                body = b'{"detail": "The token is missing."}'
            self.send_response(401 if refused else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, paths
        finally:
            server.shutdown()
            thread.join()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)
    monkeypatch.setattr(sys, "argv", ["sluice", "top", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_json_is_the_snapshot_and_the_options_go_to_the_proxy(
    port: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{port[0]}/"
    assert run(monkeypatch, "--json", "--why", "--rows", "7", "--url", url) == 0
    assert json.loads(capsys.readouterr().out) == SNAPSHOT
    assert port[1] == ["/top?rows=7&why=true"]


def test_rows_can_be_of_one_user_and_sorted_otherwise(
    port: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{port[0]}"
    for user, there in (("alice", 1), ("al*", 1), ("bob", 0), ("*", 1)):
        arguments = ("--user", user, "--sort", "throughput", "--output", "json", "--rows", "9", "--url", url)
        assert run(monkeypatch, *arguments) == 0
        assert len(json.loads(capsys.readouterr().out)["rows"]) == there
    assert set(port[1]) == {"/top?rows=200&why=false"}
    assert run(monkeypatch, "--sort", "size", "--url", url) == 2
    assert "throughput" in capsys.readouterr().err


def test_a_pipe_is_as_wide_as_columns_says(
    port: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns, has_rule in (("80", False), ("300", True), ("many", True), ("0", True)):
        monkeypatch.setenv("COLUMNS", columns)
        assert run(monkeypatch, "--url", f"http://127.0.0.1:{port[0]}") == 0
        assert ("user_client" in capsys.readouterr().out) == has_rule


def test_without_a_terminal_there_is_one_table(
    port: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--url", f"http://127.0.0.1:{port[0]}") == 0
    assert "3 of 4 buckets delayed in the last minute" in capsys.readouterr().out
    assert len(port[1]) == 1


def test_a_token_goes_with_it_and_its_lack_is_told(
    port: tuple[int, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    url = f"http://127.0.0.1:{port[0]}"
    assert run(monkeypatch, "--json", "--rows", "17", "--url", url) == 1
    assert "401: The token is missing." in capsys.readouterr().err
    file = tmp_path / "token"
    file.write_text("the-token\n")
    assert run(monkeypatch, "--json", "--rows", "17", "--url", url, "--token-file", str(file)) == 0
    assert json.loads(capsys.readouterr().out) == SNAPSHOT
    assert run(monkeypatch, "--url", url, "--token-file", str(tmp_path / "none")) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'none'}: cannot be read: no such file or directory\n"


def test_what_is_no_proxy_is_told(
    port: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--once", "--rows", "13", "--url", f"http://127.0.0.1:{port[0]}") == 1
    assert "is this a Sluice?" in capsys.readouterr().err
    assert run(monkeypatch, "--once", "--url", "file:///etc/passwd") == 2
    assert "must be such as http://" in capsys.readouterr().err


def test_keys_sort_and_explain_and_quit_and_leave_the_terminal_as_it_was(port: tuple[int, list[str]]) -> None:
    main_end, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    process = subprocess.Popen(
        [SLUICE, "top", "--url", f"http://127.0.0.1:{port[0]}", "--interval-s", "30"],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        env={**environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )  # fmt: skip
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        until_s = time.monotonic() + 30.0
        while text not in seen and time.monotonic() < until_s:
            if select.select([main_end], [], [], 0.2)[0]:
                seen += os.read(main_end, 65_536)
        assert text in seen

    try:
        until(b"s sort: throttled")
        os.write(main_end, b"s")
        until(b"s sort: throughput")
        os.write(main_end, b"w")
        until(b"w why: on")
        os.write(main_end, b"Q")
        assert process.wait(30.0) == 0
        assert termios.tcgetattr(terminal) == before
        assert port[1] == ["/top?rows=25&why=false", "/top?rows=200&why=false", "/top?rows=200&why=true"]
        assert b"Traceback" not in seen
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(main_end)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_who_it_is_stays_readable_on_a_narrow_terminal(width: int) -> None:
    row = {**ROW, "bucket": {"user": "ANONYMOUS"}}
    assert " user ANONYMOUS " in shown({**SNAPSHOT, "rows": [row]}, width=width)


@pytest.mark.parametrize("width", [66, 78, 80, 100, 112, 130])
@pytest.mark.parametrize(
    ("quota", "unit", "limit"),
    [
        ("connection_creation", "new connections per second", "12.5/s"),
        ("controller_mutation", "partitions created or deleted per second", "12.5/s"),
        ("producer_ids", IDS_PER_HOUR, "12.5 ids/h"),
    ],
)
def test_who_it_is_stays_readable_beside_the_longest_names_of_quotas(
    width: int, quota: str, unit: str, limit: str
) -> None:
    long = {**ROW, "quota": quota, "unit": unit, "limit": 12.5, "used": 12.5, "bucket": {"user": "ANONYMOUS"}}
    others = {**ROW, "bucket": {"user": "orders", "client-id": "checkout-7"}}
    lines = shown({**SNAPSHOT, "rows": [long, others]}, width=width).splitlines()
    (first,) = (line for line in lines if " user ANONYMOUS " in line)
    assert limit in first
    (second,) = (line for line in lines if " user orders" in line)
    assert len(second.split("  ")[0].strip()) >= 18
    assert "1.05 MB/s" in second


def test_quotas_and_units_are_whole_where_there_is_room() -> None:
    row = {**ROW, "quota": "connection_creation", "unit": "new connections per second", "limit": 12.0}
    line = " ".join(shown({**SNAPSHOT, "rows": [row]}, width=211).split())
    assert "connection_creation user_client 12 connections/s" in line


def test_the_command_among_the_reasons_is_not_broken_by_the_width() -> None:
    command = (
        "sluice quotas explain --user " + "alice-" * 12 + " --client-id perf-producer-client --config FILE"
    )
    row = {**ROW, "why": [f"every level and its entry: {command}", "words " * 30]}
    out = io.StringIO()
    console = Console(file=out, width=80, highlight=False)
    console.print(view({**SNAPSHOT, "rows": [row]}, why=True, width=80), crop=False)
    assert command in out.getvalue()
    assert "words " * 30 not in out.getvalue()


@pytest.mark.parametrize(
    ("text", "width", "seen"),
    [
        ("client-id etl-7", 15, "client-id etl-7"),
        ("client-id etl-7", 12, "client-…tl-7"),
        ("client-id etl-8", 5, "cli…8"),
        ("名名名名名名", 7, "名名…名"),
    ],
)
def test_a_name_without_room_loses_its_middle(text: str, width: int, seen: str) -> None:
    assert cut(text, width) == seen
