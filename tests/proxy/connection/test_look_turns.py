"""The last look of a held request's connection where its user keeps too much for any: by turns, not never."""

from __future__ import annotations

import asyncio

import pytest

from sluice.proxy.connection.budget import LOOKS_AT_ONCE, MIB, BufferBudget, LookTurns
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import produce_of
from testkit.peers.fault_broker import FaultBroker
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

RATE = 100_000
DEBT_BYTES = 2_500_000
"""25 s, and with all that is held less than the most that may be owed"""
POLICY = SessionPolicy(delays=DelayLimits(answer_budget_ms=1_000))
PARTS = 8
PART_BYTES = 50_000
LEAVERS = 60
NEIGHBOUR_ID = 1_000


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
            assert (looks._free, looks.lent_bytes) == (LOOKS_AT_ONCE, 0)
            causes = {ended.cause for ended in proxy.ended}
            assert causes <= {DisconnectCause.LEFT_WHILE_HELD, DisconnectCause.BUFFERED_BYTES_OVER_CAP}


@pytest.mark.asyncio
@pytest.mark.parametrize(("parts", "turns"), [(1, LOOKS_AT_ONCE), (3, LOOKS_AT_ONCE), (3, 0)])
async def test_who_is_there_goes_when_its_time_is_over_beside_them_in_order(parts: int, turns: int) -> None:
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
            share.looks._free = turns
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
            assert not turns or len(broker_side.ids) == 1 + parts


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
            await until(lambda: not share.looks.lent_bytes and share.looks._free == LOOKS_AT_ONCE)


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
            assert connection._has_turn()
            connection._client.out = bytearray(b"unsent")
            connection.fail(DisconnectCause.INTERNAL_ERROR, "tried")
            assert looks._free == LOOKS_AT_ONCE
            assert not connection.is_closed


def test_turns_come_in_order_and_past_who_wants_none_any_more() -> None:
    turns = LookTurns()
    came: list[int] = []

    def wants(number: int) -> bool:
        came.append(number)
        return number != 2

    assert all(turns.begin(lambda: False) for _ in range(LOOKS_AT_ONCE))
    for number in (1, 2, 3):
        assert not turns.begin(lambda number=number: wants(number))  # type: ignore[misc]
    turns.end()
    assert came == [1]
    turns.end()
    assert came == [1, 2, 3]
    for _ in range(LOOKS_AT_ONCE):
        turns.end()
    assert all(turns.begin(lambda: False) for _ in range(LOOKS_AT_ONCE))
    assert not turns.begin(lambda: False)
