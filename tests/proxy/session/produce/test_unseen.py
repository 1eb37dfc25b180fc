"""A held request whose client may have left, which nobody can see: when it goes (wire-semantics 1.6).

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms; the answer budget is 8 s.
"""

from __future__ import annotations

from sluice.proxy.session.connection_states import State
from testkit.frames.frames import produce_answer, produce_of
from testkit.proxy.playbook import Shell, in_debt

AGAIN_MS = 250.0


class Asked:
    """Of the allowance, and what it answers."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.times = 0

    def __call__(self, now_ms: float) -> bool:
        self.times += 1
        return self.answer


def held(debt_bytes: int, request_bytes: int = 200) -> tuple[Shell, float]:
    """The connection, and when the turn of its request comes; its time is that."""
    shell = in_debt(debt_bytes)
    shell.client_sends(produce_of(request_bytes))
    return shell, come(shell)


def come(shell: Shell) -> float:
    """The turn of what is held. Asked again as often as the session says."""
    while not shell.session.is_turn(shell.now_ms):
        shell.now_ms = shell.session.pace.wake_at_ms
    return shell.now_ms


def test_what_goes_ahead_of_the_quota_is_held_on_until_it_may_go() -> None:
    shell, turn_ms = held(100_000)
    session, no, yes = shell.session, Asked(False), Asked(True)
    for _ in range(20):
        assert not session.may_go_unseen(no, shell.now_ms)
        session.hold_on(shell.now_ms + AGAIN_MS, shell.now_ms)
        assert session.pace.wake_at_ms == shell.now_ms + AGAIN_MS
        assert not session.is_turn(shell.now_ms + AGAIN_MS / 2)
        shell.now_ms += AGAIN_MS
        assert session.is_turn(shell.now_ms)
    assert no.times == 20
    assert session.may_go_unseen(yes, shell.now_ms)
    shell.wake()
    assert shell.to_broker == produce_of(200)
    assert shell.sensor().refunded == 0
    assert shell.now_ms == turn_ms + 20 * AGAIN_MS


def test_it_goes_when_the_quota_has_paid_whatever_the_allowance_says() -> None:
    """A debt of 10 s, and an answer budget of 8 s: 2 s later."""
    shell, turn_ms = held(10_000)
    no = Asked(False)
    while not shell.session.may_go_unseen(no, shell.now_ms):
        shell.session.hold_on(shell.now_ms + AGAIN_MS, shell.now_ms)
        shell.now_ms = shell.session.pace.wake_at_ms
        come(shell)
    shell.wake()
    assert shell.to_broker == produce_of(200)
    assert 1_900 < shell.now_ms - turn_ms < 2_100
    assert no.times > 5


def test_what_is_paid_when_its_turn_comes_needs_no_allowance() -> None:
    shell, _ = held(3_000)
    assert shell.session.may_go_unseen(Asked(False), shell.now_ms)


def test_a_connection_that_has_had_an_answer_to_as_much_needs_none() -> None:
    shell, _ = held(1_000_000)
    no = Asked(False)
    assert not shell.session.may_go_unseen(no, shell.now_ms)
    shell.wake()
    shell.client_sends(produce_of(200))
    shell.to_broker.clear()
    come(shell)
    assert not shell.session.may_go_unseen(no, shell.now_ms)  # no answer yet
    shell.broker_sends(produce_answer())
    assert shell.session.may_go_unseen(no, shell.now_ms)
    shell.wake()
    shell.broker_sends(produce_answer())
    shell.client_sends(produce_of(300))
    come(shell)
    assert not shell.session.may_go_unseen(no, shell.now_ms)  # more than it has shown to be there for


def test_what_is_read_ahead_meanwhile_hastens_it_no_more() -> None:
    shell, _ = held(100_000)
    session = shell.session
    session.hold_on(shell.now_ms + AGAIN_MS, shell.now_ms)
    session.arrived(100_000, shell.now_ms)
    assert session.pace.wake_at_ms == shell.now_ms + AGAIN_MS


def test_a_client_that_is_seen_to_have_left_meanwhile_has_its_bytes_given_back() -> None:
    shell, _ = held(100_000)
    shell.session.hold_on(shell.now_ms + AGAIN_MS, shell.now_ms)
    shell.client_leaves()
    shell.wake()
    assert shell.state is State.ENDING
    assert shell.sensor().refunded == 200
    assert not shell.to_broker
