"""The access log of a proxy before a real broker: what is written adds up to what clients sent and got."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from sluice.usage.access_record import REQUESTS, ROLLUP, WINDOW_MS
from testkit.clients.java_client import JAVA
from testkit.clients.kafka_clients import CONFLUENT, Client, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered
from testkit.frames import load_frames as frames
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

Unique = Callable[[str], str]
Rows = list[dict[str, Any]]
REQUESTS_SENT = 400
TIMEOUT_S = 60.0


@pytest.fixture
def sluice(kafka: KafkaNode, tmp_path: Path) -> Iterator[SluiceProcess]:
    """Every request has a row of its own, too."""
    log = {"directory": {"path": str(tmp_path)}, "instance": "p1", "sample_share": 1, "rotate_s": 1}
    with SluiceProcess(doors_of(kafka), access_log=log) as process:
        yield process


def rows_of(folder: Path, table: str) -> Rows:
    files = sorted((folder / table).rglob("[!._]*.parquet"))
    assert files, f"no file of {table} in {sorted(folder.rglob('*'))}"
    return [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]


def ended(sluice: SluiceProcess) -> None:
    """By SIGTERM, as Kubernetes does it: all that is finished is in the files then."""
    assert sluice.stop() == 0


def total(rows: Rows, *names: str) -> list[float]:
    return [sum(row[name] for row in rows) for name in names]


def exchange(port: int, requests: list[bytearray]) -> tuple[int, int]:
    """Send them one after the other, each with an answer; returns the bytes (sent, received)."""
    sent = received = 0
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        for number, frame in enumerate(requests):
            struct.pack_into(">i", frame, 8, number)
            client.sendall(frame)
            sent += len(frame)
            answer = b""
            while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                more = client.recv(1 << 20)
                assert more, "the connection has ended"
                answer += more
            assert int.from_bytes(answer[4:8], "big") == number
            received += len(answer)
    return sent, received


@pytest.mark.kafka
def test_the_rows_add_up_to_what_a_client_sent_and_got(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, tmp_path: Path
) -> None:
    """Counted at the client's own socket."""
    client_id, topic = unique("app"), create_topic(kafka, unique("topic"))
    batch = frames.record_batch(bytes(700))
    requests = [frames.produce_request(client_id, topic, batch) for _ in range(REQUESTS_SENT)]
    port = int(sluice.bootstrap().rpartition(":")[2])
    sent_bytes, received_bytes = exchange(port, requests)
    ended(sluice)
    mine = [row for row in rows_of(tmp_path, ROLLUP) if row["client_id"] == client_id]
    assert total(mine, "requests", "request_bytes", "response_bytes") == [
        REQUESTS_SENT,
        sent_bytes,
        received_bytes,
    ]
    assert {(row["proxy"], row["user"], row["api_class"], row["topic"]) for row in mine} == {
        ("p1", "ANONYMOUS", "produce", topic)
    }
    assert all(row["window_start_ms"] % WINDOW_MS == 0 for row in mine)
    single = [row for row in rows_of(tmp_path, REQUESTS) if row["client_id"] == client_id]
    assert total(single, "weight", "request_bytes", "response_bytes") == [
        REQUESTS_SENT,
        sent_bytes,
        received_bytes,
    ]
    opened = [row for row in rows_of(tmp_path, ROLLUP) if row["api_class"] == "connection"]
    assert total(opened, "connections_opened") >= [1]


@pytest.mark.kafka
@pytest.mark.parametrize("client", [CONFLUENT, JAVA], ids=lambda client: client.name)
def test_the_topics_of_real_clients_are_told_by_name(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, tmp_path: Path, client: Client
) -> None:
    """Also of those that write and read by a topic's id. What the rows have is what /metrics has counted."""
    topic, records = create_topic(kafka, unique("topic")), numbered(2000)
    client.produce(sluice.bootstrap(), topic, records, Options())
    assert_exactly(
        records, client.consume(sluice.bootstrap(), topic, unique("group"), len(records), Options())
    )
    sluice.wait_until(lambda: sluice.metric("sluice_connections") == 0, "left alone")
    counted = {
        api: int(sluice.metric("sluice_requests_total", api_key=name))
        for api, name in (("produce", "Produce"), ("fetch", "Fetch"))
    }
    ended(sluice)
    rows = rows_of(tmp_path, ROLLUP)
    requests: Counter[str] = Counter()
    for row in rows:
        requests[row["api_class"]] += row["requests"]
    assert {api: requests[api] for api in counted} == counted
    produced = [row for row in rows if row["api_class"] == "produce"]
    assert {row["topic"] for row in produced} == {topic}
    fetched = [row for row in rows if row["api_class"] == "fetch" and row["topic"] == topic]
    record_bytes = sum(len(record.value) for record in records)
    assert total(fetched, "response_bytes")[0] > record_bytes / 10, "compressed, perhaps"


@pytest.mark.long
@pytest.mark.kafka
def test_a_killed_proxy_leaves_whole_files_only(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, tmp_path: Path
) -> None:
    client_id, topic = unique("app"), create_topic(kafka, unique("topic"))
    frame = frames.produce_request(client_id, topic, frames.record_batch(bytes(100)))
    port = int(sluice.bootstrap().rpartition(":")[2])
    exchange(port, [frame])
    sluice.wait_until(lambda: any(tmp_path.rglob("[!._]*.parquet")), "written", 30.0)
    exchange(port, [frame])
    sluice.kill()
    for file in tmp_path.rglob("[!._]*.parquet"):
        parquet.ParquetFile(file).read()
