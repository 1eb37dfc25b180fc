"""Delegation tokens belong to their owners, learned from what passes; bounded, whoever makes them."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.sasl_observer import PrincipalChanged, SaslWatch
from sluice.proxy.session.session import Session
from sluice.proxy.session.token_owners import MAX_TOKENS, MAX_TOKENS_OF_OWNER, TokenOwners
from sluice.quotas.entity import DELEGATION_TOKEN_USER
from testkit.frames.frames import METADATA, answer, request
from testkit.proxy.playbook import Shell, limits_of, shared_of
from testkit.proxy.sasl_events import (
    ACCEPTED,
    CHALLENGE,
    PROOF,
    feed,
    handshake,
    handshake_answer,
    message,
    scram,
)
from testkit.proxy.sasl_events import answer as answer_to


def created(version: int, *, error: int = 0, kind: str = "User", owner: str = "alice") -> bytes:
    body: Struct = {
        "errorCode": error,
        "principalType": kind,
        "principalName": owner,
        "tokenId": "t-1",
        "hmac": "00",
    }
    return answer(38, version, body)


def described(version: int, owners: dict[str, str]) -> bytes:
    tokens = [
        {"principalType": "User", "principalName": owner, "tokenId": token, "hmac": "00"}
        for token, owner in owners.items()
    ]
    return answer(41, version, {"tokens": tokens})  # type: ignore[dict-item]


def seen(api_key: int, version: int, frame: bytes, *, step: int = 1_000_000) -> TokenOwners:
    """What a session learns from an answer that passes, in parts of `step` bytes."""
    shared = shared_of(limits_of())
    shell = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    shell.client_sends(request(api_key, version))
    for at in range(0, len(frame), step):
        shell.broker_sends(frame[at : at + step])
    assert bytes(shell.to_client) == frame
    return shared.token_owners


@pytest.mark.parametrize("version", readable_versions(ApiKey.CREATE_DELEGATION_TOKEN))
@pytest.mark.parametrize("step", [1, 7, 1_000_000])
def test_a_token_that_is_made_is_its_owners(version: int, step: int) -> None:
    assert seen(38, version, created(version), step=step).owner_of("t-1") == "alice"


@pytest.mark.parametrize("version", readable_versions(ApiKey.DESCRIBE_DELEGATION_TOKEN))
def test_described_tokens_are_their_owners(version: int) -> None:
    found = seen(41, version, described(version, {"a": "alice", "b": "bob", "c": "alice"}))
    assert [found.owner_of(token) for token in "abcd"] == ["alice", "bob", "alice", None]


@pytest.mark.parametrize("fault", [{"error": 61}, {"kind": "Group"}])
def test_a_refusal_and_what_is_no_user_teach_nothing(fault: dict[str, object]) -> None:
    assert len(seen(38, 3, created(3, **fault))) == 0  # type: ignore[arg-type]


def test_an_answer_that_cannot_be_read_passes_and_teaches_nothing() -> None:
    whole = created(3)
    broken = (len(whole) - 8).to_bytes(4, "big") + whole[4:-4]
    assert len(seen(38, 3, broken)) == 0


def test_an_owner_with_too_many_tokens_forgets_his_own_oldest_and_nobody_elses() -> None:
    owners = TokenOwners()
    owners.learn("of-bob", "bob")
    for number in range(MAX_TOKENS_OF_OWNER + 5):
        owners.learn(f"t-{number}", "alice")
    assert len(owners) == MAX_TOKENS_OF_OWNER + 1
    assert owners.owner_of("of-bob") == "bob"
    assert [owners.owner_of(f"t-{number}") for number in (4, 5)] == [None, "alice"]


def test_with_all_places_taken_the_oldest_makes_room() -> None:
    owners = TokenOwners()
    for number in range(MAX_TOKENS + 10):
        owners.learn(f"t-{number}", f"user-{number}")
    assert len(owners) == MAX_TOKENS
    assert [owners.owner_of(f"t-{number}") for number in (9, 10)] == [None, "user-10"]


def test_a_token_given_to_another_owner_is_his() -> None:
    owners = TokenOwners()
    owners.learn("t", "alice")
    owners.learn("t", "bob")
    assert (owners.owner_of("t"), len(owners)) == ("bob", 1)


# Logins ---------------------------------------------------------------------------------------------------


def logged_in(watch: SaslWatch, token: str) -> str | None:
    """The user after a login with the token, which the broker takes."""
    said = message(scram(token, ",tokenauth=true")), answer_to(CHALLENGE), message(PROOF), answer_to(ACCEPTED)
    for event in (handshake("SCRAM-SHA-256", 1), handshake_answer(version=1), *said):
        feed(watch, event)
    return watch.user


def test_a_login_with_a_known_token_is_its_owners_and_with_another_everybodys() -> None:
    owners = TokenOwners()
    owners.learn("t", "alice")
    assert logged_in(SaslWatch("sub", owners), "t") == "alice"
    assert logged_in(SaslWatch("sub", owners), "u") == DELEGATION_TOKEN_USER


def test_who_was_not_known_is_named_with_the_next_login() -> None:
    owners = TokenOwners()
    watch = SaslWatch("sub", owners)
    assert logged_in(watch, "t") == DELEGATION_TOKEN_USER
    owners.learn("t", "alice")
    assert logged_in(watch, "t") == "alice"


def test_who_is_named_stays_so_with_a_token_that_is_forgotten() -> None:
    owners = TokenOwners()
    owners.learn("t", "alice")
    watch = SaslWatch("sub", owners)
    assert logged_in(watch, "t") == "alice"
    assert logged_in(watch, "forgotten") == "alice"


def test_a_token_of_another_owner_ends_the_connection() -> None:
    owners = TokenOwners()
    owners.learn("t", "alice")
    owners.learn("u", "bob")
    watch = SaslWatch("sub", owners)
    assert logged_in(watch, "t") == "alice"
    with pytest.raises(PrincipalChanged):
        logged_in(watch, "u")


def test_nobody_becomes_a_reserved_user_by_his_tokens_owner() -> None:
    owners = TokenOwners()
    owners.learn("t", "<unknown>")
    assert logged_in(SaslWatch("sub", owners), "t") == DELEGATION_TOKEN_USER


def test_an_answer_that_is_too_large_to_keep_goes_on_and_nothing_is_learnt_of_it() -> None:
    frame = described(3, {f"t-{number}": "alice" for number in range(30_000)})
    assert len(frame) > WHOLE_MAX_BYTES
    assert seen(41, 3, frame, step=60_000).owner_of("t-1") is None


# What it costs -------------------------------------------------------------------------------------------

KIB = 1_024
BRAKE_MS_PER_KIB = 0.3
ASKED = request(41, 3)
BEHIND = request(METADATA, 9, correlation_id=2)


def shell() -> Shell:
    return Shell(Session(shared_of(limits_of()), SessionPolicy(), "10.0.0.1"))


@pytest.mark.parametrize("version", readable_versions(ApiKey.DESCRIBE_DELEGATION_TOKEN))
def test_the_longest_answer_that_is_kept_is_learned_from(version: int) -> None:
    owners = {f"t-{number}": f"user-{number % 9}" for number in range(6_000)}
    frame = described(version, owners)
    assert WHOLE_MAX_BYTES / 2 < len(frame) <= WHOLE_MAX_BYTES
    found = seen(41, version, frame, step=100_000)
    assert {token: found.owner_of(token) for token in owners} == owners


def test_nothing_is_begun_behind_a_question_for_tokens_before_its_answer() -> None:
    """20 bytes bring half a MiB, and the next such question brought another."""
    one = shell()
    one.client_sends(ASKED + request(38, 3) + BEHIND)
    assert one.to_broker == ASKED
    one.broker_sends(described(3, {"t": "alice"}))
    assert one.to_broker == ASKED + request(38, 3)
    one.broker_sends(created(3))
    assert one.to_broker == ASKED + request(38, 3) + BEHIND
    assert one.state is State.READING


def test_who_asks_for_many_tokens_waits_by_their_answers_length() -> None:
    one = shell()
    frame = described(3, {f"t-{number}": "alice" for number in range(5_000)})
    one.client_sends(ASKED * 2 + BEHIND)
    one.broker_sends(frame)
    assert one.to_client == frame
    assert one.state is State.MUTED
    brake_ms = len(frame) / KIB * BRAKE_MS_PER_KIB
    one.advance(brake_ms - 1)
    assert one.to_broker == ASKED
    one.advance(2)
    assert one.to_broker == ASKED * 2


def test_one_too_large_to_keep_is_not_read_and_keeps_nobody_waiting() -> None:
    one = shell()
    frame = described(3, {f"t-{number}": "alice" for number in range(30_000)})
    one.client_sends(ASKED + BEHIND)
    for at in range(0, len(frame), 60_000):
        one.broker_sends(frame[at : at + 60_000])
    assert one.to_client == frame
    assert one.to_broker == ASKED + BEHIND
    assert one.state is State.READING
