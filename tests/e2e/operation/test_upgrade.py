"""The first version and this one side by side in front of one broker, and one in the place of the other.

The first version is its own wheel (tests/fixtures/first-version), run from a folder of its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from sluice.usage.access_record import REQUESTS, ROLLUP
from testkit.clients.everybody import everybody_at_work
from testkit.clients.java_client import JAVA
from testkit.clients.kafka_clients import AIOKAFKA, CLIENTS, CONFLUENT, LEAVES_SOCKETS, Client, Options
from testkit.clients.kafka_records import Record, assert_exactly, create_topic, numbered, stored
from testkit.clients.quota_api import QuotaApi, Whom
from testkit.frames import load_frames as frames
from testkit.frames.frames import decoded
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port, free_port_range
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess
from testkit.releases import first_version
from testkit.thorough import few

Unique = Callable[[str], str]
Limits = dict[Whom, dict[str, float]]
Program = Sequence[str | Path]
NEW: Final[Program] = (SLUICE,)
LIMITS: Final[Limits] = {
    (("user", "alice"),): {"producer_byte_rate": 1_024.0, "request_percentage": 150.0},
    (("user", None),): {"consumer_byte_rate": 5e6, "controller_mutation_rate": 2.5},
    (("user", "bob"), ("client-id", "etl")): {"producer_byte_rate": 2_048.0},
    (("user", "carol"),): {"producer_ids_rate": 50.0},
    (("ip", "10.0.0.1"),): {"connection_creation_rate": 7.0},
}
RATE: Final = 50_000.0
PRODUCE: Final = 0
pytestmark = [pytest.mark.kafka, *LEAVES_SOCKETS]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return first_version(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def node() -> Iterator[KafkaNode]:
    """Its own, for the quota topic is the cluster's."""
    with KafkaNode() as node:
        yield node


def gateway(node: KafkaNode, program: Program, **options: Any) -> SluiceProcess:
    """In mode gateway, so that several may stand before one broker."""
    port = free_port_range(2)
    section = {
        "bootstrap_upstreams": [node.bootstrap],
        "advertised_host": LOOPBACK,
        "first_broker_port": port + 1,
        "first_broker_id": 1,
        "max_brokers": 1,
    }
    door = Door("GATEWAY", port, None, "PLAINTEXT", {"gateway": section})
    return SluiceProcess([door], mode="gateway", program=program, probes=False, **options)


def sharing(
    node: KafkaNode, program: Program, folder: Path, name: str, *, topic_at: str | None = None
) -> SluiceProcess:
    """One of several that share the quota topic."""
    copy = str(folder / f"{name}.json")
    topic = {"bootstrap": [topic_at or node.bootstrap], "copy_file": copy, "request_timeout_s": 5}
    quotas = {"source": "topic", "topic": topic, "admins": ["ANONYMOUS"]}
    return gateway(node, program, quota_options=quotas)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def pair(node: KafkaNode, old: Program, shared: Path) -> Iterator[dict[str, SluiceProcess]]:
    with sharing(node, old, shared, "old") as one, sharing(node, NEW, shared, "new") as two:
        yield {"old": one, "new": two}


def bootstrap(sluice: SluiceProcess) -> str:
    return sluice.bootstrap("GATEWAY")


def answers(sluice: SluiceProcess, wanted: Limits) -> bool:
    with QuotaApi(bootstrap(sluice)) as api:
        return api.limits() == wanted


def await_limits(pair: dict[str, SluiceProcess], wanted: Limits) -> None:
    for sluice in pair.values():
        sluice.wait_until(partial(answers, sluice, wanted), f"the limits {wanted}")


@pytest.fixture
def no_limits(pair: dict[str, SluiceProcess]) -> Iterator[None]:
    yield
    with QuotaApi(bootstrap(pair["new"])) as api:
        for whom, limits in api.limits().items():
            assert api.alter(dict(whom), dict.fromkeys(limits)) == (0, None)
    await_limits(pair, {})


