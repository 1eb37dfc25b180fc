"""Answers to the proxy's own questions: read in pieces, with a brake behind them, and charged to who asked.

4 MB of them stand for a CreatePartitions of 1.6 kB: 100 topics of 1,000 partitions each.
"""

from __future__ import annotations

import pytest

from sluice.protocol.codec.wire import Value
from sluice.proxy.session.answer_pieces import PIECE_BYTES
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.errors import BrokerMalformed
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import answer, decoded, request
from testkit.frames.mutation_frames import METADATA, NO_ID, create, delete, grow, grown, question, sizes
from testkit.proxy.mutation_session import EVERYBODY, KEY, shell_of
from testkit.proxy.playbook import RECEIVE_BYTES, Shell, shared_of

MANY = {f"topic-{number}": (number + 1, 400) for number in range(10)}


def timed_shell() -> Shell:
    limits = QuotaLimits([(EVERYBODY, {KEY: 2.0, "request_percentage": 1.0})])
    return Shell(Session(shared_of(limits), SessionPolicy(), "10.0.0.1"))


def test_others_are_served_behind_each_piece() -> None:
    shell = shell_of()
    shell.client_sends(delete(list(MANY)))
    whole = sizes(MANY)
    assert 4 * PIECE_BYTES < len(whole) < RECEIVE_BYTES
    looks = 0
    buf, session = bytearray(whole), shell.session
    while buf:
        cut = session.broker_data(buf, 0, len(buf), shell.now_ms)
        assert 0 < cut <= PIECE_BYTES + 8
        assert session.edits == [(0, cut, b"")], "nothing of it goes on"
        assert session.has_more_answers is (cut < len(buf))
        session.edits.clear()
        del buf[:cut]
        looks += 1
    assert looks == -(-(len(whole) - 8) // PIECE_BYTES)


def test_all_of_it_is_read() -> None:
    shell = shell_of(1_000.0)
    shell.client_sends(delete(list(MANY)))
    shell.broker_sends(sizes(MANY))
    shell.advance(1_000.0)
    assert bytes(shell.to_broker) == question(list(MANY)) + delete(list(MANY))
    assert shell.sensor(QuotaKind.CONTROLLER_MUTATION).charged == 4_000


def test_the_request_waits_behind_much_that_was_read_for_it() -> None:
    """A quarter of a millisecond for each KiB, unless it comes to less than 50 ms."""
    shell = shell_of()
    shell.client_sends(grow(dict.fromkeys(MANY, 1)))
    whole = sizes({name: (number, 1_000) for name, (number, _) in MANY.items()})
    shell.broker_sends(whole)
    assert shell.state is State.MUTED
    assert shell.session.pace.throttled_by is None
    brake_ms = (len(whole) - 8) / 1_024 * 0.25
    assert shell.session.pace.wake_at_ms == pytest.approx(shell.now_ms + brake_ms)
    shell.advance(brake_ms)
    assert bytes(shell.to_broker) == question(list(MANY)) + grow(dict.fromkeys(MANY, 1))


def test_little_is_read_without_a_brake() -> None:
    shell = shell_of()
    shell.client_sends(grow({"a": 1}))
    shell.broker_sends(sizes({"a": (1, 1_000)}))
    assert shell.state is State.READING


def test_each_question_is_charged_as_the_clients_own_would_be() -> None:
    names = [f"t{number}" for number in range(200)]
    told = [sizes(dict.fromkeys(names[at : at + 100], (5, 1))) for at in (0, 100)]
    shell = timed_shell()
    shell.client_sends(grow(dict.fromkeys(names, 1)))
    for each in told:
        shell.now_ms += 5.0
        shell.broker_sends(each)
        shell.advance(8_000.0)
    before = shell.sensor(QuotaKind.REQUEST).charged
    own = timed_shell()
    for at, each in zip((0, 100), told, strict=True):
        asked: list[Value] = [{"topicId": NO_ID, "name": name} for name in names[at : at + 100]]
        own.client_sends(request(METADATA, 12, {"topics": asked, "allowAutoTopicCreation": False}))
        own.now_ms += 5.0
        own.broker_sends(each)
        own.advance(8_000.0)
    assert before == pytest.approx(own.sensor(QuotaKind.REQUEST).charged)
    assert before > 0


def test_who_owes_request_time_sits_it_out_once_behind_all_questions() -> None:
    """Behind each it was a window more: a DeleteTopics of 3,500 topics took 35 s, beyond what Java waits."""
    names = [f"t{number}" for number in range(350)]
    shell = timed_shell()
    shell.client_sends(grow(dict.fromkeys(names, 1)))
    shell.sensor(QuotaKind.REQUEST).charge(5_000.0, shell.now_ms)
    for begin in range(0, len(names), 100):
        shell.to_broker.clear()
        shell.broker_sends(sizes(dict.fromkeys(names[begin : begin + 100], (5, 1))))
    assert bytes(shell.to_broker) == grow(dict.fromkeys(names, 1))
    shell.broker_sends(grown(dict.fromkeys(names, 37)))
    assert shell.session.pace.throttled_by is QuotaKind.REQUEST


def test_in_shadow_mode_nothing_waits_behind_what_was_read() -> None:
    shell = shell_of(shadow=True)
    shell.client_sends(grow(dict.fromkeys(MANY, 1)))
    shell.broker_sends(sizes(MANY))
    assert bytes(shell.to_broker) == question(list(MANY)) + grow(dict.fromkeys(MANY, 1))


def test_in_shadow_mode_what_is_to_be_created_is_not_asked_about() -> None:
    shell = shell_of(shadow=True)
    shell.client_sends(create({"a": 50}))
    assert bytes(shell.to_broker) == create({"a": 50})


def test_a_charged_answer_is_read_however_it_is_cut() -> None:
    shell = timed_shell()
    shell.client_sends(grow({"a": 4}))
    shell.sensor(QuotaKind.REQUEST).charge(5_000.0, shell.now_ms)
    for byte in sizes({"a": (1, 40)}):
        shell.broker_sends(bytes([byte]))
    shell.advance(1_000.0)
    assert not shell.to_client
    shell.broker_sends(grown({"a": 37}))
    told = decoded("response", 37, 3, bytes(shell.to_client)).body["throttleTimeMs"]
    assert isinstance(told, int)
    assert told > 0, "what its questions cost is told with its answer"


def test_a_long_answer_is_charged_by_its_head_once() -> None:
    shell = timed_shell()
    shell.client_sends(grow(dict.fromkeys(MANY, 1)))
    whole = sizes(MANY)
    charged = set()
    for at in range(0, len(whole), 50_000):
        shell.broker_sends(whole[at : at + 50_000])
        charged.add(shell.sensor(QuotaKind.REQUEST).charged)
    assert len(charged) == 1


def test_one_without_room_for_what_it_must_have_ends_the_connection() -> None:
    shell = timed_shell()
    shell.client_sends(grow({"a": 4}))
    shell.sensor(QuotaKind.REQUEST).charge(5_000.0, shell.now_ms)
    with pytest.raises(BrokerMalformed):
        shell.broker_sends(answer(METADATA, 12)[:3] + b"\x04" + answer(METADATA, 12)[4:8])
