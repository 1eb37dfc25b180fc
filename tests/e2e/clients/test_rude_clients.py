"""What is no Kafka, and clients that leave in the middle, at a proxy that serves others meanwhile."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from testkit.clients.kafka_records import await_stored, create_topic, stored
from testkit.clients.traffic import Flow, flowing
from testkit.frames.frames import METADATA, decoded, request, sized
from testkit.frames.load_frames import produce_request, record_batch
from testkit.frames.wire import Wire, dial
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]


# Bytes that are no Kafka ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bystander(kafka: KafkaNode, sluice: SluiceProcess) -> Iterator[Flow]:
    """A producer at work the whole time; at the end exactly what it sent must be stored."""
    with flowing(kafka, sluice, "bystander", "bystander") as flow:
        yield flow


BAD_INPUT = {
    "a negative size": (struct.pack(">i", -5) + bytes(20), "frame_too_large"),
    "a size above the limit": (struct.pack(">i", 200_000_000) + bytes(20), "frame_too_large"),
    "garbage": (bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb924") * 4, "frame_too_large"),
    "zeros": (bytes(1000), "malformed_frame"),
    "a TLS ClientHello": (bytes.fromhex("16030102000100") + bytes(512), "tls_on_plaintext"),
    "an HTTP request": (b"GET /metrics HTTP/1.1\r\nHost: sluice\r\n\r\n", "frame_too_large"),
    "a version that would go unmetered": (
        sized(struct.pack(">hhih", 0, 99, 1, 3) + b"app" + bytes(50)),
        "unmetered_version",
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("bad", "cause"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
async def test_bad_input_ends_that_connection_with_one_line_and_touches_no_other(
    sluice: SluiceProcess, bystander: Flow, bad: bytes, cause: str
) -> None:
    counted, logged = sluice.disconnects(cause), len(sluice.log_lines("connection_closed"))
    opened = sluice.metric("sluice_connections_opened_total")
    before = sluice.metric("sluice_connections") - opened
    with await dial(sluice.doors["SLUICE"].port) as client, await dial(sluice.doors["SLUICE"].port) as other:
        await client.send(bad)
        assert await client.end() == "closed"
        await other.send(request(METADATA, 12))
        assert decoded("response", METADATA, 12, await other.frame()).body["brokers"]
        await asyncio.to_thread(
            sluice.wait_until, lambda: sluice.disconnects(cause) == counted + 1, "counted"
        )
    lines = sluice.lines_behind(logged, "connection_closed")
    assert [(line["cause"], bool(line["detail"])) for line in lines] == [(cause, True)]
    assert bystander.is_unharmed
    # Both of ours are gone, however many the bystander has opened meanwhile.
    sluice.wait_until(
        lambda: (
            sluice.metric("sluice_connections") - sluice.metric("sluice_connections_opened_total")
            <= before - 2
        ),
        "closed",
    )


# Clients that leave -----------------------------------------------------------------------------------------

QUOTA_BYTES_PER_S = 100_000


def batch_of(number: int, size_bytes: int = 10_000) -> bytes:
    return record_batch(f"{number:04d}".encode() + bytes(size_bytes - 4))


def produce_frame(client_id: str, topic: str, number: int, acks: int) -> bytes:
    frame = produce_request(client_id, topic, batch_of(number), acks=acks)
    struct.pack_into(">i", frame, 8, number)
    return bytes(frame)


async def into_debt(client: Wire, client_id: str, topic: str, seconds: float) -> None:
    """Spend the burst and so many seconds more."""
    value = bytes(int(QUOTA_BYTES_PER_S * (1.0 + seconds)))
    await client.send(bytes(produce_request(client_id, topic, record_batch(value))))
    await client.frame()


@pytest.mark.asyncio
async def test_a_client_that_leaves_while_held_and_sends_again_has_doubled_nothing(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic, debts = create_topic(kafka, unique("topic"), 1), create_topic(kafka, unique("debts"), 1)
    client_id, port = unique("app"), sluice.doors["SLUICE"].port
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": QUOTA_BYTES_PER_S})
    left = sluice.disconnects("left_while_held")
    frames = b"".join(produce_frame(client_id, topic, number, acks=1) for number in range(5))
    with await dial(port) as neighbour:
        # Far longer than the next one needs to come and send, on a busy machine too.
        await into_debt(neighbour, client_id, debts, 4.0)
        with await dial(port) as client:
            await client.send(frames)  # the first is held, the rest unread, and the FIN behind them
        sluice.wait_until(lambda: sluice.disconnects("left_while_held") == left + 1, "noticed")
        with await dial(port) as client:
            await client.send(frames)
            for number in range(5):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")
    assert [int(record.value[:4]) for record in stored(kafka, topic)] == list(range(5))


@pytest.mark.asyncio
async def test_what_an_acks_0_client_left_behind_all_arrives_at_the_pace_of_its_quota(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic, client_id = create_topic(kafka, unique("topic"), 1), unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": QUOTA_BYTES_PER_S})
    begun_s = time.monotonic()
    with await dial(sluice.doors["SLUICE"].port) as client:
        await client.send(b"".join(produce_frame(client_id, topic, number, acks=0) for number in range(50)))
    found = await_stored(kafka, topic, 50)
    took_s = time.monotonic() - begun_s
    assert [int(record.value[:4]) for record in found] == list(range(50))
    assert 3.0 < took_s < 10.0  # 500 kB: the burst of 1 s, and 4 s of quota
