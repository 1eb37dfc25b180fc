"""The last look of a held request's connection where its user keeps too much for any: by turns, not never."""

from __future__ import annotations

import asyncio
import time

import pytest

from sluice.proxy.connection.budget import MIB, BufferBudget
from sluice.proxy.connection.last_look import MOST_LOOKS_AT_ONCE, LastLook
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import METADATA, produce_of, request
from testkit.peers.fault_broker import FaultBroker
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of
from testkit.proxy.refusing_session import limits_of as refusing_limits_of

RATE = 100_000
DEBT_BYTES = 2_500_000
"""25 s, and with all that is held less than the most that may be owed"""
POLICY = SessionPolicy(delays=DelayLimits(answer_budget_ms=1_000))
PARTS = 8
PART_BYTES = 50_000
LEAVERS = 60
NEIGHBOUR_ID = 1_000
LEAVERS_AT_ONCE = 500
ROUND_S = 0.1


@pytest.mark.asyncio
@pytest.mark.parametrize("acks", [-1, 0])
async def test_what_dead_clients_sent_does_not_go_beyond_the_quota_though_there_is_no_room_to_look(
    acks: int,
) -> None:
    """Eight requests of 50 kB, gone, and again: thousands of dead connections kept all that their user may
    keep, nobody looked for their ends, and each brought a request when its time was over: 40 times a rate."""
    broker_side = Recording()

    def sent(number: int) -> bytes:
        ids = range(10_000 + number * PARTS, 10_000 + (number + 1) * PARTS)
        return b"".join(produce_of(PART_BYTES, acks=acks, correlation_id=i) for i in ids)

    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=POLICY) as proxy,
    ):
        proxy._worker.budget = BufferBudget(16 * MIB)
        with await proxy.client() as neighbour:
            await neighbour.send(produce_of(DEBT_BYTES, correlation_id=NEIGHBOUR_ID))
            await neighbour.frame()
            for number in range(LEAVERS):
                with await proxy.client() as client:
                    await asyncio.wait_for(client.send(sent(number)), 5.0)
            if acks:
                await until(lambda: len(proxy.ended) == LEAVERS)
            else:  # what they left waits for the quota, however long
                await until(
                    lambda: (
                        all(
                            one.session._requests.client_left
                            for one in proxy.connections
                            if one.session.requests < 1
                        )
                        and len(proxy.connections) + len(proxy.ended) == LEAVERS + 1
                    )
                )
            beyond = broker_side.ids[1:]
            assert len(beyond) <= (0 if acks else LEAVERS // 10), (
                "a small one may go beside those who are late"
            )
            looks = next(iter(proxy.connections))._share.looks
            assert (looks.at_once, looks.lent_bytes) == (0, 0)
            causes = {ended.cause for ended in proxy.ended}
            assert causes <= {DisconnectCause.LEFT_WHILE_HELD, DisconnectCause.BUFFERED_BYTES_OVER_CAP}


@pytest.mark.asyncio
@pytest.mark.parametrize(("parts", "taken"), [(1, 0), (3, 0), (3, MOST_LOOKS_AT_ONCE)])
async def test_who_is_there_goes_when_its_time_is_over_beside_them_in_order(parts: int, taken: int) -> None:
    """With as much unread as they have, or with nothing, in which case no turn is waited for; nor is one that
    does not come: 400 honest clients had waited up to 21 s for theirs, each of which has it for 0.25 s."""
    broker_side = Recording()
    part_bytes = PART_BYTES if parts > 1 else 2_000
    sent = b"".join(produce_of(PART_BYTES, correlation_id=i) for i in range(PARTS))
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=POLICY) as proxy,
    ):
        proxy._worker.budget = BufferBudget(16 * MIB)
        with await proxy.client() as neighbour, await proxy.client() as stays:
            await neighbour.send(produce_of(DEBT_BYTES, correlation_id=NEIGHBOUR_ID))
            await neighbour.frame()
            share = next(one._share for one in proxy.connections if one.session.requests)
            share.looks.at_once = taken
            for _ in range(LEAVERS // 2):
                with await proxy.client() as client:
                    await asyncio.wait_for(client.send(sent), 5.0)
            mine = b"".join(produce_of(part_bytes, correlation_id=100 + i) for i in range(parts))
            await asyncio.wait_for(stays.send(mine), 5.0)
            for number in range(parts):
                assert int.from_bytes((await stays.frame())[4:8], "big") == 100 + number
            assert [number for number in broker_side.ids if number >= 100] == [
                NEIGHBOUR_ID, *range(100, 100 + parts)
            ]  # fmt: skip
            assert taken or len(broker_side.ids) == 1 + parts


@pytest.mark.asyncio
async def test_what_was_read_by_turn_of_who_has_left_since_leaves_room_for_others() -> None:
    """With acks = 0 it waits for the quota, however long; nobody looked for another's end meanwhile."""
    sent = b"".join(produce_of(PART_BYTES, acks=0, correlation_id=i) for i in range(PARTS))
    async with (
        FaultBroker(Recording()) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=POLICY) as proxy,
    ):
        proxy._worker.budget = BufferBudget(16 * MIB)
        with await proxy.client() as neighbour:
            await neighbour.send(produce_of(DEBT_BYTES, correlation_id=NEIGHBOUR_ID))
            await neighbour.frame()
            share = next(iter(proxy.connections))._share
            clients = [await proxy.client() for _ in range(40)]
            sending = [asyncio.ensure_future(client.send(sent)) for client in clients]
            await until(lambda: share.looks.lent_bytes > 0)
            for client, task in zip(clients, sending, strict=True):
                task.cancel()
                client.close()
            await until(lambda: not share.looks.lent_bytes and not share.looks.at_once)


