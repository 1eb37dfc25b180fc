"""Who may not change quotas is told so for each entity, and has nobody wait for it, however much he asks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.proxy.quota_store import service
from sluice.proxy.quota_store.client_quotas import Result
from sluice.proxy.quota_store.entities import MAX_NAME_BYTES
from sluice.proxy.quota_store.refused_alter import MESSAGES, alter_refused_in_steps
from sluice.proxy.quota_store.service import MOST_REFUSALS_DUE, FileStore, QuotaDesk
from sluice.proxy.quota_store.wire import AlterRequest, altered, read_request
from sluice.proxy.session.local_responses import QuotaQuestion
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.steps import at_once
from testkit.frames.frames import decoded, request
from testkit.frames.message_values import random_frame
from testkit.thorough import cases

ALTER, DESCRIBE = 49, 48
VERSIONS = (0, 1)


def refused(version: int, frame: bytes) -> bytes:
    return at_once(alter_refused_in_steps(version, 3, frame, 31, "no"))


def altering(names: list[str | None], version: int = 1, ops: int = 1) -> bytes:
    op: Any = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    entries: Any = [
        {"entity": [{"entityType": "user", "entityName": name}], "ops": [op] * ops} for name in names
    ]
    return request(ALTER, version, {"entries": entries, "validateOnly": False})[4:]


def asking(frame: bytes, user: str = "mallory", api_key: int = ALTER) -> QuotaQuestion:
    return QuotaQuestion(api_key, 1, 3, user, "client", frame)


def desk_of(*admins: str) -> QuotaDesk:
    return QuotaDesk(lambda: QuotaLimits([]), FileStore(Path("quotas.yaml")), frozenset(admins))


def as_decoded(version: int, frame: bytes) -> bytes:
    """What the codec and the answer to an alteration come to."""
    read = read_request(ALTER, version, frame)
    assert isinstance(read, AlterRequest)
    each = dict.fromkeys(alteration.parts for alteration in read.alterations)
    return altered(version, 3, [Result(parts, 31, "no") for parts in each])


@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_answered_as_if_it_had_been_decoded(version: int) -> None:
    random = Random(version)
    for _ in range(cases(500)):
        value = random_frame("request", ALTER, version, random, unknown_tags=True)
        entries: Any = value.body["entries"]
        entries += entries[:1]
        frame = encode_frame("request", ALTER, version, value)
        assert refused(version, frame) == as_decoded(version, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_are_no_utf8_too_long_or_none_are_told_as_kafka_reads_them(version: int) -> None:
    names = ["al\udcffice\udced\udca0\udc80", None, "", "é"]
    names += ["é" * MAX_NAME_BYTES] if version else ["x" * MAX_NAME_BYTES]
    frame = altering(names, version)
    assert refused(version, frame) == as_decoded(version, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_that_is_none_is_malformed_wherever_it_is_cut(version: int) -> None:
    frame = altering(["alice", None], version, ops=2)
    for end in range(len(frame)):
        with pytest.raises(MalformedFrame):
            refused(version, frame[:end])
    with pytest.raises(MalformedFrame, match="1 bytes behind the end"):
        refused(version, frame + b"\0")


@pytest.mark.parametrize("body", [b"\0\0\0", b"\2\0\1\0\0\0", b"\2\2\0\1\0\1\0\0\0", b"\2\1\0\0\0\0"])
def test_a_null_where_none_may_be_is_malformed(body: bytes) -> None:
    head = altering([])[: -len(b"\1\0\0")]
    assert head + b"\1\0\0" == altering([])
    for read in (refused, as_decoded):
        with pytest.raises(MalformedFrame):
            read(1, head + body)


def test_of_very_many_entities_the_first_get_the_message_and_all_the_error() -> None:
    body: Any = decoded("response", ALTER, 1, refused(1, altering([f"{n}" for n in range(500)]))).body
    assert {entry["errorCode"] for entry in body["entries"]} == {31}
    told = [entry["errorMessage"] for entry in body["entries"]]
    assert told == ["no"] * MESSAGES + [None] * (500 - MESSAGES)
    assert [entry["entity"][0]["entityName"] for entry in body["entries"]] == [f"{n}" for n in range(500)]


@pytest.mark.parametrize(
    "frame",
    [altering([f"{n}" for n in range(1_000)]), altering(["x"], ops=1_000), altering(["x"] * 1_000, ops=0)],
)
def test_a_long_one_is_read_in_steps(frame: bytes) -> None:
    pauses = sum(1 for _ in alter_refused_in_steps(1, 3, frame, 31, "no"))
    assert pauses >= 5


@pytest.mark.asyncio
async def test_who_may_not_ask_is_refused_without_the_codec_and_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names of brokers are looked up in the same threads."""

    def never(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(service, "read_request", never)
    monkeypatch.setattr(asyncio, "to_thread", never)
    desk = desk_of("admin")
    described: Any = await desk.answer(asking(b"no request at all", api_key=DESCRIBE), "peer")
    body: Any = decoded("response", DESCRIBE, 1, described).body
    assert (body["errorCode"], body["entries"]) == (31, None)
    names: list[str | None] = [f"{n}" for n in range(1_500)]
    body = decoded("response", ALTER, 1, await desk.answer(asking(altering(names)), "peer")).body
    assert len(body["entries"]) == 1_500
    with pytest.raises(AssertionError):
        await desk.answer(asking(altering(["x"]), "admin"), "peer")


@pytest.mark.asyncio
async def test_long_ones_are_read_one_after_another_and_of_many_at_once_the_last_are_not_kept() -> None:
    desk = desk_of()
    frame = altering([f"{n}" for n in range(1_000)])
    tasks = [asyncio.ensure_future(desk.answer(asking(frame), "peer")) for _ in range(MOST_REFUSALS_DUE + 2)]
    small = asyncio.ensure_future(desk.answer(asking(altering(["x"])), "peer"))
    await small
    assert not any(task.done() for task in tasks[:MOST_REFUSALS_DUE])
    for task in tasks[MOST_REFUSALS_DUE:]:
        assert isinstance(task.exception(), ProtocolError)
    await tasks[0]
    assert not any(task.done() for task in tasks[1:MOST_REFUSALS_DUE])
    tasks[1].cancel()
    await tasks[2]
    await asyncio.wait(tasks)
    assert await desk.answer(asking(frame), "peer") == await tasks[0]
