"""What clients ask about quotas through a proxy that answers itself: who may, order, what comes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from sluice.proxy.quota_store.client_quotas import Alteration, Result, alter
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import QuotaApi, SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.access_log.finished import Finished
from testkit.frames.frames import METADATA, decoded, fetch, fetch_answer_of, produce, produce_of, request
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to, answers
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import Shell, shared_of

pytestmark = pytest.mark.asyncio
ADMIN = frozenset({"ANONYMOUS"})
LIMITS = QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 100})])
DESCRIBE = 48
ALTER = 49


def describe(correlation_id: int = 5) -> bytes:
    return request(DESCRIBE, 1, {"components": [], "strict": False}, correlation_id=correlation_id)


def alter_of(user: str, rate: float, correlation_id: int = 6, version: int = 1) -> bytes:
    entry: Any = {
        "entity": [{"entityType": "user", "entityName": user}],
        "ops": [{"key": "producer_byte_rate", "value": rate, "remove": False}],
    }
    body: Any = {"entries": [entry], "validateOnly": False}
    return request(ALTER, version, body, correlation_id=correlation_id)


async def body_of(client: Wire, api_key: int) -> Any:
    return decoded("response", api_key, 1, await client.frame()).body


def correlation_id_of(frame: bytes) -> int:
    return int.from_bytes(frame[4:8], "big")


class SlowStore:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Sequence[Alteration]]] = []
        self.go_on = asyncio.Event()

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        self.asked.append((by, alterations))
        await self.go_on.wait()
        return alter(LIMITS.entries, alterations).results


async def test_an_admin_is_told_the_limits_in_force_and_the_broker_is_not_asked() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            await client.send(describe())
            body = await body_of(client, DESCRIBE)
            (entry,) = body["entries"]
            assert entry["entity"] == [{"entityType": "user", "entityName": "alice"}]
            assert entry["values"] == [{"key": "producer_byte_rate", "value": 100.0}]


async def test_who_is_no_admin_is_refused_with_error_31() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=frozenset()) as proxy:
        with await proxy.client() as client:
            await client.send(describe() + alter_of("bob", 5.0))
            body = await body_of(client, DESCRIBE)
            assert (body["errorCode"], body["entries"]) == (31, None)
            assert "quotas.admins" in body["errorMessage"]
            (entry,) = (await body_of(client, ALTER))["entries"]
            assert entry["errorCode"] == 31


async def test_who_asks_before_it_changes_as_tools_do_is_refused_with_a_line_in_the_log(
    log_lines: list[structlog.typing.EventDict],
) -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=frozenset()) as proxy:
        with await proxy.client() as client:
            await client.send(describe())
            assert (await body_of(client, DESCRIBE))["errorCode"] == 31
            (line,) = [line for line in log_lines if line["event"] == "quota_describe_refused"]
            assert line["user"] == "ANONYMOUS"
            assert line["peer"].startswith("127.0.0.1:")
            assert "quotas.admins" in line["reason"]


async def test_many_refused_questions_are_few_lines_and_hide_no_refused_change(
    log_lines: list[structlog.typing.EventDict],
) -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=frozenset()) as proxy:
        with await proxy.client() as client:
            await client.send(b"".join(describe(number) for number in range(50)) + alter_of("bob", 5.0, 50))
            for _ in range(51):
                await client.frame()
    events = [line["event"] for line in log_lines]
    assert 5 <= events.count("quota_describe_refused") <= 25  # five a second
    assert events.count("quota_change_refused") == 1


async def test_a_filter_that_is_none_is_no_line_in_the_log(
    log_lines: list[structlog.typing.EventDict],
) -> None:
    twice: Any = [{"entityType": "user", "matchType": 2, "match": None}] * 2
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            await client.send(request(DESCRIBE, 1, {"components": twice, "strict": False}))
            assert (await body_of(client, DESCRIBE))["errorCode"] == 42
    assert not [line for line in log_lines if "refused" in line["event"]]


async def test_with_a_file_an_alteration_is_refused_with_error_44_that_names_the_file() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            await client.send(alter_of("bob", 5.0))
            (entry,) = (await body_of(client, ALTER))["entries"]
            assert entry["errorCode"] == 44
            assert "quotas.yaml" in entry["errorMessage"]
            assert entry["entity"] == [{"entityType": "user", "entityName": "bob"}]


async def test_what_nobody_intercepts_passes_to_the_broker() -> None:
    asked: list[int] = []

    async def notes(client: BrokerSide) -> None:
        received = await client.request()
        asked.append(received.api_key)
        await client.send(answer_to(received))

    async with FaultBroker(notes) as broker, LocalProxy(broker.port, LIMITS) as proxy:
        with await proxy.client() as client:
            await client.send(describe())
            await client.frame()
            assert asked == [DESCRIBE]


async def test_an_answer_stands_behind_those_that_are_due_before_it_and_before_what_comes_later() -> None:
    gate = asyncio.Event()

    async def answers_late(client: BrokerSide) -> None:
        first = await client.request()
        await gate.wait()
        await client.send(answer_to(first))
        await answers(client)

    async with FaultBroker(answers_late) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            await client.send(
                request(METADATA, 12, {}, correlation_id=1)
                + describe(2)
                + alter_of("bob", 1.0, 3)
                + produce(correlation_id=4)
            )
            await client.silence()
            gate.set()
            ids = [correlation_id_of(await client.frame()) for _ in range(4)]
            assert ids == [1, 2, 3, 4]


async def test_a_brokers_answer_that_ends_while_a_question_is_answered_does_not_wait_for_it() -> None:
    """A Fetch answer comes in two parts; the question behind it has no answer yet."""
    store, part, rest = SlowStore(), asyncio.Event(), asyncio.Event()

    async def answers_in_parts(client: BrokerSide) -> None:
        await client.request()
        answered = fetch_answer_of(50_000, correlation_id=1)
        await part.wait()
        await client.send(answered[:30_000])
        await rest.wait()
        await client.send(answered[30_000:])
        await answers(client)

    async with (
        FaultBroker(answers_in_parts) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(fetch(correlation_id=1) + alter_of("bob", 1.0, 2))
            await until(lambda: bool(store.asked))
            part.set()
            await asyncio.sleep(0.1)
            rest.set()
            assert correlation_id_of(await client.frame()) == 1
            store.go_on.set()
            assert correlation_id_of(await client.frame()) == 2


@pytest.mark.parametrize("piece_bytes", [1, 7])
async def test_a_question_may_come_in_pieces(piece_bytes: int) -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            await client.send_in_pieces(describe(1) + describe(2) + produce(correlation_id=3), piece_bytes)
            ids = [correlation_id_of(await client.frame()) for _ in range(3)]
            assert ids == [1, 2, 3]


async def test_nothing_further_is_begun_until_the_answer_is_there() -> None:
    store = SlowStore()
    async with (
        FaultBroker(answers) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(alter_of("bob", 1.0, 1) + produce(correlation_id=2))
            await until(lambda: bool(store.asked))
            await client.silence()
            assert proxy.shared.recorder.requests == []
            store.go_on.set()
            assert [correlation_id_of(await client.frame()) for _ in range(2)] == [1, 2]
            assert store.asked[0][0] == "ANONYMOUS"


async def test_a_client_that_leaves_meanwhile_hurts_nobody() -> None:
    store = SlowStore()
    async with (
        FaultBroker(answers) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(alter_of("bob", 1.0))
            await until(lambda: bool(store.asked))
            client.reset()
        with await proxy.client() as other:
            await other.send(produce(correlation_id=9))
            assert correlation_id_of(await other.frame()) == 9
        store.go_on.set()
        await proxy.end(2)


async def test_what_stands_behind_a_question_whose_answer_cannot_be_sent_goes_to_no_broker() -> None:
    """But for what has no answer."""
    store, recording = SlowStore(), Recording()
    async with (
        FaultBroker(recording) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        client = await proxy.client()
        behind = request(METADATA, 12, correlation_id=8) + produce_of(200, acks=0, correlation_id=7)
        await client.send(alter_of("bob", 1.0) + behind)
        await until(lambda: bool(store.asked))
        client.reset()
        store.go_on.set()
        assert (await proxy.end()).cause is DisconnectCause.CLIENT_RESET
        await until(lambda: recording.ids == [7])


async def test_a_client_that_only_finishes_sending_gets_its_answer() -> None:
    store = SlowStore()

    async def stays(client: BrokerSide) -> None:
        await client.rest()
        await asyncio.Event().wait()

    async with (
        FaultBroker(stays) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(alter_of("bob", 1.0, 8))
            await until(lambda: bool(store.asked))
            client.finish_sending()
            await client.silence()
            store.go_on.set()
            assert correlation_id_of(await client.frame()) == 8
            assert await client.end() == "closed"


async def test_a_drain_waits_for_the_answer() -> None:
    store = SlowStore()
    async with (
        FaultBroker(answers) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(alter_of("bob", 1.0, 8))
            await until(lambda: bool(store.asked))
            (connection,) = proxy.connections
            connection.drain()
            await client.silence()
            store.go_on.set()
            assert correlation_id_of(await client.frame()) == 8
            assert (await proxy.end()).cause is DisconnectCause.DRAINED


async def test_a_request_that_is_none_ends_its_connection() -> None:
    broken = bytearray(describe())
    broken[-3] = 9  # components
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            await client.send(broken)
            await client.rest()
            assert (await proxy.end()).cause is DisconnectCause.MALFORMED_FRAME


async def test_who_may_not_ask_may_not_ask_much() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=frozenset()) as proxy:
        with await proxy.client() as client:
            await client.send(alter_of("b" * 30_000, 5.0))
            (entry,) = (await body_of(client, ALTER))["entries"]
            assert entry["errorCode"] == 31
            await client.send(alter_of("b" * 70_000, 5.0, version=1))
            await client.rest()
            assert (await proxy.end()).cause is DisconnectCause.FRAME_TOO_LARGE


@pytest.mark.parametrize("is_admin", [True, False])
async def test_behind_a_refused_change_the_connection_waits_by_its_size(is_admin: bool) -> None:
    api = QuotaApi(ADMIN if is_admin else frozenset())
    session = Session(shared_of(LIMITS), SessionPolicy(quota_api=api), "10.0.0.1")
    shell = Shell(session)
    for asked, mute_ms in ((alter_of("b" * 10_000, 5.0), 590), (describe(), 0)):
        del shell.to_broker[:]
        follower = request(METADATA, 12, {}, correlation_id=9)
        shell.client_sends(asked + follower)
        assert session.take_question() is not None
        session.answer_question(b"answer", shell.now_ms)
        shell.advance(0 if is_admin or not mute_ms else mute_ms - 10)
        shell._resume()
        assert bytes(shell.to_broker) == (b"" if mute_ms and not is_admin else follower)
        shell.advance(20)
        assert shell.to_broker == follower


async def test_a_question_is_counted_as_a_request() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, LIMITS, admins=ADMIN) as proxy:
        with await proxy.client() as client:
            asked = describe()
            await client.send(asked)
            answer = await client.frame()
            (record,) = map(Finished._make, proxy.shared.recorder.requests)
            assert record.api_key == DESCRIBE
            assert (record.request_bytes, record.response_bytes) == (len(asked), len(answer))
            assert (record.upstream_ms, record.throttle_ms, record.held_ms) == (0.0, 0.0, 0.0)
            (connection,) = proxy.connections
            assert connection.session.bytes_from_client == 0


async def test_a_version_that_cannot_be_answered_ends_the_connection_and_changes_nothing() -> None:
    store = SlowStore()
    async with (
        FaultBroker(answers) as broker,
        LocalProxy(broker.port, LIMITS, admins=ADMIN, store=store) as proxy,
    ):
        with await proxy.client() as client:
            frame = bytearray(alter_of("bob", 1.0))
            frame[6:8] = (2).to_bytes(2, "big")
            await client.send(bytes(frame))
            assert await client.end() == "closed"
        assert not store.asked
