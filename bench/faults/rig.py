"""A real broker, the proxy before it with two listeners, and real clients of each for every fault.

producer, consumer ──plain──► listener plain ──plain────► broker
producer, consumer ──TLS────► listener tls ──SASL_SSL──► broker      the proxy logs in
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.faults.launch import CLOCK, SHIFT, THROW
from bench.faults.place import BROKER_NAME, Place
from bench.faults.told import Admin
from bench.soak.log import Answers, client_and_number, read_answers
from bench.soak.verdict import Stored, Verdict, verdict
from testkit.kafka.config import BrokerTls
from testkit.kafka.node import USERS, KafkaNode
from testkit.peers.certificates import CertificateAuthority
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.soak_proxy import Sluice

PLAIN: Final = "SLUICE"
SECURE: Final = "SLUICE_SASL_SSL"
PARTITIONS: Final = 2
RATE: Final = 50.0
TOKEN: Final = "a-token-of-the-bench-0123456789"
FIRST_RECORD_S: Final = 40.0
END_WITHIN_S: Final = 120.0
READ_WITHIN_S: Final = 60.0
_ANSWER_S: Final = 5.0
NEWCOMER_EVERY_S: Final = 1.0


class FaultySluice(Sluice):
    """`sluice`, in a place of its own and with what launch.py adds; it can be killed."""

    def __init__(self, place: Place, control: Path, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._place = place
        self._control = control

    def command(self) -> list[str]:
        return self._place.python(
            "bench.faults.launch", str(self._control), "run", "--config", str(self._config)
        )

    @property
    def config_file(self) -> Path:
        return self._config

    def kill(self) -> None:
        """SIGKILL: no drain, no good-bye."""
        assert self._process is not None
        process, self._process = self._process, None
        process.kill()
        process.close()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.exit_code() is None


@dataclass(slots=True)
class Clients:
    """The clients beside one fault: a process for each listener, with a topic of its own."""

    processes: dict[str, GuardedProcess] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    files: dict[str, tuple[Path, Path]] = field(default_factory=dict)
    """entries, and what was printed"""

    def answers(self, name: str) -> Answers:
        """What it was told so far."""
        entries, printed = self.files[name]
        return read_answers(entries, printed) if entries.exists() else Answers()

    def all_acknowledged_since(self, at_s: float) -> bool:
        """Whether each client has had a record acknowledged since then."""
        return all((x := self.answers(name).acknowledged) and x[-1][1] > at_s for name in self.processes)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one client's records."""

    verdict: Verdict
    answers: Answers
    unread: int
    """acknowledged, and not seen by its consumer"""
    read_twice: int
    skipped: int
    """offsets that the consumer never saw"""


class Newcomers:
    """A real client that comes anew every second, to each listener in turn: a fault may meet no other."""

    def __init__(self, properties: Mapping[str, Mapping[str, Any]]) -> None:
        self._properties = properties
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in properties]
        self.served: dict[str, list[float]] = {name: [] for name in properties}
        self.turned_away: dict[str, list[float]] = {name: [] for name in properties}

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(3 * _ANSWER_S)

    def all_served_since(self, at_s: float) -> bool:
        return all(any(x > at_s for x in times) for times in list(self.served.values()))

    def _run(self, name: str) -> None:
        while not self._stop.wait(NEWCOMER_EVERY_S):
            begun_s = time.monotonic()
            client = AdminClient({**self._properties[name], "log_level": 0})
            try:
                client.list_topics(timeout=_ANSWER_S)
                self.served[name].append(begun_s)
            except KafkaException:
                self.turned_away[name].append(begun_s)


