"""`sluice top` and the admin socket of a proxy under load: what is shown is what happens."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import stat
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testkit.clients.traffic import SETTLE_S, flowing
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SLUICE, SluiceProcess, doors_of

Unique = Callable[[str], str]
SLOW = 50_000
"""bytes per second; a producer's batches are several of these"""
WITHIN_S = 30.0


@contextmanager
def proxy_with_socket(kafka: KafkaNode, **options: Any) -> Iterator[SluiceProcess]:
    port = free_port()
    admin = {"bind_host": LOOPBACK, "bind_port": port, "probes": {"bind_port": 0}, "socket": "admin.socket"}
    process = SluiceProcess(doors_of(kafka), admin=admin, **options)
    process.admin_port = port
    with process:
        yield process


@pytest.fixture
def sluice(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    with proxy_with_socket(kafka) as process:
        yield process


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Into a pipe, which has a width of its own; that of whoever runs the tests would cut names."""
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith("SLUICE_") and key != "COLUMNS"
    }
    return subprocess.run(
        [SLUICE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**environ, "NO_COLOR": "1"},
    )


def top(sluice: SluiceProcess, *arguments: str) -> str:
    done = run("top", "--config", str(sluice.folder / "sluice.yaml"), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def throttled_row(sluice: SluiceProcess, client_id: str, *arguments: str) -> dict[str, Any]:
    """The first snapshot in which this client's bucket owes something."""
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        for row in json.loads(top(sluice, "--json", *arguments))["rows"]:
            if row["bucket"] == {"client-id": client_id} and row["delay_ms"] > 0.0:
                assert isinstance(row, dict)
                return row
    raise AssertionError("it never owed anything")


def test_a_throttled_client_is_shown_with_its_debt_its_rule_and_its_connection(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    with flowing(kafka, sluice, unique("topic"), client_id):
        time.sleep(SETTLE_S)
        row = throttled_row(sluice, client_id, "--why")
        assert (row["quota"], row["rule"], row["limit"]) == ("produce", "client", SLOW)
        # What is owed and for how long are the same thing; the delay is told to a tenth of a ms, more than a
        # hundredth of it when the debt is nearly paid.
        assert row["delay_ms"] == pytest.approx(-row["tokens"] / SLOW * 1000.0, rel=0.01, abs=0.051)
        throttled = [one for one in row["shown"] if one["throttled_by"]]
        assert throttled
        assert {one["client_id"] for one in throttled} == {client_id}
        assert {one["state"] for one in throttled} <= {"muted", "holding"}
        assert all(one["peer"].startswith(f"{LOOPBACK}:") for one in throttled)
        assert row["why"][0].startswith(f"client (client-id '{client_id}'): 50,000 bytes per second. Applies")
        assert any("until the debt is paid" in line for line in row["why"])
        assert any(line.startswith(throttled[0]["peer"]) for line in row["why"])
        assert row["charged"] > SLOW
        by_port = run("top", "--json", "--url", f"http://{LOOPBACK}:{sluice.admin_port}")
        assert {"client-id": client_id} in [row["bucket"] for row in json.loads(by_port.stdout)["rows"]]
        text = top(sluice, "--once", "--why")
        assert f"client-id {client_id}" in text
        assert "50.00 kB/s" in text
        assert "until the debt is paid" in text or "so much may pass at once" in text


@pytest.mark.long
def test_connections_are_listed_by_what_passes_through_them(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    config = ("--config", str(sluice.folder / "sluice.yaml"))
    with flowing(kafka, sluice, unique("topic"), client_id):
        time.sleep(SETTLE_S)
        done = run("connections", *config, "--user", client_id, "--sort", "in", "--output", "json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        first = found["rows"][0]
        assert {row["client_id"] for row in found["rows"]} == {client_id}
        # In the one second that is looked at: its rate, what the bucket has saved in a second, and a batch.
        assert 0.5 * SLOW < first["bytes_in_per_s"] < 2.5 * SLOW
        assert first["bytes_in"] > first["bytes_in_per_s"] > first["bytes_out_per_s"] > 0.0
        assert found["bytes_in_per_s"] >= first["bytes_in_per_s"]
        text = run("connections", *config, "--user", client_id).stdout
        assert f"ANONYMOUS/{client_id}" in text
        url = f"http://{LOOPBACK}:{sluice.admin_port}"
        by_port = json.loads(run("connections", "--url", url, "--output", "json").stdout)
        assert client_id in {row["client_id"] for row in by_port["rows"]}


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (signal.SIGINT, 0),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.long),
    ],
)
def test_the_table_is_live_on_a_terminal_which_is_as_before_at_its_end(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, ends: signal.Signals, code: int
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    with flowing(kafka, sluice, unique("topic"), client_id):
        time.sleep(SETTLE_S)
        main, terminal = pty.openpty()
        before = termios.tcgetattr(terminal)
        process = subprocess.Popen(
            [SLUICE, "top", "--config", str(sluice.folder / "sluice.yaml"), "--interval-s", "0.2"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "250", "LINES": "50"},
            start_new_session=True,
        )
        seen = b""
        until_s = time.monotonic() + WITHIN_S
        while seen.count(b"buckets delayed in the last minute") < 3 and time.monotonic() < until_s:
            if select.select([main], [], [], 1.0)[0]:
                seen += os.read(main, 65_536)
        assert termios.tcgetattr(terminal) != before
        process.send_signal(ends)
        while process.poll() is None or select.select([main], [], [], 0.1)[0]:
            assert time.monotonic() < until_s + WITHIN_S
            if select.select([main], [], [], 0.1)[0]:
                seen += os.read(main, 65_536)
        assert process.wait() == code
        assert termios.tcgetattr(terminal) == before
        os.close(terminal)
        os.close(main)
    assert (seen.count(b"\x1b[?1049h"), seen.count(b"\x1b[?1049l")) == (1, 1), "the screen as it was"
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l"), "the cursor is seen"
    assert seen.count(b"buckets delayed in the last minute") >= 3
    assert client_id.encode() in seen
    assert b"Traceback" not in seen


def test_the_socket_is_the_owners_and_tells_limits_but_a_file_is_not_changed_through_it(
    sluice: SluiceProcess, unique: Unique
) -> None:
    user = unique("user")
    sluice.set_quotas({"user": user, "producer_byte_rate": 1_000})
    socket = sluice.folder / "admin.socket"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    place = ("--admin-socket", str(socket))
    done = run("configs", *place, "--describe", "--entity-type", "users")
    assert done.stdout == f"Quota configs for user-principal '{user}' are producer_byte_rate=1000.0\n"
    done = run("configs", *place, "--alter", "--add-config", "producer_byte_rate=2", "--user", user)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"come from the file {sluice.quota_file}; change them there" in done.stderr


@pytest.mark.long
def test_a_topics_quotas_are_changed_through_the_socket_and_hold(kafka: KafkaNode, unique: Unique) -> None:
    user, client_id = unique("user"), unique("app")
    topic = {"name": unique("quotas"), "bootstrap": [kafka.bootstrap]}
    options = {"source": "topic", "topic": topic, "admins": ["ANONYMOUS"]}
    with proxy_with_socket(kafka, quota_options=options) as sluice:
        place = ("--config", str(sluice.folder / "sluice.yaml"))
        by_api = ("--bootstrap-server", sluice.bootstrap())
        limits = f"producer_byte_rate={SLOW},request_percentage=900"
        done = run("configs", *place, "--alter", "--add-config", limits, "--client", client_id)
        assert (done.returncode, done.stdout.splitlines()[0]) == (
            0,
            f"Completed updating config for client {client_id}.",
        )
        done = run("configs", *by_api, "--alter", "--add-config", "producer_byte_rate=5", "--user", user)
        assert done.returncode == 0, done.stderr
        for asked in (place, by_api, ("--admin-socket", str(sluice.folder / "admin.socket"))):
            assert run("quotas", "export", *asked).stdout == (
                f'quotas:\n  - user: "{user}"\n    producer_byte_rate: 5\n'
                f'  - client-id: "{client_id}"\n    producer_byte_rate: {SLOW}\n'
                "    request_percentage: 900\n"
            )
        with flowing(kafka, sluice, unique("topic"), client_id):
            assert throttled_row(sluice, client_id)["limit"] == SLOW
        done = run("configs", *place, "--alter", "--delete-config", "producer_byte_rate", "--user", user)
        assert done.returncode == 0
        assert user not in run("configs", *place, "--describe", "--entity-type", "users").stdout
        done = run("configs", *place, "--alter", "--add-config", "producer_byte_rate=0.5", "--user", user)
        assert done.returncode == 2  # refused before it is sent


def test_without_a_proxy_it_is_said_what_is_missing(tmp_path: Any) -> None:
    done = run("top", "--admin-socket", str(tmp_path / "none"), "--once")
    assert done.returncode == 1
    assert "does the proxy run, with admin.socket set?" in done.stderr
    done = run("top", "--url", f"http://{LOOPBACK}:{free_port()}", "--once")
    assert done.returncode == 1
    assert "does the proxy run?" in done.stderr
    assert "Traceback" not in done.stderr
