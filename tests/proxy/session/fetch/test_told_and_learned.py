"""What a Fetch's answer tells beside others that wait, and what the next is granted for what it brought."""

from __future__ import annotations

from testkit.frames.frames import FETCH, fetch, fetch_answer_of, max_bytes_of, throttle_of
from testkit.proxy.playbook import limits_of, shared_of, shell_of


def test_an_answer_tells_the_wait_behind_those_who_wait_already_not_its_own_mute_alone() -> None:
    """2,500 B at 1,000 B/s, a second of them saved: 1,500 ms for itself; two others have the next turns."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    one, *others = (shell_of(shared) for _ in range(3))
    one.client_sends(fetch())
    for other in others:
        other.client_sends(fetch())
    one.broker_sends(fetch_answer_of(2_500))
    alone = shell_of(shared_of(limits_of(fetch_rate=1_000)))
    alone.client_sends(fetch())
    alone.broker_sends(fetch_answer_of(2_500))
    assert throttle_of(FETCH, 12, alone.to_client) == 1_500
    assert throttle_of(FETCH, 12, one.to_client) > 1_500


def test_the_size_of_batches_is_learned_from_an_answer_that_owes_nothing() -> None:
    """Of 500 B that are left a batch of some 440 is asked for, not one that is cut at 500."""
    shell = shell_of(shared_of(limits_of(fetch_rate=1_000)))
    shell.client_sends(fetch())
    shell.broker_sends(fetch_answer_of(500))
    assert throttle_of(FETCH, 12, shell.to_client) == 0
    shell.to_broker.clear()
    shell.client_sends(fetch())
    assert 400 < max_bytes_of(FETCH, 12, shell.to_broker) < 500
