"""A broker that enforces Kafka's sequence rules, well-behaved idempotent clients, a proxy of ProducerGates.

No bytes but topic names travel, and no time passes but what `advance` is told. The broker applies a request
when it is forwarded; answers wait in each connection's order until the client takes them.

Source: ProducerAppendInfo.checkSequence, ProducerStateEntry (5 batches kept). Clients have at most 5 requests
in flight and send a partition's batches in order, from the first failed on (RecordAccumulator, librdkafka).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from sluice.protocol.produce import BatchHead
from sluice.proxy.session.producer_ids.gate import ProducerGate
from sluice.proxy.session.producer_ids.gate_table import GateTables
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.quotas.producer_ids.quota import ProducerIdQuota

SEQUENCES = 2**31
MAX_IN_FLIGHT = 5
ANSWER_BUDGET_MS = 8_000.0


class Outcome(Enum):
    """What a client is told of a batch."""

    WRITTEN = 0
    NOT_ENOUGH_REPLICAS = 19
    OUT_OF_ORDER = 45
    STALE_EPOCH = 47


@dataclass(eq=False)
class Batch:
    """Its records are numbered from `first_record`, by their producer, for one partition."""

    producer_id: int
    epoch: int
    topic: bytes
    partition: int
    sequence: int
    count: int
    first_record: int
    in_flight: bool = False
    maybe_written: bool = False
    """a connection ended before its answer came"""

    @property
    def place(self) -> tuple[bytes, int]:
        return self.topic, self.partition


@dataclass(eq=False)
class Request:
    """Frozen as it was sent: batches may get another epoch and sequence later."""

    batches: list[Batch]
    heads: list[tuple[int, int, int]] = field(default_factory=list)
    """(epoch, sequence, count) of each batch"""

    def __post_init__(self) -> None:
        self.heads = [(batch.epoch, batch.sequence, batch.count) for batch in self.batches]


class ModelBroker:
    """Logs of all partitions, and the producer state that decides what is appended to them."""

    def __init__(self) -> None:
        self.logs: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
        self._states: dict[tuple[int, bytes, int], tuple[int, deque[tuple[int, int]]]] = {}

    def seed(self, producer_id: int, place: tuple[bytes, int], next_sequence: int) -> None:
        """The producer has written before: its last batch ended before `next_sequence`."""
        last = (next_sequence - 1) % SEQUENCES
        self._states[producer_id, *place] = (0, deque([(last, last)], maxlen=5))

    def produce(self, request: Request) -> list[Outcome]:
        return [
            self._append(batch, *head) for batch, head in zip(request.batches, request.heads, strict=True)
        ]

    def _append(self, batch: Batch, epoch: int, sequence: int, count: int) -> Outcome:
        key = (batch.producer_id, *batch.place)
        last = (sequence + count - 1) % SEQUENCES
        state = self._states.get(key)
        if state is not None:
            if epoch < state[0]:
                return Outcome.STALE_EPOCH
            if epoch == state[0]:
                if (sequence, last) in state[1]:
                    return Outcome.WRITTEN  # a duplicate
                if sequence != (state[1][-1][1] + 1) % SEQUENCES:
                    return Outcome.OUT_OF_ORDER
            elif sequence != 0:
                return Outcome.OUT_OF_ORDER
        if state is None or state[0] != epoch:
            state = self._states[key] = (epoch, deque(maxlen=5))
        state[1].append((sequence, last))
        log = self.logs.setdefault(batch.place, [])
        log.extend((batch.producer_id, batch.first_record + i) for i in range(count))
        return Outcome.WRITTEN


class Connection:
    """A client's connection through the proxy."""

    def __init__(self, gate: ProducerGate) -> None:
        self.gate = gate
        self.inbox: deque[Request] = deque()
        self.answers: deque[tuple[Request, list[Outcome], float]] = deque()
        """the last: when it was written"""
        self.held: Request | None = None
        self.client_left = False


