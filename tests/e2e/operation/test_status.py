"""The status page of a proxy under load: what it tells is what happens."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testkit.clients.traffic import SETTLE_S, flowing
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SluiceProcess, doors_of

Unique = Callable[[str], str]
SLOW = 50_000
"""bytes per second; a producer's batches are several of these"""
WITHIN_S = 30.0
TOKEN = "a-token-that-is-long-enough"


@pytest.fixture
def sluice(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    port = free_port()
    status = {"interval_s": 1, "token_file": "token", "token_on_loopback": True}
    admin = {"bind_host": LOOPBACK, "bind_port": port, "probes": {"bind_port": 0}, "status": status}
    process = SluiceProcess(doors_of(kafka), admin=admin)
    process.admin_port = port
    (process.folder / "token").write_text(TOKEN + "\n")
    with process:
        yield process


def get(sluice: SluiceProcess, path: str, token: str = TOKEN) -> bytes:
    request = urllib.request.Request(
        f"http://{LOOPBACK}:{sluice.admin_port}{path}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        body: bytes = answer.read()
        return body


def ask(sluice: SluiceProcess, path: str) -> Any:
    return json.loads(get(sluice, f"/api/v1/{path}"))


def until(seen: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        found = seen()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("not seen")


def test_a_throttled_client_is_told_with_its_reasons_its_episode_and_its_curve(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    client_id = unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": SLOW})
    with flowing(kafka, sluice, unique("topic"), client_id):
        time.sleep(SETTLE_S)
        asked = f"principals?search={client_id}&history=true"
        row = until(lambda: ask(sluice, f"{asked}&throttled=true")["rows"])[0]
        assert (row["bucket"], row["rule"], row["limit"]) == ({"client-id": client_id}, "client", SLOW)
        assert row["delay_ms"] == pytest.approx(-row["tokens"] / SLOW * 1000.0, rel=0.01, abs=0.05)
        detail = ask(sluice, f"principals/{row['id']}")
        assert detail["why"][0].startswith(f"client (client-id '{client_id}'): 50,000 bytes per second.")
        assert {one["client_id"] for one in detail["shown"]} == {client_id}
        throttled = until(lambda: ask(sluice, f"connections?search={client_id}&throttled=true")["rows"])[0]
        assert (throttled["throttled_by"], throttled["client_id"]) == ("produce", client_id)
        *_, event = until(lambda: ask(sluice, f"events?search={client_id}")["rows"])
        assert (event["quota"], event["rule"], event["client_id"]) == ("produce", "client", client_id)
        assert event["why"].startswith("Produce of ")
        line, *_ = sluice.log_lines("throttling_began", client_id=client_id)
        assert event["why"].startswith(f"Produce of {line['charged_bytes']:,} bytes"), "as the log tells it"
        until(lambda: (ask(sluice, asked)["rows"][0]["history"] or {"delay_ms": [0]})["delay_ms"][-1])
        summary = ask(sluice, "summary")
        assert summary["ready"] is True
        assert summary["connections"] >= 1
        assert client_id.encode() in get(sluice, f"/status?search={client_id}&bucket={row['id']}")


def test_without_the_token_nothing_is_told_and_the_log_does_not_hold_it(sluice: SluiceProcess) -> None:
    for token in ("", "wrong-token-of-some-length"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(sluice, "/api/v1/summary", token)
        assert caught.value.code == 401
        assert b"Authorization: Bearer" in caught.value.read()
        caught.value.close()
    assert ask(sluice, "summary")["ready"] is True
    assert sluice.log_lines("status_page_refused", peer=LOOPBACK)
    assert TOKEN not in sluice.log.read_text()
    assert "wrong-token" not in sluice.log.read_text()
