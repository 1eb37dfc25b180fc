"""Live connections: two looks at their counters → rates; sorted, found by name, shown in 80 columns."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sluice.proxy.admin.questions import BadRequest
from sluice.proxy.admin.top.order import ConnectionSort
from sluice.proxy.admin.top.throughput import LiveConnections, TwoLooks
from sluice.proxy.admin.top.throughput_view import connections_view
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import API_VERSIONS, fetch, fetch_answer_of, produce_of, request
from testkit.proxy.playbook import START_MS, Shell, limits_of, shared_of
from testkit.proxy.status_feed import Feed, served

SLUICE = Path(sys.executable).with_name("sluice")


@dataclass(eq=False)
class Client:
    """A connection, as far as it is looked at."""

    peer: str
    session: Session


def connected(user: str, port: int, produce_rate: int = 0) -> tuple[Shell, Client]:
    shared = shared_of(limits_of(produce_rate=produce_rate or 10_000_000))
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1", user))
    return shell, Client(f"10.0.0.1:{port}", shell.session)


def run(looks: TwoLooks, *clients: Client, between: Any = lambda: None, span_s: float = 2.0) -> None:
    for _ in looks.first(list(clients)):
        pass
    between()
    for _ in looks.second(list(clients), span_s, lambda: START_MS):
        pass


def test_what_passes_between_two_looks_is_the_rate_and_what_was_before_is_not() -> None:
    shell, client = connected("alice", 5000)
    shell.client_sends(produce_of(7_000))
    looks = TwoLooks()
    run(looks, client, between=lambda: shell.client_sends(produce_of(3_000)))
    (row,) = looks.rows
    assert (row.user, row.client_id, row.peer) == ("alice", "app", "10.0.0.1:5000")
    assert (row.bytes_in, row.bytes_in_per_s, row.bytes_out_per_s) == (10_000, 1_500.0, 0.0)
    assert (row.requests, row.requests_per_s, row.in_flight) == (2, 0.5, 2)


def test_the_software_is_what_the_client_called_itself() -> None:
    shell, client = connected("alice", 5000)
    java: dict[str, Any] = {"clientSoftwareName": "apache-kafka-java", "clientSoftwareVersion": "4.3.1"}
    shell.client_sends(request(API_VERSIONS, 3, java))
    other, silent = connected("alice", 5001)
    other.client_sends(request(API_VERSIONS, 0, {}))
    boaster, long = connected("alice", 5002)
    boaster.client_sends(request(API_VERSIONS, 3, {**java, "clientSoftwareName": "x" * 500}))
    looks = TwoLooks()
    run(looks, client, silent, long)
    assert [row.software for row in looks.rows] == ["apache-kafka-java 4.3.1", "", "x" * 64]


def test_names_are_cut_where_they_are_told() -> None:
    """One in the quota file may have 32 KiB, and each connection behind it would tell all of it."""
    limits = [(QuotaEntity("\x01" * 9_000, "\x01" * 9_000), {"producer_byte_rate": 1})]
    shared = shared_of(QuotaLimits(limits))
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1", "\x01" * 9_000))
    shell.client_sends(produce_of(20_000, client_id="\x01" * 9_000))
    looks = TwoLooks()
    run(looks, Client("10.0.0.1:5000", shell.session))
    found = looks.rows[0].to_json()
    assert (found["user"], found["client_id"]) == ("\x01" * 256, "\x01" * 256)


def test_answers_are_bytes_out() -> None:
    shell, client = connected("alice", 5000)
    request = fetch()
    shell.client_sends(request)
    looks = TwoLooks()
    answer = fetch_answer_of(6_000)
    run(looks, client, between=lambda: shell.broker_sends(answer))
    (row,) = looks.rows
    assert (row.bytes_out_per_s, row.in_flight) == (len(answer) / 2.0, 0)


def test_one_that_came_in_between_has_done_all_since_and_one_that_left_is_no_row() -> None:
    _, old = connected("alice", 5000)
    shell, new = connected("bob", 5001)
    looks = TwoLooks()
    for _ in looks.first([old]):
        pass
    shell.client_sends(produce_of(4_000))
    for _ in looks.second([new], 2.0, lambda: START_MS):
        pass
    assert [(row.user, row.bytes_in_per_s) for row in looks.rows] == [("bob", 2_000.0)]


def test_a_delay_that_is_sat_out_is_told_with_its_quota() -> None:
    shell, client = connected("alice", 5000, produce_rate=1_000)
    shell.client_sends(produce_of(3_000))
    looks = TwoLooks()
    run(looks, client)
    (row,) = looks.rows
    assert (row.state, row.throttled_by, row.for_ms) == ("muted", "produce", 2_000.0)


def asked(feed: Feed, **question: Any) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        feed.desk.live = LiveConnections(lambda: feed.clients, span_s=0.05)
        return await feed.desk.answer({"ask": "connections", **question})

    return asyncio.run(ask())


def test_they_are_sorted_cut_and_found_by_user_client_id_or_address() -> None:
    feed = Feed()
    feed.produces("alice", 300_000, "orders")
    feed.produces("alice", 2_000, "orders")
    feed.produces("bob", 40_000, "web")
    everything = asked(feed)
    assert (everything["connections"], everything["matching"], len(everything["rows"])) == (3, 3, 3)
    assert json.dumps(everything)
    for user, count in (("alice", 2), ("User:bob", 1), ("w?b", 1), ("10.0.0.2", 1), ("nobody", 0), ("al", 0)):
        found = asked(feed, user=user)
        assert (found["matching"], found["connections"]) == (count, 3), user
    assert len(asked(feed, rows=1)["rows"]) == 1
    (first, *_) = asked(feed, sort="delay")["rows"]
    assert (first["user"], first["throttled_by"]) == ("alice", "produce")


@pytest.mark.parametrize(
    ("question", "words"),
    [({"sort": "size"}, "throughput, in, out"), ({"user": 3}, "user must be"), ({"user": "x" * 201}, "200")],
)
def test_what_is_no_question_is_refused(question: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        asked(Feed(), **question)


def test_who_asks_while_a_look_is_made_gets_the_same_one_and_nothing_is_kept_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluice.proxy.admin.top.throughput.KEPT_S", 0.0)
    lists = 0
    _, client = connected("alice", 5000)

    def connections() -> list[Client]:
        nonlocal lists
        lists += 1
        return [client]

    async def use() -> None:
        live = LiveConnections(connections, span_s=0.1)
        calls = itertools.count()  # a clock by which they ask at once, however busy the machine is
        monkeypatch.setattr("sluice.proxy.admin.top.throughput.monotonic", lambda: next(calls) / 1e6)
        monkeypatch.setattr("sluice.proxy.admin.top.throughput.KEPT_S", 60.0)
        answers = await asyncio.gather(*(live.snapshot(sort=sort) for sort in ConnectionSort))
        assert {answer["connections"] for answer in answers} == {1}
        assert lists == 2
        live._forget(live._last or [])
        await live.snapshot()
        assert lists == 4

    asyncio.run(use())


def test_the_command_asks_the_admin_port_for_json_or_a_table() -> None:
    def command(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        return subprocess.run(
            [SLUICE, "connections", "--url", f"http://127.0.0.1:{port}", *arguments],
            env={**environ, "COLUMNS": "80"}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    async def use() -> None:
        feed = Feed()
        feed.produces("alice", 300_000, "orders")
        feed.produces("bob", 40_000, "web")
        feed.desk.live = LiveConnections(lambda: feed.clients, span_s=0.05)
        async with served(feed) as server:
            told = await asyncio.to_thread(command, server.port, "--output", "json", "--user", "al*")
            assert [row["user"] for row in json.loads(told.stdout)["rows"]] == ["alice"]
            table = await asyncio.to_thread(command, server.port, "--sort", "delay", "--rows", "1")
            assert "1 of 2 connections" in table.stdout
            assert "alice/orders" in table.stdout
            nobody = await asyncio.to_thread(command, server.port, "--user", "\udcff")  # bytes, no text
            assert (nobody.returncode, "no connection matches" in nobody.stdout) == (0, True)
            refused = await asyncio.to_thread(command, server.port, "--user", "x" * 201)
            assert (refused.returncode, "at most 200 characters" in refused.stderr) == (1, True)

    asyncio.run(use())


def snapshot(**row: Any) -> dict[str, Any]:
    one = {
        "peer": "10.0.0.5:4711", "user": "alice", "client_id": "orders", "state": "muted",
        "software": "apache-kafka-java 4.3.1",
        "throttled_by": "produce", "for_ms": 523.4, "in_flight": 3, "requests": 900, "bytes_in": 1,
        "bytes_out": 2,
        "requests_per_s": 12.0, "bytes_in_per_s": 1_040_000.0, "bytes_out_per_s": 2_100.0,
    }  # fmt: skip
    return {
        "at": "2026-01-01T00:00:00.000+00:00", "age_ms": 1.0, "work_ms": 1.0, "over_s": 1.0,
        "connections": 90,
        "throttled_connections": 1, "matching": 14, "bytes_in_per_s": 1.04e6, "bytes_out_per_s": 2_100.0,
        "rows": [one | row],
    }  # fmt: skip


def shown(found: dict[str, Any], width: int, searched: str = "") -> list[str]:
    out = io.StringIO()
    view = connections_view(found, width=width, searched=searched)
    Console(file=out, width=width, highlight=False).print(view)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (60, "user/client-id in out waits for"),
        (80, "user/client-id peer in out waits for"),
        (90, "user/client-id peer in out in flight waits for"),
        (104, "user/client-id peer in out requests/s in flight waits for"),
        (122, "user/client-id peer in out requests/s in flight waits for quota state"),
        (212, "user/client-id peer in out requests/s in flight waits for quota client state"),
    ],
)
def test_a_row_is_a_line_however_narrow(width: int, titles: str) -> None:
    worst = {
        "user": "u" * 300,
        "client_id": "c\x1b[31m" * 99,
        "software": "s\x1b" * 32,
        "bytes_in_per_s": 999.99e9,
        "for_ms": 3.6e8,
    }
    for found in (snapshot(), snapshot(**worst)):
        lines = shown(found, width)
        assert all(len(line) <= width for line in lines)
        table = [line for line in lines[1:] if line and not set(line) <= set("─ ")]
        assert " ".join(table[0].split()) == titles
        assert len(table) == 2
        assert "\x1b" not in table[1]


def test_the_head_tells_how_many_and_what_passes_through_them() -> None:
    assert shown(snapshot(), 80)[0] == "1 of 14 connections · in 1.04 MB/s · out 2.10 kB/s"
    assert shown(snapshot(), 80, "alice")[0].endswith(" · 90 in all")
    row = " ".join(shown(snapshot(), 80)[4].split())
    assert row == "alice/orders 10.0.0.5:4711 1.04 MB/s 2.10 kB/s 523 ms"


def test_nothing_that_matches_is_said_in_place_of_an_empty_table() -> None:
    assert shown({**snapshot(), "rows": [], "matching": 0}, 80, "x\x1b")[-1] == "no connection matches x\\x1b"
