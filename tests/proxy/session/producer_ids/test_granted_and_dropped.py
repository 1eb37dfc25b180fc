"""What a held request was granted or refused is its own: when it is dropped, the next one is judged anew.

A mute that comes while a request is held begins behind the hold: it has its turn, and has not gone. If its
client leaves then, it is dropped, and Produces with acks = 0 behind it go on by their quota.
"""

from __future__ import annotations

from sluice.protocol.apis import FETCH
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import TOPIC_ID, fetch, fetch_answer_of, produce, produce_of, record_batch, request
from testkit.proxy.playbook import Shell, fetch_debt, shell_of

USERS = QuotaEntity(DEFAULT)
IDS_PER_HOUR = 3_600.0
SETTINGS = ProducerIdSettings(forced_after_ms=1e9)
KNOWN_ID = 5


def shared_of(**more: float) -> SharedState:
    """One new id a second, and 10,000 B/s of Fetch answers."""
    limits = {"producer_ids_rate": IDS_PER_HOUR, "consumer_byte_rate": 10_000.0, **more}
    ids = ProducerIds(SETTINGS)
    return SharedState(QuotaManager(QuotaLimits([(USERS, limits)])), Recorder(), producer_ids=ids)


def produce_by(*producer_ids: int, acks: int = 1, correlation_id: int = 1) -> bytes:
    batches = [
        (partition, record_batch(b"x", producer_id=producer_id, epoch=0, sequence=0))
        for partition, producer_id in enumerate(producer_ids)
    ]
    return produce({"orders": batches}, acks=acks, correlation_id=correlation_id)


def held_behind_a_fetch(shared: SharedState) -> Shell:
    """A Produce is held for its id, and behind that hold the answer of a Fetch mutes."""
    shell = shell_of(shared)
    shell.client_sends(produce_by(KNOWN_ID, acks=0))
    (principal,) = shared.producer_ids.quota.principals()
    principal.main.restore(0.0, shell.now_ms)
    shell.client_sends(fetch(correlation_id=1))
    shell.client_sends(produce_by(100, correlation_id=2))
    shell.broker_sends(fetch_answer_of(110_000, correlation_id=1))
    assert is_in(State.HOLDING, shell)
    shell.to_broker.clear()
    shell.to_client.clear()
    return shell


def is_in(state: State, shell: Shell) -> bool:
    return shell.state is state


def serve(shell: Shell, ms: float) -> None:
    """Time passes, and the turns of those who wait for their ids come."""
    shell.now_ms += ms
    shell.shared.producer_ids.serve(shell.now_ms)
    shell.advance(0.0)


def test_what_a_dropped_request_was_granted_lets_no_other_go() -> None:
    """300 new ids went uncounted, at a limit of one a second."""
    shell = held_behind_a_fetch(shared_of())
    serve(shell, 2_000.0)
    assert is_in(State.MUTED, shell), "it has had its turn"
    (principal,) = shell.shared.producer_ids.quota.principals()
    before = principal.admitted
    shell.client_sends(produce_by(*range(200, 500), acks=0))
    shell.client_leaves()
    serve(shell, 15_000.0)
    assert not shell.to_broker
    assert principal.admitted == before
    assert is_in(State.HOLDING, shell), "it waits for its own ids"
    assert principal.main.reserved == 0, "and what the other was granted is given back"


def test_what_refuses_a_dropped_request_refuses_no_other() -> None:
    """A record with acks = 0 of a known id was lost with its connection's last bytes."""
    shell = held_behind_a_fetch(shared_of())
    shell.session.pace.mute(shell.now_ms + 20_000.0, shell.now_ms, None)
    shell.advance(8_000.0)
    assert is_in(State.MUTED, shell), "its time is over, and it is not answered yet"
    behind = produce_by(KNOWN_ID, acks=0)
    shell.client_sends(behind)
    shell.client_leaves()
    shell.advance(15_000.0)
    assert (bytes(shell.to_broker), bytes(shell.to_client)) == (behind, b"")


def test_what_a_request_was_granted_is_given_back_where_the_guard_of_the_own_topic_refuses_it() -> None:
    """While it waited for its ids, its topic turned out to be the quota topic, made anew."""
    own_topic = OwnTopic("quotas", frozenset(), b"q" * 16)
    own_topic.learn(bytes(range(16)), "orders")
    plain = shared_of()
    shared = SharedState(plain.quotas, plain.recorder, producer_ids=plain.producer_ids, own_topic=own_topic)
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    batch = record_batch(b"x", producer_id=KNOWN_ID, epoch=0, sequence=0)
    shell.client_sends(produce({"orders": [(0, batch)]}))
    (principal,) = shared.producer_ids.quota.principals()
    principal.main.restore(0.0, shell.now_ms)
    batch = record_batch(b"x", producer_id=100, epoch=0, sequence=0)
    shell.client_sends(produce({TOPIC_ID: [(0, batch)]}, version=13))
    assert is_in(State.HOLDING, shell)
    own_topic.is_known_as(bytes(range(16)))
    shell.to_broker.clear()
    serve(shell, 1_500.0)
    assert is_in(State.READING, shell)
    assert not shell.to_broker
    assert principal.main.reserved == 0
    shell.client_sends(produce_by(*range(200, 300)))
    assert not shell.to_broker
    assert is_in(State.HOLDING, shell)


def test_a_fetch_that_had_its_turn_and_is_refused_by_that_guard_gives_it_back() -> None:
    """The next Fetch went at once in its place, for whatever is owed."""
    own_topic = OwnTopic("quotas", frozenset(), b"q" * 16)
    own_topic.learn(bytes(range(16)), "orders")
    indebted = fetch_debt(debt_ms=1_000.0)
    shared = SharedState(indebted.quotas, indebted.recorder, own_topic=own_topic)
    shell = shell_of(shared)
    body: Struct = {"maxBytes": 1_000, "topics": [{"topicId": TOPIC_ID, "partitions": [{"partition": 0}]}]}
    shell.client_sends(request(FETCH, 13, body))
    assert is_in(State.HOLDING, shell)
    own_topic.is_known_as(bytes(range(16)))
    shell.advance(1_500.0)
    assert not shell.to_broker
    (sensor,) = shell.session.sensors
    queue = sensor.fetch_queue()
    assert (len(queue), queue.reserved_bytes) == (0, 0.0)
    assert not shell.session._throttling.is_fetch_held


def test_what_was_refused_for_its_bytes_and_dropped_has_no_other_refused() -> None:
    limits = QuotaLimits([(USERS, {"producer_byte_rate": 1_000.0})], refusing=[USERS])
    shared = SharedState(QuotaManager(limits), Recorder(), producer_ids=ProducerIds(SETTINGS))
    shell, neighbour = shell_of(shared), shell_of(shared)
    neighbour.client_sends(produce_of(20_000))
    shell.client_sends(produce_of(200, correlation_id=2))
    assert is_in(State.HOLDING, shell)
    shell.session.pace.mute(shell.now_ms + 20_000.0, shell.now_ms, None)
    shell.advance(10_000.0)
    assert is_in(State.MUTED, shell), "it has been refused, and is not answered yet"
    behind = produce_of(200, acks=0, correlation_id=3)
    shell.client_sends(behind)
    shell.client_leaves()
    shell.advance(60_000.0)
    assert (bytes(shell.to_broker), bytes(shell.to_client)) == (behind, b"")
