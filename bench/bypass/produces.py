"""Attacks that produce: what comes and goes, what answers nobody, and whose name is not known."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from bench.bypass.outcome import Outcome, at_rate, of_outstanding
from bench.bypass.rig import (
    ANSWER_BUDGET_S,
    BURST_S,
    BYTES_PER_S,
    DISCARDED,
    GROUP_DELAY_S,
    LARGE_RECORDS,
    LEFT_BEHIND_BYTES,
    MIDDLE_BYTES_PER_S,
    USERS,
    BypassRig,
    client_id,
)
from bench.bypass.wires import (
    Login,
    attack_for,
    dialled,
    group_frame,
    new_token,
    with_bearer,
    with_token,
)
from bench.lib.light_rig import NATIVE
from bench.lib.wire_clients import ClientLog, produce_reconnecting
from testkit.frames import load_frames as frames
from testkit.frames.wire import Wire
from testkit.processes.process import BenchError

CLIENTS: Final = 20
REQUEST_BYTES: Final = 100_000
NAMELESS_REQUEST_BYTES: Final = 16_384
NAMELESS_DEPTH: Final = 5
LARGE_REQUEST_BYTES: Final = 2_500_000
LARGE_STAYS_S: Final = 0.2
SMALL_REQUEST_BYTES: Final = 30_000
MANY_REQUESTS: Final = 8
MANY_REQUEST_BYTES: Final = 50_000
ANNOUNCED_BYTES: Final = 20_000_000
ANNOUNCED_PART_BYTES: Final = 300
ANNOUNCED_EVERY_S: Final = 1.0
ANNOUNCERS: Final = 2
GIVES_UP_AFTER_S: Final = 0.3
COMES_AGAIN_S: Final = 0.1


async def reconnecting(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 producers on 1 MB/s, a connection for each request of 100 kB."""
    name = client_id(side, "flat", "produce_reconnecting")
    frame = _frame(name, acks=-1)
    clients = [produce_reconnecting(rig.port(side), frame, ClientLog()) for _ in range(CLIENTS)]
    bound = of_outstanding(BYTES_PER_S, CLIENTS * len(frame), ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(rig, name, clients, len(frame), seconds, BYTES_PER_S, bound)


async def leaving(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 producers on 1 MB/s with acks=0, each gone as soon as its request of 100 kB is sent.

    Sluice forwards what they leave behind, up to 16 MiB a user, and each request within the answer budget.
    """
    name = client_id(side, "flat", "produce_leaving")
    frame = _frame(name, acks=0)

    async def leave(wire: Wire) -> None:
        await wire.send(frame)

    bound = of_outstanding(BYTES_PER_S, LEFT_BEHIND_BYTES, ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(
        rig, name, _coming(rig, side, leave), len(frame), seconds, BYTES_PER_S, bound + len(frame)
    )


async def abandoning(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 producers on 1 MB/s that wait 0.3 s for an answer to 100 kB, then leave and come again."""
    name = client_id(side, "flat", "produce_abandoning")
    frame = _frame(name, acks=-1)

    async def give_up(wire: Wire) -> None:
        await wire.send(frame)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVES_UP_AFTER_S):
                await wire.frame()

    bound = of_outstanding(BYTES_PER_S, CLIENTS * len(frame), ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(rig, name, _coming(rig, side, give_up), len(frame), seconds, BYTES_PER_S, bound)


async def leaving_many(rig: BypassRig, side: str, seconds: float, *, acks: int) -> Outcome:
    """20 producers on 100 kB/s that send 8 requests of 50 kB at once, leave, and come again at once.

    Thousands of dead connections stand there then, each with bytes that nobody has read yet before its end.
    Outstanding is what those have sent who are there.
    """
    name = client_id(side, "middle", "produce_leaving_many_acked" if acks else "produce_leaving_many")
    frame = _frame(name, acks=acks, request_bytes=MANY_REQUEST_BYTES)

    async def leave(wire: Wire) -> None:
        await wire.send(frame * MANY_REQUESTS)

    bound = of_outstanding(MIDDLE_BYTES_PER_S, CLIENTS * len(frame), ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(
        rig, name, _coming(rig, side, leave), len(frame), seconds, MIDDLE_BYTES_PER_S, bound
    )


async def leaving_much(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 producers on 1 MB/s that send 2.5 MB, leave within 0.4 s, and come again. Of hundreds at once the
    end stands behind megabytes; outstanding is what those have sent who are there."""
    name = client_id(side, "flat", "produce_leaving_much")
    frame = _frame(name, acks=-1, request_bytes=LARGE_REQUEST_BYTES)

    async def leave(wire: Wire) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LARGE_STAYS_S):
                await wire.send(frame)
            await asyncio.sleep(LARGE_STAYS_S)

    bound = of_outstanding(BYTES_PER_S, CLIENTS * len(frame), ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(rig, name, _coming(rig, side, leave), len(frame), seconds, BYTES_PER_S, bound)


async def announcing(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 producers on 100 kB/s, 30 kB a request; two more clients of their name announce 20 MB, send 300 B,
    leave after a second, and come again."""
    name = client_id(side, "middle", "produce_announcing")
    frame = _frame(name, acks=-1, request_bytes=SMALL_REQUEST_BYTES)
    part = _frame(name, acks=-1, request_bytes=ANNOUNCED_BYTES)[:ANNOUNCED_PART_BYTES]

    async def produce() -> None:
        async with dialled(rig.port(side)) as wire:
            while True:
                await wire.send(frame)
                _taken(await wire.frame())

    async def announce() -> None:
        while True:
            with contextlib.suppress(EOFError, OSError):
                async with dialled(rig.port(side)) as wire:
                    await wire.send(part)
                    await asyncio.sleep(ANNOUNCED_EVERY_S)

    clients = [*(produce() for _ in range(CLIENTS)), *(announce() for _ in range(ANNOUNCERS))]
    bound = of_outstanding(MIDDLE_BYTES_PER_S, CLIENTS * len(frame), ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(rig, name, clients, len(frame), seconds, MIDDLE_BYTES_PER_S, bound)


async def of_a_group(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """20 producers on 100 kB/s, 100 kB a request, whose connections have carried a group request."""
    name = client_id(side, "middle", "produce_group")
    frame = _frame(name, acks=-1)

    async def produce() -> None:
        async with dialled(rig.port(side)) as wire:
            await wire.send(group_frame(name))
            await wire.frame()
            while True:
                await wire.send(frame)
                _taken(await wire.frame())

    bound = of_outstanding(MIDDLE_BYTES_PER_S, CLIENTS * len(frame), GROUP_DELAY_S, seconds, BURST_S)
    return await _measured(
        rig, name, [produce() for _ in range(CLIENTS)], len(frame), seconds, MIDDLE_BYTES_PER_S, bound
    )


async def with_tokens(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """A user on 100 kB/s, with delegation tokens: one made through this door, one made past Sluice.

    The first is the user's own, the other's owner is not known; so there are two buckets.
    """
    own = await new_token(rig.sasl_port(side), USERS[0])
    past = await new_token(rig.sasl_port(NATIVE), USERS[0])
    logins = [with_token(own), with_token(past), with_token(own), with_token(past)]
    return await _nameless(rig, side, seconds, "tokens", logins, buckets=2)


async def without_a_name(rig: BypassRig, side: str, seconds: float) -> Outcome:
    """Bearer tokens that name two subjects: which of them the broker takes is not for a proxy to say."""
    times = f'"iat":{int(time.time())},"exp":{int(time.time()) + 7200}'
    payload = f'{{"sub":"{USERS[1]}",{times},"sub":"{USERS[2]}"}}'
    logins: list[Login] = [with_bearer(payload) for _ in range(4)]
    return await _nameless(rig, side, seconds, "unknown", logins, buckets=1)


async def _nameless(
    rig: BypassRig, side: str, seconds: float, attack: str, logins: Sequence[Login], *, buckets: int
) -> Outcome:
    """Producers flat out, each of which logs in so; users without a name have the lowest limit of any."""
    name = f"nameless-{attack}-{side}"
    frame = _frame(name, acks=-1, request_bytes=NAMELESS_REQUEST_BYTES)

    async def produce(login: Login) -> None:
        async with dialled(rig.sasl_port(side), login) as wire:
            await wire.send(frame * NAMELESS_DEPTH)
            while True:
                _taken(await wire.frame())
                await wire.send(frame)

    rate = buckets * MIDDLE_BYTES_PER_S
    bound = of_outstanding(rate, len(logins) * len(frame), ANSWER_BUDGET_S, seconds, BURST_S)
    return await _measured(
        rig, name, [produce(x) for x in logins], len(frame), seconds, rate, bound, limit=MIDDLE_BYTES_PER_S
    )


def _coming(
    rig: BypassRig, side: str, act: Callable[[Wire], Awaitable[None]]
) -> list[Coroutine[Any, Any, None]]:
    """Clients that do this on a connection, and then on another, whatever became of the last."""

    async def come() -> None:
        while True:
            try:
                async with dialled(rig.port(side)) as wire:
                    await act(wire)
            except (EOFError, OSError):
                await asyncio.sleep(COMES_AGAIN_S)

    return [come() for _ in range(CLIENTS)]


async def _measured(
    rig: BypassRig,
    name: str,
    clients: Sequence[Coroutine[Any, Any, Any]],
    frame_bytes: int,
    seconds: float,
    rate: float,
    bound: float,
    *,
    limit: float | None = None,
) -> Outcome:
    """What the log of its own topic grows by in the time: every request is one record.

    In a topic of all, what thousands of dead connections of one attack have at the broker, which lets it go
    as its own quota allows, counted for the next attacks.
    """
    topic = _topic(name)
    await rig.topic(topic, 1, DISCARDED | LARGE_RECORDS)
    before = rig.end_offset(topic)
    await attack_for(clients, seconds)
    grown = rig.end_offset(topic) - before
    # What is still on its way would take the next attack's time: let it come.
    await asyncio.sleep(2 * ANSWER_BUDGET_S)
    return Outcome(
        limit=f"{limit or rate:,.0f} B/s",
        allowed=at_rate(limit or rate, seconds, BURST_S),
        bound=bound,
        passed=grown * frame_bytes,
        detail={"requests": grown, "afterwards": rig.end_offset(topic) - before - grown},
    )


def _topic(name: str) -> str:
    return f"bypass-{name}"


def _frame(name: str, *, acks: int, request_bytes: int = REQUEST_BYTES) -> bytes:
    topic = _topic(name)
    value = bytes(request_bytes - len(frames.produce_request(name, topic, frames.record_batch(b""))) - 8)
    return bytes(frames.produce_request(name, topic, frames.record_batch(value), acks=acks))


def _taken(answer: bytes) -> None:
    error, _ = frames.produce_answer(memoryview(answer))
    if error:
        raise BenchError(f"the broker refused records with error {error}")
