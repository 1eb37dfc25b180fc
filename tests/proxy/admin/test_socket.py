"""The admin socket: who may open it, what is bounded, what it answers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import structlog

from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.questions import BadRequest
from sluice.proxy.admin.socket import MAX_CLIENTS, MAX_LINE_BYTES, AdminSocket, Answer, bound
from sluice.proxy.admin.top import snapshot
from sluice.proxy.quota_store.client_quotas import Alteration, Result
from sluice.proxy.quota_store.service import FileStore, QuotaDesk, QuotaStore
from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, Tenant
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.files.schedule_entries import window_item
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.schedule import Window
from sluice.quotas.limits.scheduled import limits_at
from testkit.proxy.playbook import limits_of, shared_of

pytestmark = pytest.mark.asyncio


async def echo(request: Mapping[str, Any]) -> dict[str, Any]:
    if "fail" in request:
        raise RuntimeError("a fault of ours")
    if "refuse" in request:
        raise BadRequest("no")
    return {"asked": dict(request)}


@asynccontextmanager
async def served(folder: Path, answer: Answer = echo) -> AsyncIterator[AdminSocket]:
    server = AdminSocket(folder / "s", answer)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Talk:
    """One client's connection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> Talk:
        self.reader, self.writer = await asyncio.open_unix_connection(self._path, limit=2 * MAX_LINE_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, line: bytes) -> Any:
        self.writer.write(line + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        async with asyncio.timeout(10):
            return json.loads(await self.reader.readline())


async def test_requests_are_answered_in_order_until_the_client_leaves(tmp_path: Path) -> None:
    async with served(tmp_path) as server, Talk(server.path) as talk:
        assert await talk.ask(b'{"n": 1}') == {"ok": True, "asked": {"n": 1}}
        talk.writer.write(b'{"n": 2}\n{"n": 3}\n')
        assert [(await talk.answer())["asked"]["n"] for _ in range(2)] == [2, 3]


async def test_what_is_no_request_is_told_and_the_connection_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path) as server, Talk(server.path) as talk:
        for line in (b"nonsense", b"[1]", b'"top"', b"\xff\xfe", b"", b"9" * 5000, b"[" * 100_000):
            answer = await talk.ask(line)
            assert answer["ok"] is False
            assert "one object on one line" in answer["error"]
        assert await talk.ask(b'{"refuse": 1}') == {"ok": False, "error": "no"}
        assert "internal error" in (await talk.ask(b'{"fail": 1}'))["error"]
        assert (await talk.ask(b"{}"))["ok"] is True
    assert "a fault of ours" in capsys.readouterr().out


async def test_a_line_without_an_end_is_bounded(tmp_path: Path) -> None:
    async with served(tmp_path) as server, Talk(server.path) as talk:
        talk.writer.write(b"x" * (MAX_LINE_BYTES + 100_000))
        assert "at most" in (await talk.answer())["error"]
        assert await talk.reader.read() == b""


async def test_only_so_many_clients_are_served_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        talks = [Talk(server.path) for _ in range(MAX_CLIENTS + 1)]
        for talk in talks[:-1]:
            await talk.__aenter__()
            assert (await talk.ask(b"{}"))["ok"]
        async with talks[-1] as late:
            assert "clients are connected already" in (await late.answer())["error"]
        talks[0].writer.close()
        await talks[0].writer.wait_closed()
        while True:  # until the server has noticed
            async with Talk(server.path) as later:
                if (await later.ask(b"{}"))["ok"]:
                    break
        for talk in talks[1:-1]:
            talk.writer.close()


async def test_it_is_the_owners_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        assert stat.S_IMODE(os.lstat(server.path).st_mode) == 0o600
    assert not server.path.exists()
    await server.stop()  # once more


async def test_one_that_a_process_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    async with served(tmp_path) as server, Talk(server.path) as talk:
        assert (await talk.ask(b"{}"))["ok"]


async def test_one_that_another_process_serves_is_left_alone(tmp_path: Path) -> None:
    first = AdminSocket(tmp_path / "s", echo)
    await first.start()
    with pytest.raises(OSError, match="another process serves"):
        await AdminSocket(tmp_path / "s", echo).start()
    async with Talk(first.path) as talk:
        assert (await talk.ask(b"{}"))["ok"]
    # It went away meanwhile, and another took its place: that is not removed.
    first.path.unlink()
    second = bound(first.path)
    await first.stop()
    assert first.path.exists()
    second.close()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(OSError, match="is no socket"):
        await AdminSocket(tmp_path / "s", echo).start()
    assert (tmp_path / "s").read_text() == "mine"


# What is asked ----------------------------------------------------------------------------------------------


class KeptStore:
    """Keeps what it is told, and takes it all."""

    def __init__(self) -> None:
        self.kept: list[tuple[list[Alteration], bool, str]] = []

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        self.kept.append((list(alterations), validate_only, by))
        return [Result(alteration.parts, 0, None) for alteration in alterations]