@pytest.mark.asyncio
async def test_who_ends_gives_its_turn_back_at_once_though_something_is_still_to_be_sent_to_its_client() -> (
    None
):
    async with FaultBroker(Recording()) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce_of(200))
            await client.frame()
            (connection,) = proxy.connections
            looks = connection._share.looks
            assert connection._look.ask(looks, lambda: False)
            connection._client.out = bytearray(b"unsent")
            connection.fail(DisconnectCause.INTERNAL_ERROR, "tried")
            assert looks.at_once == 0
            assert not connection.is_closed


@pytest.mark.asyncio
async def test_dead_clients_are_found_in_time_though_a_round_of_the_event_loop_is_long() -> None:
    """A turn is passed on once in a round: eight at a time were too few for a busy proxy, and what the dead
    had sent went when its time was over: 2 times the limit in a minute, 16 times beside other work."""
    broker_side = Recording()
    sent = b"".join(produce_of(PART_BYTES, correlation_id=10_000 + i) for i in range(PARTS))

    async def comes_and_leaves(proxy: LocalProxy) -> None:
        with await proxy.client() as client:
            await client.send(sent)

    def busy() -> None:
        time.sleep(ROUND_S)  # what other connections take of a round
        if not is_over:
            asyncio.get_running_loop().call_soon(busy)

    is_over = False
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=POLICY) as proxy,
    ):
        proxy._worker.budget = BufferBudget(64 * MIB)
        with await proxy.client() as neighbour:
            await neighbour.send(produce_of(DEBT_BYTES, correlation_id=NEIGHBOUR_ID))
            await neighbour.frame()
            asyncio.get_running_loop().call_soon(busy)
            await asyncio.wait_for(
                asyncio.gather(*(comes_and_leaves(proxy) for _ in range(LEAVERS_AT_ONCE))), 20.0
            )
            await until(lambda: len(proxy.ended) == LEAVERS_AT_ONCE)
            is_over = True
            assert broker_side.ids[1:] == []


@pytest.mark.asyncio
async def test_nobody_waits_for_a_turn_once_nothing_is_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room had come meanwhile, and gone again: 1.75 s for nothing."""
    waited = _told_waits(monkeypatch)
    async with (
        FaultBroker(Recording()) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=POLICY) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(produce_of(DEBT_BYTES, correlation_id=1))
            await client.frame()
            await client.send(produce_of(2_000, correlation_id=2))
            (connection,) = proxy.connections
            await until(lambda: connection._pace.state is State.HOLDING)
            connection._look.waits = True
            await client.frame()
            assert not connection._look.waits
    assert len(waited) == 1


@pytest.mark.asyncio
async def test_who_is_refused_does_not_wait_for_a_turn_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it reaches the broker, whether its client is there or not; its answer came 1.75 s late."""
    waited = _told_waits(monkeypatch)
    broker_side = Recording()
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, refusing_limits_of(RATE), policy=POLICY) as proxy,
    ):
        proxy._worker.budget = BufferBudget(16 * MIB)
        with await proxy.client() as neighbour, await proxy.client() as client:
            await neighbour.send(produce_of(DEBT_BYTES, correlation_id=NEIGHBOUR_ID))
            await neighbour.frame()
            await client.send(request(METADATA, 12, correlation_id=2))
            await client.frame()
            connection = next(one for one in proxy.connections if one.session.user is not None)
            share = connection._share
            share.looks.at_once = MOST_LOOKS_AT_ONCE
            budget = proxy._worker.budget
            budget.kept(budget.open(share.user, connection), 3 * MIB)
            sending = asyncio.ensure_future(client.send(produce_of(4 * PART_BYTES, correlation_id=3)))
            assert int.from_bytes((await client.frame())[4:8], "big") == 3
            await sending
    assert not waited
    assert 3 not in broker_side.ids


def _told_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When each look that waited for its turn asked whether it still may."""
    waited: list[float] = []
    waits_on = LastLook.waits_on

    def told(look: LastLook, now_ms: float, *, for_lent: bool) -> bool:
        waited.append(now_ms)
        return waits_on(look, now_ms, for_lent=for_lent)

    monkeypatch.setattr(LastLook, "waits_on", told)
    return waited
