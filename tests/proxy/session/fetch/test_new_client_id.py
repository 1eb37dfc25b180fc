"""A connection that takes another client id fetches from another bucket: nothing of the old one counts."""

from __future__ import annotations

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SharedState
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import FETCH, answer, fetch, fetch_answer_of, max_bytes_of
from testkit.proxy.playbook import Shell, limits_of, shared_of, shell_of

EMPTY = answer(FETCH, 12)


def by_client_id(rate: int = 1_000) -> SharedState:
    """Each client id has a bucket of its own, of one second."""
    limits = QuotaLimits([(QuotaEntity(None, DEFAULT), {"consumer_byte_rate": rate})])
    return SharedState(QuotaManager(limits, burst_s=1.0), Recorder())


def put_in_debt(shared: SharedState, client_id: str, frame_bytes: int) -> Shell:
    """By a connection that fetched so much."""
    shell = shell_of(shared)
    shell.client_sends(fetch(client_id=client_id))
    shell.broker_sends(fetch_answer_of(frame_bytes))
    return shell


def cut_short(shared: SharedState) -> Shell:
    """A connection whose last poll was cut short for another that waits for the same bucket.

    All call themselves `old`: one has brought it into debt, one waits, and so does this one, whose turn comes
    first.
    """
    put_in_debt(shared, "old", 2_000)
    one, other = shell_of(shared), shell_of(shared)
    one.client_sends(fetch(client_id="old"))
    other.client_sends(fetch(client_id="old"))
    one.advance(1_100)
    assert one.to_broker, "its turn has come"
    one.broker_sends(EMPTY)
    return one


def test_its_last_poll_was_of_the_old_bucket_and_delays_nothing_in_the_new_one() -> None:
    """`new` owes 200 ms; the poll that was cut short would come again only after half a second."""
    shared = by_client_id()
    one = cut_short(shared)
    debtor = shell_of(shared)
    debtor.now_ms = one.now_ms
    debtor.client_sends(fetch(client_id="new"))
    debtor.broker_sends(fetch_answer_of(1_200))
    one.client_sends(fetch(client_id="new"))
    assert (one.state, one.session.pace.wake_at_ms - one.now_ms) == (State.HOLDING, 200)


def test_the_batches_that_it_brought_from_the_old_bucket_say_nothing_of_those_in_the_new_one() -> None:
    """From `old` came one of 40 kB, so that it would be granted whole ones; of `new` nothing is known yet."""
    shared = by_client_id(100_000)
    one = put_in_debt(shared, "old", 40_000)
    for client_id in ("old", "new"):
        one.to_broker.clear()
        one.client_sends(fetch(client_id=client_id))
        granted = max_bytes_of(FETCH, 12, one.to_broker)
        assert (granted == 100_000) == (client_id == "new")
        one.broker_sends(EMPTY)


def test_under_a_limit_of_its_user_another_client_id_changes_nothing() -> None:
    """It goes on being granted whole batches of what it brought, though others brought smaller ones since."""
    shared = shared_of(limits_of(fetch_rate=100_000))
    one = put_in_debt(shared, "old", 40_000)
    other = shell_of(shared)
    other.now_ms = one.now_ms + 1_000.0
    for number in range(40):
        other.client_sends(fetch(correlation_id=number))
        other.broker_sends(fetch_answer_of(200, correlation_id=number))
        other.advance(100.0)
    one.now_ms = other.now_ms
    one.to_broker.clear()
    one.client_sends(fetch(client_id="new"))
    assert 30_000 < max_bytes_of(FETCH, 12, one.to_broker) < 100_000
