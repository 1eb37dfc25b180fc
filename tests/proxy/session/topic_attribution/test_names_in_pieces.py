"""Long answers to Metadata: read for topics' names piece by piece, and nothing goes on that is not read."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sluice.protocol.codec.wire import uuid_text
from sluice.proxy.session.answer_pieces import PIECE_BYTES
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.usage.flow import TopicNames
from testkit.frames.frames import METADATA, answer, request
from testkit.proxy.gateway import broker_map
from testkit.proxy.playbook import Shell, limits_of, shared_of

ASKED = request(METADATA, 12, {"topics": None}, correlation_id=7)
TOPICS = 3_000


def id_of(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


def answer_of(topics: int = TOPICS, brokers: int = 1, partitions: int = 3) -> bytes:
    told: Any = [
        {"name": f"topic-{number}", "topicId": uuid_text(id_of(number)), "partitions": [{}] * partitions}
        for number in range(topics)
    ]
    found: Any = [
        {"nodeId": 1, "host": f"broker-{number}.internal", "port": 9092} for number in range(brokers)
    ]
    return answer(METADATA, 12, {"brokers": found, "topics": told}, correlation_id=7)


class Reading:
    """A connection on whose answers names are read."""

    def __init__(
        self, *, own_topic: bool = True, gateway: bool = False, names: TopicNames | None = None
    ) -> None:
        self.names = names or TopicNames()
        self.own = OwnTopic("__sluice.quotas", frozenset()) if own_topic else None
        shared = replace(shared_of(limits_of()), topic_names=self.names, own_topic=self.own)
        policy = SessionPolicy(broker_map=broker_map() if gateway else None)
        self.shell = Shell(Session(shared, policy, "10.0.0.1"))

    def looks(self, answered: bytes) -> list[int]:
        """How many bytes went on at each look at an answer that came at once."""
        session = self.shell.session
        asked = bytearray(ASKED)
        assert session.client_data(asked, 0, len(asked), 0.0) == len(asked)
        buf, cuts = bytearray(answered), [0]
        while cuts[-1] < len(buf):
            cuts.append(session.broker_data(buf, cuts[-1], len(buf), 0.0))
            assert all(stop <= cuts[-1] for _, stop, _ in session.edits)
            session.edits.clear()
            assert session.has_more_answers is (cuts[-1] < len(buf))
        assert session.in_flight == 0
        assert session.bytes_to_client == len(answered)
        assert buf == answered
        return [after - before for before, after in pairwise(cuts)]


@pytest.mark.parametrize("own_topic", [True, False])
def test_each_look_reads_a_piece_and_all_names_are_known_in_the_end(own_topic: bool) -> None:
    """An answer of 1 MiB held all clients up for 0.17 s, and for twice that with a quota topic."""
    reading = Reading(own_topic=own_topic)
    looks = reading.looks(answer_of())
    assert len(looks) > 5
    assert max(looks) <= PIECE_BYTES + 8
    assert all(reading.names.name(id_of(number)) == f"topic-{number}" for number in range(TOPICS))
    if reading.own is not None:
        assert all(reading.own.error_of(id_of(number)) == 0 for number in range(TOPICS))


def test_a_name_is_known_before_what_tells_it_has_gone_on() -> None:
    reading = Reading()
    session, answered = reading.shell.session, answer_of()
    reading.shell.client_sends(ASKED)
    buf, pos = bytearray(answered), 0
    while pos < len(buf):
        pos = session.broker_data(buf, pos, len(buf), 0.0)
        gone = answered[:pos]
        whole = sum(gone.count(b"topic-%d\0" % number) for number in range(0, TOPICS, 100))
        known = sum(reading.names.name(id_of(number)) is not None for number in range(0, TOPICS, 100))
        assert known >= whole - 1, "but for one that has begun"


def test_the_same_answer_again_is_not_read_again() -> None:
    reading = Reading(own_topic=False)
    assert len(reading.looks(answer_of())) > 5
    assert len(Reading(own_topic=False, names=reading.names).looks(answer_of())) == 1


def test_of_one_that_comes_in_parts_all_is_read() -> None:
    reading = Reading()
    answered = answer_of()
    reading.shell.client_sends(ASKED)
    for start in range(0, len(answered), 70_000):
        reading.shell.broker_sends(answered[start : start + 70_000])
    assert reading.shell.to_client == answered
    assert all(reading.names.name(id_of(number)) == f"topic-{number}" for number in range(TOPICS))


def test_an_answer_whose_client_left_before_its_end_is_read_from_the_next() -> None:
    """Its rest was known to nobody, and taken for read."""
    first = Reading(own_topic=False)
    first.shell.client_sends(ASKED)
    answered = bytearray(answer_of())
    first.shell.session.broker_data(answered, 0, len(answered), 0.0)
    assert first.names.name(id_of(TOPICS - 1)) is None
    assert len(Reading(own_topic=False, names=first.names).looks(answer_of())) > 5
    assert first.names.name(id_of(TOPICS - 1)) == f"topic-{TOPICS - 1}"


@pytest.mark.parametrize("topics", [TOPICS, 10 * TOPICS])
def test_who_asks_the_same_again_waits_once_however_its_answer_comes(topics: int) -> None:
    """Each client of a large cluster was muted at each of its questions: a heartbeat waited behind them."""
    reading = Reading(own_topic=False)
    shell, answered = reading.shell, answer_of(topics)
    waits_ms = []
    for parts in (65_536, 50_000, 70_001):
        shell.client_sends(ASKED)
        for start in range(0, len(answered), parts):
            shell.broker_sends(answered[start : start + parts])
        begun_ms = shell.now_ms
        while shell.state is State.MUTED:
            shell.advance(1)
        waits_ms.append(shell.now_ms - begun_ms)
    assert waits_ms[0] >= len(answered) / 1_024 * 0.5 - 60
    assert waits_ms[1:] == [0, 0]
    assert shell.to_client == answered * 3
    assert all(reading.names.name(id_of(number)) == f"topic-{number}" for number in range(topics))


@pytest.mark.parametrize("brokers", [3, 2_000])
def test_a_gateways_addresses_are_replaced_all_the_same(brokers: int) -> None:
    reading = Reading(gateway=True)
    answered = answer_of(brokers=brokers)
    looks = reading.looks(answered)
    assert len(looks) > 5
    assert reading.names.name(id_of(TOPICS - 1)) == f"topic-{TOPICS - 1}"


def test_one_that_cannot_be_read_passes_as_it_is() -> None:
    answered = bytearray(answer_of())
    at = answered.index(b"topic-1000")
    answered[at - 1 : at + 9] = b"\xff" * 10
    reading = Reading()
    reading.shell.client_sends(ASKED)
    reading.shell.broker_sends(bytes(answered))
    assert reading.shell.to_client == answered
    assert reading.names.name(id_of(900)) == "topic-900"
    assert reading.names.name(id_of(2_000)) is None
    reading.shell.advance(60_000)
    assert reading.shell.state is State.READING


def test_many_short_new_ones_wait_as_one_that_is_as_long() -> None:
    """Whoever makes up a name makes an answer that nobody has read yet; it takes no rights."""
    reading = Reading()
    shell = reading.shell
    begun_ms, sent_bytes = shell.now_ms, 0
    for number in range(400):
        shell.client_sends(ASKED)
        while shell.state is State.MUTED:
            shell.advance(1)
        made_up: Any = [{"errorCode": 3, "name": f"{number}-{each}"} for each in range(50)]
        answered = answer(METADATA, 12, {"topics": made_up}, correlation_id=7)
        shell.broker_sends(answered)
        sent_bytes += len(answered)
    assert shell.now_ms - begun_ms >= sent_bytes / 1_024 * 0.5 - 60


def test_what_clients_ask_when_they_begin_delays_nobody() -> None:
    reading = Reading()
    reading.shell.client_sends(ASKED)
    reading.shell.broker_sends(answer_of(100))
    assert reading.shell.state is State.READING