def test_the_old_one_is_the_first_version(old: Program) -> None:
    """It knows nothing of an option that came later."""
    told = [
        subprocess.run([*program, "schema", "config"], check=True, capture_output=True, text=True).stdout
        for program in (old, NEW)
    ]
    assert ["transactional_ids_per_hour" in text for text in told] == [False, True]


# Side by side -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_limits")
@pytest.mark.parametrize(("one", "other"), few([("new", "old"), ("old", "new")], 1))
def test_limits_set_through_one_are_told_and_removed_through_the_other(
    pair: dict[str, SluiceProcess], one: str, other: str
) -> None:
    with QuotaApi(bootstrap(pair[one])) as api:
        for whom, limits in LIMITS.items():
            assert api.alter(dict(whom), limits) == (0, None)
    await_limits(pair, LIMITS)
    with QuotaApi(bootstrap(pair[other])) as api:
        for whom, limits in LIMITS.items():
            assert api.alter(dict(whom), dict.fromkeys(limits)) == (0, None)
    await_limits(pair, {})


@pytest.mark.usefixtures("no_limits")
@pytest.mark.parametrize("through", few(["new", "old"], 1))
def test_a_limit_set_through_either_is_enforced_by_both(
    node: KafkaNode, pair: dict[str, SluiceProcess], unique: Unique, through: str
) -> None:
    client_id, topic = unique("app"), create_topic(node, unique("topic"))
    with QuotaApi(bootstrap(pair[through])) as api:
        assert api.alter({"client-id": client_id}, {"producer_byte_rate": RATE}) == (0, None)
    await_limits(pair, {(("client-id", client_id),): {"producer_byte_rate": RATE}})
    for sluice in pair.values():
        producer = Producer({"bootstrap.servers": bootstrap(sluice), "client.id": client_id})
        for _ in range(200):
            producer.produce(topic, b"x" * 1_000)
        assert producer.flush(60) == 0
        assert sluice.metric("sluice_throttled_seconds_total", quota="produce", client_id=client_id) > 1.0


@pytest.mark.parametrize(
    "client",
    [pytest.param(client, marks=() if client is CONFLUENT else pytest.mark.long) for client in CLIENTS],
    ids=lambda client: client.name,
)
@pytest.mark.parametrize("kind", ["idempotent", "transactional"])
def test_a_client_moves_to_the_new_one_and_back_and_loses_nothing(
    node: KafkaNode, pair: dict[str, SluiceProcess], unique: Unique, client: Client, kind: str
) -> None:
    """With its transactional id and with what its group had committed."""
    topic, group = create_topic(node, unique("topic")), unique("group")
    options = Options(transactional_id=unique("transaction") if kind == "transactional" else None)
    sent: list[Record] = []
    received: list[Record] = []
    for stay, name in enumerate(("old", "new", "old")):
        records = numbered(200, run=f"stay-{stay}")
        client.produce(bootstrap(pair[name]), topic, records, options)
        received += client.consume(bootstrap(pair[name]), topic, group, len(records), Options())
        sent += records
    assert_exactly(sent, stored(node, topic))
    assert_exactly(sent, received, "received")


@dataclass(frozen=True, slots=True)
class Log:
    """A folder into which both have written, and how many Produces each has counted."""

    folder: Path
    topic: str
    produces: dict[str, int]


