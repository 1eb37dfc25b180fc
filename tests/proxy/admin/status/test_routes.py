"""The status page and its API over real HTTP on loopback, as the admin port serves them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import jsonschema
import pytest
import uvloop

from sluice.proxy.admin.server import AdminServer
from sluice.proxy.admin.status.openapi import ENDPOINTS, document, document_text
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.status_feed import HOSTILE, LIMITS, Feed, served
from tools.reference import documents

TOKEN: Final = "a-token-of-many-characters"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def get(
    server: AdminServer, path: str, *, method: str = "GET", host: str = "localhost", **headers: str
) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    first, *rest = head.decode().split("\r\n")
    return Answer(int(first.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body)


def with_status(
    use: Callable[[AdminServer], Awaitable[None]], feed: Feed | None = None, **status: Any
) -> None:
    """Run `use` against the admin port of a feed, in uvloop as in the proxy."""

    async def run() -> None:
        made = feed
        if made is None:
            made = Feed()
            made.fill()
        async with served(made, **status) as server:
            await use(server)

    uvloop.run(run())


def test_every_answer_is_as_the_openapi_document_says() -> None:
    whole = document()

    async def use(server: AdminServer) -> None:
        served_document = await get(server, "/api/v1/openapi.json")
        assert served_document.json == whole
        rows = (await get(server, "/api/v1/principals")).json["rows"]
        assert len(rows) > 10
        for endpoint in ENDPOINTS:
            for asked in ("", "?limit=3&offset=1&search=a&history=true"):
                fitting = asked if "PrincipalsQuery" in str(endpoint.query) else ""
                answer = await get(server, endpoint.path.replace("{id}", rows[0]["id"]) + fitting)
                assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
                schema = {"$ref": f"#/components/schemas/{endpoint.answer.__name__}"}
                jsonschema.validate(answer.json, {**schema, "components": whole["components"]})

    with_status(use)


def test_the_document_is_checked_in_and_says_all_that_can_be_asked() -> None:
    assert documents()["status-api.json"] == document_text()
    operations = [path["get"] for path in document()["paths"].values()]
    assert all(set(path) == {"get"} for path in document()["paths"].values())
    asked = {one["operationId"]: {p["name"] for p in one.get("parameters", ())} for one in operations}
    assert asked == {
        "summary": set(),
        "principals": {"offset", "limit", "search", "throttled", "quota", "sort", "order", "history"},
        "principal": {"id"},
        "connections": {"offset", "limit", "search", "throttled"},
        "producer_ids": {"offset", "limit", "search"},
        "events": {"offset", "limit", "search"},
        "replication": {"offset", "limit", "search"},
        "plan": set(),
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("principals?limit=101", "limit: must be at most 100"),
        ("principals?limit=0", "limit"),
        ("principals?offset=-1", "offset"),
        ("principals?offset=1001", "offset"),
        ("principals?sort=evil", "sort: must be 'throttle', 'delayed', 'utilisation', "),
        ("principals?sort=utilization", "did you mean utilisation?"),
        ("principals?throttled=perhaps", "throttled: must be true or false"),
        ("principals?quota=nothing", "quota"),
        ("principals?unknown=1", "unknown: unknown key; known here: history, limit, offset, "),
        ("principals?thottled=true", "thottled: unknown key; did you mean throttled?"),
        ("connections?quota=produce", "quota"),
        (f"events?search={'x' * 201}", "search"),
        ("summary?a=b", "a"),
    ],
)
def test_a_question_that_is_not_understood_is_refused_with_its_key(path: str, words: str) -> None:
    async def use(server: AdminServer) -> None:
        answer = await get(server, f"/api/v1/{path}")
        assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
        assert words in answer.json["detail"]
        page = await get(server, f"/status?{path.partition('?')[2]}")
        assert page.status in {200, 400}

    with_status(use, Feed())


def test_a_quota_is_named_by_its_kind_or_by_its_key_in_the_quota_file() -> None:
    async def use(server: AdminServer) -> None:
        for kind, key in (("produce", "producer_byte_rate"), ("producer_ids", "producer_ids_rate")):
            by_kind, by_key = [
                (await get(server, f"/api/v1/principals?limit=100&quota={name}")).json["rows"]
                for name in (kind, key)
            ]
            assert [row["id"] for row in by_kind] == [row["id"] for row in by_key]
            assert {(row["quota"], row["key"]) for row in by_key} == {(kind, key)}

    with_status(use)


def test_a_bucket_that_is_not_in_use_is_not_found() -> None:
    async def use(server: AdminServer) -> None:
        for key in ("0" * 16, "nonsense"):
            answer = await get(server, f"/api/v1/principals/{key}")
            assert (answer.status, answer.json["title"]) == (404, "Not in use")
        assert (await get(server, f"/status?bucket={'0' * 16}")).status == 200

    with_status(use, Feed())


def test_nothing_can_be_changed() -> None:
    async def use(server: AdminServer) -> None:
        for path in ("/status", "/api/v1/summary", "/api/v1/principals", "/api/v1/openapi.json"):
            for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                assert (await get(server, path, method=method)).status == 405
            assert (await get(server, path, method="HEAD")).body == b""

    with_status(use, Feed())


def test_the_page_and_its_answers_may_do_as_little_as_can_be() -> None:
    async def use(server: AdminServer) -> None:
        for path in ("/status", "/api/v1/summary", "/api/v1/none"):
            headers = (await get(server, path)).headers
            if path == "/api/v1/none":
                continue
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert "access-control-allow-origin" not in headers

    with_status(use, Feed())


def test_names_that_are_markup_are_data_in_json_and_text_on_the_page() -> None:
    async def use(server: AdminServer) -> None:
        rows = (await get(server, "/api/v1/principals?limit=100&quota=produce")).json["rows"]
        assert {name[:256] for name in HOSTILE} <= {row["bucket"].get("user") for row in rows}
        for name in HOSTILE:
            asked = urlencode({"search": name[:100], "quota": "produce"})
            found = (await get(server, f"/api/v1/principals?{asked}")).json
            assert found["matching"] == 1, name
            page = (await get(server, f"/status?{asked}")).body
            assert b"<script>alert" not in page
            assert b"<img" not in page

    with_status(use)


@pytest.mark.parametrize("path", ["/status", "/api/v1/summary", "/api/v1/openapi.json", "/api/v1/plan"])
def test_another_name_for_this_host_is_refused_without_the_token(path: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)

    async def use(server: AdminServer) -> None:
        assert (await get(server, path)).status == 200
        assert (await get(server, path, host="sluice.example:9308")).status == 200
        refused = await get(server, path, host="evil.example")
        assert (refused.status, refused.json["title"]) == (403, "Unknown host name")
        assert "admin.status.hosts" in refused.json["detail"]
        passed_on = await get(server, path, X_Forwarded_For="127.0.0.1")
        assert passed_on.status == 401
        assert passed_on.headers["www-authenticate"].startswith("basic realm=")
        if path == "/status":
            shown = await get(server, path, host="<b>.example", Accept="text/html,*/*;q=0.8")
            assert (shown.status, shown.headers["content-type"]) == (403, "text/html; charset=utf-8")
            assert b"<h1>Unknown host name</h1>" in shown.body
            assert b"<b>.example" not in shown.body
            assert b"&lt;b&gt;.example" in shown.body
        for given, expected in ((TOKEN, 200), (TOKEN[:-1], 401)):
            answer = await get(server, path, host="evil.example", Via="x", Authorization=f"Bearer {given}")
            assert answer.status == expected

    with_status(use, Feed(), token_file=str(file), hosts=["sluice.example"])


def test_the_root_leads_to_the_page() -> None:
    async def use(server: AdminServer) -> None:
        answer = await get(server, "/")
        assert (answer.status, answer.headers["location"]) == (307, "/status")
        assert (await get(server, "/", host="evil.example")).status == 403

    with_status(use)


def test_metrics_and_health_stay_open_under_any_name() -> None:
    async def use(server: AdminServer) -> None:
        for path in ("/metrics", "/livez", "/readyz", "/startupz"):
            assert (await get(server, path, host="evil.example", Via="x")).status == 200

    with_status(use, Feed())


@pytest.mark.parametrize("enabled", [True, False])
def test_what_sluice_top_asks_for_is_behind_the_same_rule_page_or_no_page(
    tmp_path: Path, enabled: bool
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)

    async def use(server: AdminServer) -> None:
        for path in ("/top", "/replication", "/connections"):
            assert (await get(server, path)).status == 200
            assert (await get(server, path, host="evil.example", Via="x")).status == 401
            answer = await get(server, path, host="evil.example", Via="x", Authorization=f"Bearer {TOKEN}")
            assert answer.status == 200

    with_status(use, Feed(), token_file=str(file), enabled=enabled)


def test_a_new_token_counts_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.proxy.admin.status.routes._TOKEN_LOOK_S", 0.0)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    os.utime(file, (1_000, 1_000))

    async def use(server: AdminServer) -> None:
        async def status(token: str) -> int:
            return (await get(server, "/api/v1/plan", Authorization=f"Bearer {token}")).status

        assert (await status(TOKEN), await status("another-token-of-some-length")) == (200, 401)
        new = tmp_path / "new"
        new.write_text("another-token-of-some-length")
        new.replace(file)
        assert (await status(TOKEN), await status("another-token-of-some-length")) == (401, 200)

    with_status(use, Feed(), token_file=str(file), token_on_loopback=True)


def test_a_token_that_cannot_be_used_is_an_error_of_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the status page's token"):
        with_status(lambda _: asyncio.sleep(0), Feed(), token_file=str(tmp_path / "none"))


def test_a_page_that_is_off_is_not_there() -> None:
    async def use(server: AdminServer) -> None:
        for path in ("/status", "/api/v1/summary", "/api/v1/openapi.json"):
            assert (await get(server, path)).status == 404
        assert (await get(server, "/metrics")).status == 200

    with_status(use, Feed(), enabled=False)


def test_curves_grow_while_nobody_looks() -> None:
    async def use(server: AdminServer) -> None:
        for _ in range(100):
            rows = (await get(server, "/api/v1/principals?history=true&search=alice&quota=produce")).json[
                "rows"
            ]
            if rows[0]["history"] is not None:
                break
            await asyncio.sleep(0.05)
        history = rows[0]["history"]
        assert len(history["utilisation"]) == len(history["delay_ms"]) == 120
        assert history["utilisation"][-1] > 0.0
        assert history["delay_ms"][-1] > 0.0
        without = (await get(server, "/api/v1/principals")).json["rows"]
        assert {row["history"] for row in without} == {None}

    with_status(use)


def test_the_last_plan_is_read_from_the_jobs_folder_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.proxy.admin.status.service._PLAN_LOOK_S", 0.0)

    def write(name: str, text: str) -> None:
        plan = tmp_path / "plans" / name / "plan.json"
        plan.parent.mkdir(parents=True)
        plan.write_text(text)
        (tmp_path / "LATEST").write_text(name)

    async def use(server: AdminServer) -> None:
        assert (await get(server, "/api/v1/plan")).json["state"] == "none"
        write("2026-11-20-1", '{"date": "2026-11-20", "entries": []}')
        plan = (await get(server, "/api/v1/plan")).json
        assert (plan["state"], plan["name"], plan["date"]) == ("shown", "2026-11-20-1", "2026-11-20")
        write("2026-11-21-1", "half a pl")
        plan = (await get(server, "/api/v1/plan")).json
        assert (plan["state"], plan["name"]) == ("unusable", "2026-11-21-1")
        assert plan["problem"].startswith("is no plan")
        assert (await get(server, "/status")).status == 200

    with_status(use, Feed(), plan=str(tmp_path))


def test_many_questions_at_once_are_answered_or_told_to_come_again() -> None:
    feed = Feed(QuotaLimits([(QuotaEntity(DEFAULT), {"producer_byte_rate": 1_000})]))
    for number in range(3_000):
        feed.uses(f"user-{number}", "app", number)

    async def use(server: AdminServer) -> None:
        asked = (get(server, f"/api/v1/principals?search=user-{number}") for number in range(40))
        answers = await asyncio.gather(*asked)
        statuses = {answer.status for answer in answers}
        assert statuses <= {200, 503}
        assert 200 in statuses
        assert all(a.headers["retry-after"] == "1" for a in answers if a.status == 503)
        assert (await get(server, "/livez")).status == 200

    with_status(use, feed)


def test_the_feed_has_a_bucket_of_every_hostile_name() -> None:
    assert len(LIMITS.entries) > 3
    assert len(set(HOSTILE)) == len(HOSTILE) >= 8


def test_a_timer_that_ends_early_brings_no_second_point_at_the_same_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvloop's timers count whole milliseconds: one may end up to half of one before its time."""
    slept: list[float] = []
    sleep = asyncio.sleep

    async def early(delay_s: float, result: Any = None) -> Any:
        if delay_s:
            slept.append(delay_s)
        return await sleep(max(0.0, delay_s - 0.01), result)

    async def use(_: AdminServer) -> None:
        await sleep(3.0)

    monkeypatch.setattr(asyncio, "sleep", early)
    with_status(use, interval_s=1.0)

    assert len(slept) > 1
    assert [delay_s for delay_s in slept if delay_s < 0.1] == []