class ModelProxy:
    """What a session will do with its ProducerGate, for all connections."""

    def __init__(self, broker: ModelBroker, quota: ProducerIdQuota, tables: GateTables) -> None:
        self.broker = broker
        self.quota = quota
        self.tables = tables
        self.now_ms = 1_000.0
        self.connections: list[Connection] = []
        self.refusals = 0

    def connect(self, user: str, ids_per_hour: float) -> Connection:
        gate = ProducerGate(self.quota, self.tables)
        gate.use(user, ids_per_hour, enforced=True)
        connection = Connection(gate)
        self.connections.append(connection)
        return connection

    def read(self, connection: Connection) -> bool:
        """Judge the next request, if one may be read."""
        if connection.held is not None or not connection.inbox:
            return False
        request = connection.inbox.popleft()
        buf = bytearray(b"\xff" * 3)
        heads: list[BatchHead] = []
        for batch, (epoch, sequence, count) in zip(request.batches, request.heads, strict=True):
            start = len(buf)
            buf += batch.topic
            heads.append((start, len(buf), batch.partition, 100, batch.producer_id, epoch, sequence, count))
        verdict = connection.gate.judge(
            buf, heads, -1, self.now_ms, self.now_ms + ANSWER_BUDGET_MS, connection
        )
        self._carry_out(connection, request, verdict)
        return True

    def advance(self, elapsed_ms: float) -> None:
        """Read all that can be read, and let time pass, with all that is due on the way."""
        until_ms = self.now_ms + elapsed_ms
        self._read_all()
        while True:
            wakes = [c.gate.wake_at_ms for c in self.connections if c.held is not None]
            next_ms = max(min([until_ms, self.quota.due_ms, *wakes]), self.now_ms)
            self.now_ms = next_ms
            for ticket in self.quota.serve(next_ms):
                owner = ticket.owner
                assert isinstance(owner, Connection)
                self._wake(owner)
            for connection in list(self.connections):
                if connection.held is not None and connection.gate.wake_at_ms <= next_ms:
                    self._wake(connection)
            self._read_all()
            if next_ms >= until_ms:
                self.tables.expire(self.now_ms)
                self.quota.expire(self.now_ms)
                return
            self.now_ms += 0.001

    def _read_all(self) -> None:
        reading = True
        while reading:
            reading = False
            for connection in list(self.connections):
                reading |= self.read(connection)

    def _wake(self, connection: Connection) -> None:
        request = connection.held
        assert request is not None
        if connection.client_left:
            connection.gate.dropped(self.now_ms)
            self._end(connection)
            return
        connection.held = None
        self._carry_out(connection, request, connection.gate.wake(self.now_ms))

    def _carry_out(self, connection: Connection, request: Request, verdict: Verdict) -> None:
        if verdict is Verdict.HOLD:
            connection.held = request
        elif verdict is Verdict.REFUSE:
            self.refusals += 1
            outcomes = [Outcome.NOT_ENOUGH_REPLICAS] * len(request.batches)
            connection.answers.append((request, outcomes, self.now_ms))
        else:
            assert verdict in {Verdict.PASS, Verdict.ADMIT}
            if verdict is Verdict.ADMIT:
                connection.gate.forwarded(self.now_ms)
            connection.answers.append((request, self.broker.produce(request), self.now_ms))
        if connection.client_left and connection.held is None and not connection.inbox:
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        connection.held = None
        connection.inbox.clear()
        if connection in self.connections:
            self.connections.remove(connection)


