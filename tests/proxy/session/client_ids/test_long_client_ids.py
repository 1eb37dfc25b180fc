"""Client ids as long as a client may send: what a session keeps of them is short, and none is another's."""

from __future__ import annotations

import pytest

from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.limits.limits import QuotaLimits
from testkit.access_log.attribution import flow_of, logged
from testkit.frames.frames import (
    API_VERSIONS,
    HEARTBEAT,
    JOIN_GROUP,
    answer,
    fetch,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
)
from testkit.proxy.playbook import Shell, shared_of

MOST_KEPT = 256 + 33
"""characters"""


def long_id(number: int) -> str:
    """As long as there is, with one character that makes Python keep four bytes for each."""
    return "\U0001f600" + "x" * (32_767 - 4 - 6) + f"{number:06d}"


def shell_of(shared: SharedState, user: str = "alice") -> Shell:
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1", user))


def heartbeat(client_id: str) -> bytes:
    return request(HEARTBEAT, 3, {"groupId": "g", "memberId": "m"}, client_id=client_id)


def test_a_connection_that_has_not_logged_in_has_its_long_client_ids_kept_short() -> None:
    shell = logged(authentication_required=True)
    for number in range(64):
        shell.client_sends(request(API_VERSIONS, 0, client_id=long_id(number)))
        shell.broker_sends(answer(API_VERSIONS, 0, {"errorCode": 0, "apiKeys": []}))
    assert shell.cause is None
    flows = shell.session._requests._flows
    assert flows is not None
    assert len(flows._flows) == 64, "each is apart"
    assert max(len(flow.client_id) for flow in flows._flows.values()) <= MOST_KEPT
    assert len(shell.session.client_id) <= MOST_KEPT


def test_what_is_told_of_a_long_client_id_is_its_beginning() -> None:
    shell = logged()
    shell.client_sends(heartbeat(long_id(7)))
    shell.broker_sends(answer(HEARTBEAT, 3, {"errorCode": 0}))
    assert shell.records[-1].client_id[:256] == long_id(7)[:256]
    assert flow_of(shell).named_key()[2] == long_id(7)[:256]


def test_requests_in_flight_keep_their_long_client_ids_short() -> None:
    shell = shell_of(shared_of(QuotaLimits()))
    for number in range(20):
        shell.client_sends(heartbeat(long_id(number)))
    kept = {entry[3].client_id for entry in shell.session._in_flight}
    assert (len(kept), max(map(len, kept)) <= MOST_KEPT) == (20, True)


def test_long_client_ids_that_differ_at_their_ends_have_a_bucket_each_of_a_short_name() -> None:
    shared = shared_of(QuotaLimits([(QuotaEntity(DEFAULT, DEFAULT), {"producer_byte_rate": 10**9})]))
    shell = shell_of(shared)
    for number in (1, 2, 3, 1):
        shell.client_sends(produce_of(40_000 + number, client_id=long_id(number)))
    names = [sensor.entity.client_id for sensor in shared.quotas.sensors()]
    assert [sensor.charged for sensor in shared.quotas.sensors()] == [80_002, 40_002, 40_003]
    assert all(isinstance(name, str) and len(name) <= MOST_KEPT for name in names)
    other = shell_of(shared)
    other.client_sends(produce_of(50_000, client_id=long_id(2)))
    assert [sensor.charged for sensor in shared.quotas.sensors()] == [80_002, 90_002, 40_003]


def test_a_limit_for_a_long_client_id_or_prefix_is_found_and_an_exempt_rule_too() -> None:
    shared = shared_of(
        QuotaLimits(
            [
                (QuotaEntity("alice", long_id(1)), {"producer_byte_rate": 10**9}),
                (QuotaEntity("alice", Prefix(long_id(2)[:400])), {"producer_byte_rate": 10**9}),
                (QuotaEntity("bob", DEFAULT), {"producer_byte_rate": 1}),
            ],
            exempt=[ExemptRule("bob", None, long_id(3))],
        )
    )
    alice, bob = shell_of(shared), shell_of(shared, "bob")
    for number in (1, 2):
        alice.client_sends(produce_of(40_000, client_id=long_id(number)))
    bob.client_sends(produce_of(40_000, client_id=long_id(3)))
    assert not bob.is_delayed
    charged = {sensor.level.value: sensor.charged for sensor in shared.quotas.sensors()}
    assert charged == {"user_client": 40_000, "user_client_prefix": 40_000}


def test_a_limit_that_names_a_long_client_id_applies_from_the_next_request_on() -> None:
    shared = shared_of(QuotaLimits([(QuotaEntity(None, DEFAULT), {"producer_byte_rate": 10**9})]))
    shell = shell_of(shared)
    shell.client_sends(produce_of(40_000, client_id=long_id(1)))
    limits = QuotaLimits([(QuotaEntity(None, long_id(1)), {"producer_byte_rate": 10**9})])
    shared.quotas.reload(limits, shell.now_ms)
    shell.client_sends(produce_of(50_000, client_id=long_id(1)))
    ((name, charged),) = [(one.entity.client_id, one.charged) for one in shared.quotas.sensors()]
    assert (name == long_id(1), charged) == (True, 50_000)


def test_a_group_members_long_client_id_is_kept_short_and_its_fetches_find_its_timeout() -> None:
    shared = shared_of(QuotaLimits())
    for number in (1, 2):
        shell = shell_of(shared)
        body: Struct = {"groupId": "g", "sessionTimeoutMs": 4_000 * number, "protocolType": "consumer"}
        shell.client_sends(request(JOIN_GROUP, 5, body, client_id=long_id(number)))
        shell.broker_sends(answer(JOIN_GROUP, 5, {"errorCode": 0}))
        fetching = shell_of(shared)
        fetching.client_sends(fetch(client_id=long_id(number)))
        assert fetching.session._throttling.delay_limit_ms(1) == 2_000 * number
    members = shared.session_timeouts._entries._users["alice"]
    assert (len(members), max(len(name) for name, _ in members) <= MOST_KEPT) == (2, True)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_long_begin_of_a_produce_is_read_each_time_and_not_kept(version: int) -> None:
    """By its transactional id, or its client id."""
    shell = logged()
    flows = shell.session._requests._flows
    assert flows is not None
    for number in range(70):
        for client_id, transactional_id in (("app", "y" * 32_000 + str(number)), (long_id(1), "short")):
            frame = produce(
                {"t": [(0, record_batch())]},
                version=version,
                client_id=client_id,
                transactional_id=transactional_id,
            )
            shell.client_sends(frame)
            assert flow_of(shell).named_key()[-1] == "t"
            shell.broker_sends(produce_answer(version=version))
            assert all(len(begin) <= 1_024 for begin in flows.produces._known)
    assert shell.cause is None
    assert len(shell.records) == 140


def test_ordinary_begins_of_a_produce_are_kept() -> None:
    shell = logged()
    for topic in ("a", "x" * 249):
        shell.client_sends(
            produce({topic: [(0, record_batch())]}, client_id="c" * 255, transactional_id="t" * 255)
        )
    flows = shell.session._requests._flows
    assert flows is not None
    assert len(flows.produces) == 2