@pytest.fixture(scope="module")
def log(node: KafkaNode, old: Program, tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Each was started again while the other was writing, and looked after what was left unfinished."""
    folder = tmp_path_factory.mktemp("log")
    topic = create_topic(node, "in-the-log")
    options = {"directory": {"path": str(folder)}, "sample_share": 1, "rotate_s": 1}
    limit = [{"client-id": "logged", "producer_byte_rate": RATE}]
    produces = {"old": 0, "new": 0}
    with (
        gateway(node, old, quotas=limit, access_log=options | {"instance": "old"}) as one,
        gateway(node, NEW, quotas=limit, access_log=options | {"instance": "new"}) as two,
    ):
        running = {"old": one, "new": two}
        for _ in range(2):
            for name, sluice in running.items():
                CONFLUENT.produce(bootstrap(sluice), topic, numbered(500), Options(client_id="logged"))
                produces[name] += int(sluice.metric("sluice_requests_total", api_key="Produce"))
                assert sluice.stop() == 0
                sluice.start()
    return Log(folder, topic, produces)


@pytest.mark.long
def test_both_write_into_one_access_log_and_no_row_of_either_is_lost(log: Log) -> None:
    rollup, requests = (rows_of(log.folder, table) for table in (ROLLUP, REQUESTS))
    for name, produces in log.produces.items():
        mine = [row for row in rollup if row["proxy"] == name and row["api_class"] == "produce"]
        assert sum(row["requests"] for row in mine) == produces > 0, name
        assert {row["topic"] for row in mine} == {log.topic}
        single = [row for row in requests if row["proxy"] == name and row["api_key"] == PRODUCE]
        assert len(single) == produces, name
    assert [file for file in log.folder.rglob("*.parquet") if file.name[0] in "._"] == [], "unfinished"


def rows_of(folder: Path, table: str) -> list[dict[str, Any]]:
    files = sorted((folder / table).rglob("[!._]*.parquet"))
    assert files, f"no file of {table} in {sorted(folder.rglob('*'))}"
    return [row for file in files for row in parquet.ParquetFile(file).read().to_pylist()]


# One in the place of the other ------------------------------------------------------------------------------


def replace(proxy: SluiceProcess, program: Program) -> None:
    """A rolling restart: the same configuration, ports, quota file and files of state."""
    assert proxy.stop() == 0
    proxy.program = program
    proxy.start()


@pytest.mark.long
def test_everybody_produces_exactly_once_through_an_upgrade_and_a_downgrade(
    node: KafkaNode, old: Program, tmp_path: Path, unique: Unique
) -> None:
    """Clients notice a reconnect.

    Without aiokafka's transactional producer: its sender (0.14) ends for good when a connection closes
    while it asks for its coordinator, whatever version the proxy is of.
    """
    log = {"directory": {"path": str(tmp_path)}, "instance": "p1", "rotate_s": 1}
    who = [(client, kind) for client in (CONFLUENT, JAVA) for kind in ("idempotent", "transactional")]
    who.append((AIOKAFKA, "idempotent"))
    with (
        gateway(node, old, access_log=log) as proxy,
        everybody_at_work(node, proxy, unique, throttled=False, who=who),
    ):
        for program in (NEW, old):
            replace(proxy, program)
            proxy.wait_until(partial(has_traffic, proxy), "used by all", 60.0)


def has_traffic(proxy: SluiceProcess) -> bool:
    """Since its start: some seconds of what six producers send and their groups read."""
    return all(proxy.metric("sluice_requests_total", api_key=name) > 300 for name in ("Produce", "Fetch"))


def test_producer_ids_stay_known_through_an_upgrade_and_a_downgrade(
    node: KafkaNode, old: Program, tmp_path: Path, unique: Unique
) -> None:
    topic = create_topic(node, unique("topic"), partitions=1)
    snapshot = {"snapshot_file": str(tmp_path / "producer-ids")}
    limit = {"user": "ANONYMOUS", "producer_ids_rate": 100}
    with gateway(node, old, quotas=[limit], producer_ids=snapshot) as proxy:
        for turn, program in enumerate((old, NEW, old)):
            if turn:
                replace(proxy, program)
                assert proxy.metric("sluice_producer_ids_snapshots_total", outcome="restored") == 1
            for producer_id in range(100, 110 + 10 * turn):  # ten of them are new
                produce_once(proxy, topic, producer_id, sequence=turn - (producer_id - 100) // 10)
            assert proxy.metric("sluice_producer_ids_new_total") == 10
            assert proxy.metric("sluice_producer_ids_resumed_total") == 0


def produce_once(proxy: SluiceProcess, topic: str, producer_id: int, sequence: int) -> None:
    """A batch of one record, with its number in the producer's sequence; the broker takes it."""
    host, _, port = bootstrap(proxy).rpartition(":")
    batch = frames.record_batch(b"x", producer_id=producer_id, epoch=0, sequence=sequence)
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(frames.produce_request("app", topic, batch))
        answer = client.makefile("rb")
        size = answer.read(4)
        body: Any = decoded("response", PRODUCE, 12, size + answer.read(int.from_bytes(size, "big"))).body
    assert body["responses"][0]["partitionResponses"][0]["errorCode"] == 0, body


# Downgrade --------------------------------------------------------------------------------------------------


def test_the_old_one_starts_from_the_new_ones_copy_of_the_topic(
    node: KafkaNode, old: Program, tmp_path: Path
) -> None:
    """And the other way round; the topic's broker is out of reach."""
    for first, second in ((NEW, old), (old, NEW)):
        with sharing(node, first, tmp_path, "copied") as proxy:
            with QuotaApi(bootstrap(proxy)) as api:
                for whom, limits in LIMITS.items():
                    assert api.alter(dict(whom), limits) == (0, None)
            proxy.wait_until(partial(answers, proxy, LIMITS), "in force")
        nowhere = f"{LOOPBACK}:{free_port()}"
        with sharing(node, second, tmp_path, "copied", topic_at=nowhere) as proxy:
            assert proxy.log_lines("quota_copy_read", entities=len(LIMITS))
            assert answers(proxy, LIMITS)


def refused(program: Program, *arguments: str | Path) -> str:
    """What it says to what it does not take."""
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return " ".join(done.stderr.split())


def test_an_option_that_the_old_one_does_not_know_is_refused_with_its_line(
    old: Program, tmp_path: Path
) -> None:
    file = tmp_path / "sluice.yaml"
    file.write_text(
        "listeners: [{name: plain, bind_port: 19092, upstream_host: kafka-1, upstream_port: 9092}]\n"
        "producer_ids:\n"
        "  transactional_ids_per_hour: 100\n"
    )
    told = refused(old, "run", "--config", file)
    assert f"{file}:3: producer_ids.transactional_ids_per_hour: unknown key" in told


def test_an_entry_of_a_quota_file_that_the_old_one_does_not_know_is_refused_with_its_line(
    old: Program, tmp_path: Path
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas:\n- user: alice\n  producer_byte_rate: 1000\n  over_budget: refuse\n")
    assert f"{file}:4: quotas[0].over_budget: unknown key" in refused(old, "check", file)


@pytest.mark.slow
def test_the_night_of_either_reads_the_log_of_both_and_the_old_one_refuses_the_new_ones_plan(
    old: Program, log: Log, tmp_path: Path
) -> None:
    (tmp_path / "settings.yaml").write_text(
        "policy: {min_traffic_s: 1, min_days_to_cut: 1}\ncompact: false\n"
    )
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text(json.dumps({"quotas": [{"client-id": "logged", "producer_byte_rate": RATE}]}))
    (day,) = {folder.name.removeprefix("date=") for folder in (log.folder / ROLLUP).glob("date=*")}
    arguments = [f"--logs={log.folder}", f"--out={tmp_path / 'out'}", f"--quotas={quotas}", f"--date={day}"]
    plans = []
    for program in (NEW, old):  # the second finds the first one's states
        command = [*program, "recalibrate", *arguments, f"--settings={tmp_path / 'settings.yaml'}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3_000:]
        plans.append(json.loads((Path(done.stdout.strip()) / "plan.json").read_text()))
    new, again = plans
    assert (new["version"], again["version"]) == (2, 1)
    assert not new["damaged_files"]
    assert not again["damaged_files"]
    assert new["log_files"] == again["log_files"] > 2
    for plan in plans:
        (entry,) = [entry for entry in plan["entries"] if "logged" in str(entry["entity"])]
        assert entry["throttled_share"] > 0.0
    folder = tmp_path / f"out/plans/{day}-1"
    assert "version: is 2; this Sluice reads 1" in refused(
        old, "quotas", "apply", folder, f"--quotas={quotas}"
    )