class FaultRig:
    """All that stands while faults come and go."""

    def __init__(
        self, kafka: KafkaNode, sluice: FaultySluice, place: Place, files: Files, admin: Admin
    ) -> None:
        self.kafka = kafka
        self.sluice = sluice
        self.place = place
        self.files = files
        self.admin = admin
        self.ca = files.folder / "ca.crt"
        self._client_number = 0

    def properties(self) -> dict[str, dict[str, Any]]:
        """The properties of a client of each listener."""
        found: dict[str, dict[str, Any]] = {
            "plain": {"bootstrap.servers": _address(self.kafka, PLAIN), "client.id": "plain"},
            "tls": {
                "bootstrap.servers": _address(self.kafka, SECURE),
                "client.id": "tls",
                "security.protocol": "SSL",
                "ssl.ca.location": str(self.ca),
                "ssl.certificate.location": str(self.files.folder / "alice.crt"),
                "ssl.key.location": str(self.files.folder / "alice.key"),
            },
        }
        return found

    def start_clients(self, fault: int) -> Clients:
        """Returns once each has had a record acknowledged. Raises BenchError when one does not."""
        clients = Clients()
        topics = {name: f"fault-{fault}-{name}" for name in self.properties()}
        self._create(list(topics.values()))
        for index, (name, properties) in enumerate(self.properties().items()):
            base = self.files.folder / f"{fault}-{name}"
            plan = {"properties": properties, "topic": topics[name], "partitions": PARTITIONS}
            base.with_suffix(".json").write_text(json.dumps({**plan, "index": index, "rate": RATE}))
            entries, printed = base.with_suffix(".entries"), base.with_suffix(".log")
            command = self.place.python("bench.faults.client", str(base.with_suffix(".json")), str(entries))
            clients.processes[name] = GuardedProcess(command, output=printed)
            clients.topics[name] = topics[name]
            clients.files[name] = (entries, printed)
        deadline_s = time.monotonic() + FIRST_RECORD_S
        while not clients.all_acknowledged_since(0.0):
            if time.monotonic() > deadline_s:
                logs = "\n".join(log_tail(printed) for _, printed in clients.files.values())
                raise BenchError(f"no record acknowledged:\n{logs}\n{log_tail(self.sluice.log)}")
            time.sleep(0.1)
        return clients

    def end_clients(self, clients: Clients) -> dict[str, Found]:
        """SIGTERM, wait for the last answers, and read what is stored past the proxy."""
        for process in clients.processes.values():
            process.send_signal(signal.SIGTERM)
        found = {}
        deadline_s = time.monotonic() + END_WITHIN_S
        for name, process in clients.processes.items():
            with contextlib.suppress(TimeoutError):
                process.wait(max(0.0, deadline_s - time.monotonic()))
            process.close()
            answers = clients.answers(name)
            stored = self._stored(clients.topics[name])
            end = _last_json(clients.files[name][1])
            unread = end.get("unread", len(answers.acknowledged))
            found[name] = Found(
                verdict(answers, stored), answers, unread, end.get("read_twice", 0), end.get("skipped", 0)
            )
        return found

    # What is done to it -----------------------------------------------------------------------------------

    def shift_clock(self, by_s: float) -> None:
        """From now on the proxy's wall clock is off by so much."""
        with (self.files.control / CLOCK).open("r+b") as file:
            file.write(SHIFT.pack(by_s))

    def throw_in(self, thread: str) -> None:
        """Raise an exception in this thread of the proxy."""
        beside = self.files.control / "throw.new"
        beside.write_text(thread)
        os.replace(beside, self.files.control / THROW)

    # ------------------------------------------------------------------------------------------------------

    def _create(self, topics: Sequence[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
            future.result(30.0)

    def _stored(self, topic: str) -> Stored:
        stored = Stored()
        settings = {"group.id": "reads-without-a-group", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap, "enable.partition.eof": True, **settings}
        )
        consumer.assign([TopicPartition(topic, x, OFFSET_BEGINNING) for x in range(PARTITIONS)])
        unread = set(range(PARTITIONS))
        deadline_s = time.monotonic() + READ_WITHIN_S
        while unread:
            if time.monotonic() > deadline_s:
                raise BenchError(f"{topic} was not read in {READ_WITHIN_S:.0f} s")
            for message in consumer.consume(10_000, 0.5):
                error, value = message.error(), message.value()
                if error is None and value is not None:
                    stored.add(message.partition() or 0, client_and_number(value)[1])
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
        consumer.close()
        return stored


class Files:
    """The files that the proxy follows, and where they lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = folder / "control"
        self.control.mkdir()
        (self.control / CLOCK).write_bytes(SHIFT.pack(0.0))
        self.authority = CertificateAuthority()
        self.authority.write(folder)
        self.foreign = CertificateAuthority("another CA")
        self.server = self.authority.server().write(folder, "proxy")
        self.broker = self.authority.server().write(folder, "broker")
        self.authority.client("CN=alice").write(folder, "alice")
        # One file for each use, so that a fault meets one.
        self.client_ca = self.authority.write(folder, "client-ca")
        self.upstream_ca = self.authority.write(folder, "upstream-ca")
        self.credentials = folder / "credentials.yaml"
        service = {"username": "alice", "password": USERS["alice"]}
        self.credentials.write_text(json.dumps({"service": service}))
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        self.quotas = folder / "sluice-quotas.yaml"

    def replace(self, file: Path, content: bytes) -> None:
        """In one step, as a ConfigMap's file is."""
        beside = file.with_name(f".{file.name}.new")
        beside.write_bytes(content)
        os.replace(beside, file)


@contextlib.contextmanager
def open_rig() -> Iterator[FaultRig]:
    """Broker, namespace and proxy; all gone when the block ends. Raises BenchError."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        files = Files(folder)
        plain, secure, admin_port, probe_port = free_ports(4)
        print("starting a broker", flush=True)
        kafka = stack.enter_context(
            KafkaNode(
                advertised={PLAIN: (LOOPBACK, plain), SECURE: (LOOPBACK, secure)},
                tls=BrokerTls(files.broker.keystore, folder / "ca.crt"),
            )
        )
        place = Place(folder)
        stack.callback(place.close)
        sluice = FaultySluice(
            place,
            files.control,
            "sluice",
            folder,
            admin_port,
            _listeners(kafka, files),
            [{"client-id": "nobody-has-this-name", "producer_byte_rate": 1}],
            **_options(files, admin_port, probe_port, place.disk),
        )
        stack.enter_context(sluice)
        urls = (f"http://{LOOPBACK}:{admin_port}", f"http://{LOOPBACK}:{probe_port}")
        yield FaultRig(kafka, sluice, place, files, Admin(*urls, TOKEN))


def _listeners(kafka: KafkaNode, files: Files) -> list[dict[str, Any]]:
    tls = {
        "certificate_file": str(files.server.certificate),
        "key_file": str(files.server.key),
        "client_ca_file": str(files.client_ca),
        "client_auth": "required",
        "reload_interval_s": 0.5,
    }
    return [
        {
            "name": "plain",
            "bind_port": kafka.advertised(PLAIN)[1],
            "upstream_host": BROKER_NAME,
            "upstream_port": kafka.address(PLAIN)[1],
        },
        {
            "name": "tls",
            "bind_port": kafka.advertised(SECURE)[1],
            "security_protocol": "SSL",
            "tls": tls,
            "upstream_host": BROKER_NAME,
            "upstream_port": kafka.address(SECURE)[1],
            "upstream_security_protocol": "SASL_SSL",
            "upstream_tls": {"ca_file": str(files.upstream_ca), "server_name": "localhost"},
            "upstream_sasl": {"mechanism": "PLAIN", "credentials_file": str(files.credentials)},
            "accept_shared_upstream_identity": True,
        },
    ]


def _options(files: Files, admin_port: int, probe_port: int, disk: Path) -> dict[str, Any]:
    return {
        "admin": {
            "bind_host": LOOPBACK,
            "bind_port": admin_port,
            "probes": {"bind_port": probe_port},
            "status": {"token_file": str(files.token), "token_on_loopback": True},
        },
        "access_log": {"directory": {"path": str(disk)}, "rotate_s": 1, "instance": "bench"},
    }


def _address(kafka: KafkaNode, listener: str) -> str:
    host, port = kafka.advertised(listener)
    return f"{host}:{port}"


def _last_json(printed: Path) -> dict[str, int]:
    lines = [x for x in printed.read_text(errors="replace").splitlines() if x.startswith("{")]
    found: dict[str, int] = json.loads(lines[-1]) if lines else {}
    return found