def desk_of(store: QuotaStore) -> AdminDesk:
    shared = shared_of(limits_of(produce_rate=1_000))
    sensor = shared.quotas.sensor(QuotaKind.PRODUCE, "alice", "", 0.0)
    assert sensor is not None
    quotas = QuotaDesk(lambda: shared.quotas.limits, store)
    return AdminDesk(shared.quotas, shared.producer_ids, list, quotas)


async def test_limits_are_told_as_kafkas_api_names_them() -> None:
    desk = desk_of(KeptStore())
    assert await desk.answer({"ask": "describe"}) == {
        "entries": [{"entity": {"user": None}, "limits": {"producer_byte_rate": 1000}, "shadow": []}]
    }


async def test_it_is_told_where_what_is_over_budget_is_refused() -> None:
    alice = QuotaEntity("alice")
    limits = QuotaLimits([(alice, {"producer_byte_rate": 1})], refusing=[alice])
    shared = shared_of(limits)
    desk = AdminDesk(shared.quotas, shared.producer_ids, list, QuotaDesk(lambda: limits, KeptStore()))
    (entry,) = (await desk.answer({"ask": "describe"}))["entries"]
    assert entry["over_budget"] == "refuse"


async def test_limits_in_shadow_mode_are_told_as_such_and_left_out_of_kafkas_api() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity("alice"), {"producer_byte_rate": 1, "consumer_byte_rate": 2}),
            (QuotaEntity(Tenant("team")), {"producer_byte_rate": 3}),
        ],
        shadow={QuotaEntity("alice"): ["consumer_byte_rate"]},
        tenants={"team": ["bob"]},
    )
    shared = shared_of(limits)
    quotas = QuotaDesk(lambda: limits, KeptStore(), frozenset({"admin"}))
    desk = AdminDesk(shared.quotas, shared.producer_ids, list, quotas)
    told = {"producer_byte_rate": 1, "consumer_byte_rate": 2}
    assert await desk.answer({"ask": "describe"}) == {
        "entries": [{"entity": {"user": "alice"}, "limits": told, "shadow": ["consumer_byte_rate"]}]
    }
    in_force = [((("user", "alice"),), {"producer_byte_rate": 1})]
    assert await quotas.describe("admin", [], strict=False) == in_force


async def test_all_is_told_to_who_asks_for_all() -> None:
    saturday = Window({"producer_byte_rate": 9}, weekdays=frozenset({5}))
    team = QuotaEntity(Tenant("team"), Prefix("etl-"))
    limits = QuotaLimits(
        [(team, {"producer_byte_rate": 3}), (QuotaEntity(client_id=DEFAULT), {"request_percentage": 5})],
        exempt=[ExemptRule("backup", network_of("10.0.0.0/8"))],
        tenants={"team": ["bob"]},
        schedules={team: (saturday,)},
    )
    now = limits_at(limits, datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()).limits
    shared = shared_of(now)
    desk = AdminDesk(shared.quotas, shared.producer_ids, list, QuotaDesk(lambda: now, KeptStore()))
    assert await desk.answer({"ask": "describe", "all": True}) == {
        "entries": [
            {
                "entity": {"tenant": "team", "client-id-prefix": "etl-"},
                "limits": {"producer_byte_rate": 9},
                "shadow": [],
                "schedule": [window_item(saturday)],
                "normal": {"producer_byte_rate": 3},
            },
            {"entity": {"client-id": None}, "limits": {"request_percentage": 5}, "shadow": []},
        ],
        "sections": {
            "tenants": [{"name": "team", "members": ["bob"]}],
            "exempt": [{"user": "backup", "address": "10.0.0.0/8"}],
        },
    }
    kafkas = await desk.answer({"ask": "describe"})
    assert [entry["entity"] for entry in kafkas["entries"]] == [{"client-id": None}]


async def test_a_change_goes_to_the_store_as_the_local_admins() -> None:
    store = KeptStore()
    entry = {"entity": {"user": "a", "client-id": None}, "set": {"request_percentage": 5}, "remove": ["x"]}
    answer = await desk_of(store).answer({"ask": "alter", "entries": [entry], "validate_only": True})
    parts = (("user", "a"), ("client-id", None))
    assert answer == {"results": [{"entity": dict(parts), "error_code": 0, "error": None}]}
    assert store.kept == [
        ([Alteration(parts, [("request_percentage", 5.0), ("x", None)])], True, "local admin")
    ]