class ModelProducer:
    """One producer id, epoch and sequences; a queue of batches for each partition."""

    def __init__(self, producer_id: int, places: list[tuple[bytes, int]], first_sequence: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.queues: dict[tuple[bytes, int], list[Batch]] = {place: [] for place in places}
        self.next_sequence = dict.fromkeys(places, first_sequence)
        self.records = dict.fromkeys(places, 0)

    def add(self, place: tuple[bytes, int], count: int) -> None:
        """The application sends `count` records more."""
        sequence = self.next_sequence[place]
        batch = Batch(self.producer_id, self.epoch, *place, sequence, count, self.records[place])
        self.queues[place].append(batch)
        self.next_sequence[place] = (sequence + count) % SEQUENCES
        self.records[place] += count

    def next_batch(self, place: tuple[bytes, int]) -> Batch | None:
        """The first that is not on its way; those before it are."""
        return next((batch for batch in self.queues[place] if not batch.in_flight), None)

    def bump_epoch(self) -> bool:
        """As Java does where nothing is on its way and nothing may have been written unseen."""
        batches = [batch for queue in self.queues.values() for batch in queue]
        if any(batch.in_flight or batch.maybe_written for batch in batches):
            return False
        self.epoch += 1
        for place, queue in self.queues.items():
            sequence = 0
            for batch in queue:
                batch.epoch, batch.sequence = self.epoch, sequence
                sequence += batch.count
            self.next_sequence[place] = sequence
        return True


class ModelClient:
    """A process with one connection and one or more producers whose batches may share a request."""

    def __init__(
        self, proxy: ModelProxy, user: str, ids_per_hour: float, producers: list[ModelProducer]
    ) -> None:
        self.proxy = proxy
        self.user = user
        self.ids_per_hour = ids_per_hour
        self.producers = producers
        self.connection = proxy.connect(user, ids_per_hour)
        self.former: list[Connection] = []
        """to where leaders were before; what was sent there is still answered there"""
        self.in_flight: deque[Request] = deque()
        self.failures: list[tuple[Outcome, Batch]] = []

    @property
    def is_done(self) -> bool:
        return not any(queue for producer in self.producers for queue in producer.queues.values())

    def send(self, choice: int) -> bool:
        """One request with the next batch of some queues; bits of `choice` say which. False: nothing to
        send."""
        if len(self.in_flight) >= MAX_IN_FLIGHT:
            return False
        batches: list[Batch] = []
        for producer in self.producers:
            for place in producer.queues:
                chosen, choice = choice & 1, choice >> 1
                batch = producer.next_batch(place) if chosen else None
                # The broker takes one batch a partition in a request.
                if batch is not None and all(batch.place != other.place for other in batches):
                    batches.append(batch)
        if not batches:
            return False
        for batch in batches:
            batch.in_flight = True
        request = Request(batches)
        self.in_flight.append(request)
        self.connection.inbox.append(request)
        return True

    def receive(self) -> bool:
        """Take the next answer."""
        answered = next((one for one in (*self.former, self.connection) if one.answers), None)
        if answered is None:
            return False
        request, outcomes, _ = answered.answers.popleft()
        if not self.former:
            assert request is self.in_flight[0], "answers keep the order of the requests"
        self.in_flight.remove(request)
        for batch, outcome in zip(request.batches, outcomes, strict=True):
            batch.in_flight = False
            if outcome is not Outcome.NOT_ENOUGH_REPLICAS:
                if outcome is not Outcome.WRITTEN:
                    self.failures.append((outcome, batch))
                self._queue_of(batch).remove(batch)
        return True

    def receive_old(self, until_ms: float) -> None:
        """Take what has lain there for a minute by `until_ms`: a client's request times out after half of
        that."""
        for connection in (*self.former, self.connection):
            answers = connection.answers
            while answers and answers[0][2] + 60_000.0 <= until_ms:
                self.receive()

    def move(self) -> bool:
        """The leader has moved: what is sent from now on goes on another connection. False: not while there
        is something unread, of which no proxy knows."""
        if self.connection.inbox:
            return False
        self.former.append(self.connection)
        self.connection = self.proxy.connect(self.user, self.ids_per_hour)
        return True

    def reconnect(self) -> None:
        """The connection ends; what was on its way is sent again on another."""
        for connection in (*self.former, self.connection):
            connection.client_left = True
            connection.answers.clear()
        self.former.clear()
        for request in self.in_flight:
            for batch in request.batches:
                batch.in_flight = False
                batch.maybe_written = True
        self.in_flight.clear()
        self.connection = self.proxy.connect(self.user, self.ids_per_hour)

    def _queue_of(self, batch: Batch) -> list[Batch]:
        producer = next(p for p in self.producers if p.producer_id == batch.producer_id)
        return producer.queues[batch.place]


def finish(
    proxy: ModelProxy,
    clients: list[ModelClient],
    awaited: list[ModelClient] | None = None,
    limit_s: int = 3_600,
) -> None:
    """Let all clients go on until everything that the awaited ones were given is acknowledged."""
    passed_s = 0
    while not all(client.is_done for client in awaited or clients):
        assert passed_s < limit_s, [repr(client.producers[0].queues) for client in clients]
        for client in clients:
            while client.receive():
                pass
            while client.send(-1):
                pass
        proxy.advance(2_000.0)
        passed_s += 2


def assert_exactly_once_in_order(broker: ModelBroker, clients: list[ModelClient]) -> None:
    for client in clients:
        assert client.failures == []
        for producer in client.producers:
            for place, count in producer.records.items():
                log = broker.logs.get(place, [])
                written = [record for writer, record in log if writer == producer.producer_id]
                assert written == list(range(count)), f"{producer.producer_id} in {place}"