async def test_a_quota_file_is_not_changed_through_the_socket(
    tmp_path: Path, log_lines: list[structlog.typing.EventDict]
) -> None:
    desk = desk_of(FileStore(tmp_path / "quotas.yaml"))
    entry = {"entity": {"user": "a"}, "set": {"producer_byte_rate": 5}}
    with pytest.raises(BadRequest, match=r"error 44: .*quotas\.yaml; change them there"):
        await desk.answer({"ask": "alter", "entries": [entry]})
    (line,) = log_lines
    assert (line["event"], line["user"]) == ("quota_change_refused", "local admin")


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"ask": "shutdown"},
        {"ask": []},
        {"ask": "alter"},
        {"ask": "alter", "entries": [5]},
        {"ask": "alter", "entries": [{"entity": "alice"}]},
        {"ask": "alter", "entries": [{"entity": {"user": 5}}]},
        {"ask": "alter", "entries": [{"entity": {"user": "a"}, "set": {"k": "5"}}]},
        {"ask": "alter", "entries": [{"entity": {"user": "a"}, "set": {"k": True}}]},
        {"ask": "alter", "entries": [{"entity": {"user": "a"}, "remove": [5]}]},
        {"ask": "alter", "entries": [{"entity": {"user": "a"}, "del": ["k"]}]},
        {"ask": "alter", "entries": [{"entity": {"user": "a"}}] * 1001},
        {"ask": "connections", "sort": []},
        {"ask": "connections", "user": None},
    ],
)
async def test_what_makes_no_sense_is_refused(request_: dict[str, Any]) -> None:
    store = KeptStore()
    with pytest.raises(BadRequest):
        await desk_of(store).answer(request_)
    assert store.kept == []


ENTRY: Mapping[str, Any] = {"entity": {"user": "a"}, "set": {"producer_byte_rate": 5}}


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (r'{"entity": {"user": "\ud800"}, "set": {"k": 1}}', r"entries[0].entity.user: "),
        (r'{"entity": {"client-id": "a\udfffb"}, "set": {"k": 1}}', r"entries[0].entity.client-id: "),
        (r'{"entity": {"ip": "\ud83d x"}, "set": {"k": 1}}', r"entries[0].entity.ip: "),
        (r'{"entity": {"\ud800": "a"}, "set": {"k": 1}}', r"entries[0].entity.a key: "),
        (r'{"entity": {"user": "a"}, "set": {"\ud800": 1}}', r"entries[0].set.a key: "),
        (r'{"entity": {"user": "a"}, "remove": ["\ud800"]}', r"entries[0].remove[0]: "),
    ],
)
async def test_half_a_surrogate_pair_is_refused_by_its_place(line: str, where: str, tmp_path: Path) -> None:
    store = KeptStore()
    async with served(tmp_path, desk_of(store).answer) as server, Talk(server.path) as talk:
        answer = await talk.ask(f'{{"ask": "alter", "entries": [{line}]}}'.encode())
        assert answer["error"].startswith(where)
        assert "half a surrogate pair" in answer["error"]
        raw = b'{"ask": "alter", "entries": [{"entity": {"user": "\xed\xa0\x80"}, "set": {"k": 1}}]}'
        assert "not JSON in UTF-8" in (await talk.ask(raw))["error"]
        assert store.kept == []
        whole = json.dumps({"ask": "alter", "entries": [{**ENTRY, "entity": {"user": "\U0001f600"}}]})
        assert (await talk.ask(whole.encode()))["ok"]
        assert (await talk.ask(rb'{"ask": "\ud800"}'))["error"].startswith("ask: ")


async def test_the_same_survey_is_given_again_while_it_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = monotonic()
    monkeypatch.setattr(snapshot, "monotonic", lambda: now_s)
    desk = desk_of(KeptStore())
    assert (await desk.answer({"ask": "top", "rows": 1}))["age_ms"] == 0.0
    now_s += 0.09
    again = await desk.answer({"ask": "top", "rows": 1})
    assert (again["age_ms"], again["buckets"]) == (90.0, 1)
    now_s += 60.0  # beyond ten times the work, too
    assert (await desk.answer({"ask": "top"}))["age_ms"] == 0.0


async def test_a_tenants_members_are_told_with_its_bucket() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity(Tenant("team")), {"producer_byte_rate": 3}),
            (QuotaEntity("a"), {"producer_byte_rate": 3}),
        ],
        tenants={"team": ["bob", "carol"]},
    )
    shared = shared_of(limits)
    for user in ("carol", "a"):
        shared.quotas.sensor(QuotaKind.PRODUCE, user, "", monotonic() * 1000.0)
    desk = AdminDesk(shared.quotas, shared.producer_ids, list, None)
    rows = (await desk.answer({"ask": "top"}))["rows"]
    assert {str(row["bucket"]): row.get("members") for row in rows} == {
        "{'tenant': 'team'}": ["bob", "carol"],
        "{'user': 'a'}": None,
    }


async def test_the_loop_turns_while_a_survey_is_made() -> None:
    """90,000 buckets: other tasks get their turn every few hundred of them."""
    shared = shared_of(limits_of(produce_rate=1_000))
    for number in range(9_000):
        shared.quotas.sensor(QuotaKind.PRODUCE, f"user-{number}", "", 0.0)
    desk = AdminDesk(shared.quotas, shared.producer_ids, list, None)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(other())
    found = await desk.top.snapshot()
    beside.cancel()
    assert found["buckets"] == 9_000
    assert turns >= 30
