"""A principal counts only once the broker has said yes to exactly that name, and then never changes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.sasl_observer import (
    AuthenticationFailed,
    PrincipalChanged,
    SaslWatch,
)
from sluice.quotas.entity import DELEGATION_TOKEN_USER, UNKNOWN_USER, UNNAMED_USERS
from testkit.proxy.sasl_events import (
    ACCEPTED,
    CHALLENGE,
    EVERY_EXCHANGE,
    NAMED,
    PROOF,
    Event,
    answer,
    exchange,
    feed,
    handshake,
    handshake_answer,
    message,
    oauth,
    plain,
    play,
    scram,
    token,
    token_answer,
)

# --- exchanges that go well


def test_before_a_handshake_nothing_has_begun() -> None:
    watch = SaslWatch()
    assert (watch.user, watch.failed) == (None, False)
    assert (watch.awaiting_broker, watch.in_exchange, watch.raw_tokens) == (False, False, False)


@pytest.mark.parametrize(("mechanism", "version"), NAMED)
def test_the_user_is_known_from_the_brokers_yes_on_and_not_before(mechanism: str, version: int) -> None:
    watch = SaslWatch()
    *before, yes = exchange(mechanism, "alice", version)
    for event in before:
        assert feed(watch, event) is False
        assert watch.user is None
        assert watch.in_exchange
    assert feed(watch, yes) is True
    assert watch.user == "alice"
    assert [watch.in_exchange, watch.awaiting_broker, watch.raw_tokens, watch.failed] == [False] * 4


@pytest.mark.parametrize(("mechanism", "version"), NAMED)
def test_nothing_of_the_client_may_pass_while_the_brokers_answer_is_due(mechanism: str, version: int) -> None:
    watch = SaslWatch()
    for event in exchange(mechanism, "alice", version):
        feed(watch, event)
        assert watch.awaiting_broker is ("answer" not in event.kind)


@pytest.mark.parametrize(("mechanism", "version"), NAMED)
def test_tokens_are_bare_from_the_answer_to_handshake_v0_until_the_yes(mechanism: str, version: int) -> None:
    watch = SaslWatch()
    asked, answered, *others, yes = exchange(mechanism, "alice", version)
    feed(watch, asked)
    assert not watch.raw_tokens
    for event in (answered, *others):
        feed(watch, event)
        assert watch.raw_tokens is (version == 0)
    feed(watch, yes)
    assert not watch.raw_tokens


@pytest.mark.parametrize("version", readable_versions(ApiKey.SASL_AUTHENTICATE))
def test_every_version_of_saslauthenticate_is_followed(version: int) -> None:
    watch = play(handshake("PLAIN"), handshake_answer())
    secret = plain("alice")
    flexible = version == 2
    request = (
        bytes([len(secret) + 1]) + secret + b"\0" if flexible else struct.pack(">i", len(secret)) + secret
    )
    response = b"\0\0\0\1" if flexible else b"\0\0\xff\xff\0\0\0\0"
    response += b"" if version == 0 else bytes(8)
    response += b"\0" if flexible else b""
    watch.on_authenticate_request(request, 0, len(request), version)
    assert watch.on_authenticate_response(response, 0, len(response), version) is True
    assert watch.user == "alice"


def test_a_plain_answer_with_bytes_is_a_yes_because_error_0_is() -> None:
    assert (
        play(handshake("PLAIN"), handshake_answer(), message(plain("alice")), answer(b"hello")).user
        == "alice"
    )


def test_oauthbearer_takes_the_configured_claim() -> None:
    watch = SaslWatch("email")
    play(
        handshake("OAUTHBEARER"), handshake_answer(), message(oauth("a@b.c", "email")), answer(), watch=watch
    )
    assert watch.user == "a@b.c"


def test_an_opaque_bearer_token_is_the_unknown_user_after_the_yes() -> None:
    opaque = b"n,,\x01auth=Bearer opaque\x01\x01"
    watch = play(handshake("OAUTHBEARER"), handshake_answer(), message(opaque))
    assert watch.user is None
    feed(watch, answer())
    assert watch.user == UNKNOWN_USER


def test_every_delegation_token_is_the_one_reserved_user() -> None:
    for token_id in ("id1", "id2"):
        say = message(scram(token_id, ",tokenauth=true"))
        watch = play(handshake("SCRAM-SHA-256"), handshake_answer(), say, answer(CHALLENGE), message(PROOF))
        assert watch.user is None
        feed(watch, answer(ACCEPTED))
        assert watch.user == DELEGATION_TOKEN_USER


def test_gssapi_is_the_unknown_user_from_the_first_error_0_on_for_as_many_rounds_as_it_takes() -> None:
    watch = play(handshake("GSSAPI"), handshake_answer(), message(b"\x60"))
    users = [watch.user]
    for _ in range(3):
        assert feed(watch, answer(b"challenge")) is True
        users.append(watch.user)
        assert not watch.in_exchange  # it may be over, or not: other requests are the broker's to judge
        feed(watch, message(b"more"))
        assert watch.awaiting_broker
    assert users == [None, UNKNOWN_USER, UNKNOWN_USER, UNKNOWN_USER]


# --- exchanges that do not


@pytest.mark.parametrize("mechanism", ["GSSAPI", "AWS_MSK_IAM", "KERBEROS_V4"])
def test_an_opaque_mechanism_with_bare_tokens_is_refused_for_its_end_cannot_be_seen(mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        play(handshake(mechanism, 0))
    assert caught.value.cause == DisconnectCause.AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "mechanism", ["plain", "Plain", "PLAIN ", "PLAIN\0", "", "Scram-Sha-256", "ＰＬＡＩＮ"]
)
def test_a_name_that_a_lenient_broker_could_take_for_a_known_mechanism_is_refused(mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed):
        play(handshake(mechanism))


@pytest.mark.parametrize("error", [33, 34, -1])
def test_after_a_refused_handshake_nothing_has_begun_and_another_may_follow(error: int) -> None:
    watch = play(handshake("PLAIN"), handshake_answer(error))
    assert (watch.user, watch.in_exchange, watch.awaiting_broker, watch.raw_tokens) == (
        None,
        False,
        False,
        False,
    )
    play(*exchange("SCRAM-SHA-512", "alice", 0), watch=watch)
    assert watch.user == "alice"


def test_after_a_refused_handshake_no_token_is_taken() -> None:
    for begin in (handshake("PLAIN", 0), handshake("PLAIN", 1)):
        for say in (message(plain("alice")), token(plain("alice"))):
            watch = play(begin, handshake_answer(34, begin.version))
            with pytest.raises(ProtocolError, match="out of turn"):
                feed(watch, say)


@pytest.mark.parametrize("name", ["alice", "bob"])
@pytest.mark.parametrize("begin", [[], [handshake("SCRAM-SHA-256"), handshake_answer(34)]])
def test_a_token_behind_a_login_that_no_handshake_began_goes_to_the_broker_and_its_refusal_passes(
    begin: list[Event], name: str
) -> None:
    """Kafka takes no re-authentication within a second of the last one, and goes on."""
    watch = play(*exchange("PLAIN", "alice"), *begin, message(plain(name)))
    assert (watch.awaiting_broker, watch.in_exchange) == (True, True)
    assert feed(watch, answer(error=34)) is False
    assert (watch.user, watch.failed, watch.awaiting_broker, watch.in_exchange) == (
        "alice", False, False, False,
    )  # fmt: skip
    play(*exchange("PLAIN", "alice"), watch=watch)


@pytest.mark.parametrize("reply", [answer(), answer(b"v=x"), answer(error=58)])
@pytest.mark.parametrize("name", ["alice", "bob"])
def test_any_other_answer_to_such_a_token_makes_nobody(name: str, reply: Event) -> None:
    watch = play(*exchange("PLAIN", "alice"), message(plain(name)))
    if reply.says == "no":
        assert feed(watch, reply) is False
    else:
        with pytest.raises(AuthenticationFailed, match="no handshake"):
            feed(watch, reply)
    assert (watch.user, watch.failed) == ("alice", True)


def test_before_a_login_no_such_token_is_taken() -> None:
    with pytest.raises(ProtocolError, match="out of turn"):
        feed(play(), message(plain("alice")))


@pytest.mark.parametrize(
    ("mechanism", "frames"),
    [("PLAIN", 3), ("SCRAM-SHA-256", 3), ("SCRAM-SHA-256", 5), ("OAUTHBEARER", 3), ("GSSAPI", 3)],
)
def test_error_58_ends_it_without_a_user(mechanism: str, frames: int) -> None:
    watch = play(*exchange(mechanism, "alice")[:frames])
    assert feed(watch, answer(error=58)) is False
    assert watch.failed
    for event in (message(plain("alice")), answer(), handshake("PLAIN"), token(b""), token_answer()):
        with pytest.raises(AuthenticationFailed):
            feed(watch, event)
    assert watch.user is None


@pytest.mark.parametrize("reply", [answer, token_answer])
@pytest.mark.parametrize("final", [b"e=invalid-proof", b"e=other-error,x=y"])
def test_a_scram_error_message_is_a_no_even_with_error_code_0(
    reply: Callable[[bytes], Event], final: bytes
) -> None:
    version = 1 if reply is answer else 0
    watch = play(*exchange("SCRAM-SHA-256", "alice", version)[:-1])
    assert feed(watch, reply(final)) is False
    assert (watch.user, watch.failed) == (None, True)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("first", [ACCEPTED, b"", b"e=other-error", b"x"])
def test_a_scram_signature_in_answer_to_the_first_message_is_no_yes(first: bytes, version: int) -> None:
    reply = answer if version else token_answer
    watch = play(*exchange("SCRAM-SHA-256", "alice", version)[:3])
    with pytest.raises(AuthenticationFailed):
        feed(watch, reply(first))
    assert watch.user is None


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("second", [CHALLENGE, b"", b"v=", b"\0"])
def test_the_second_scram_answer_must_be_a_server_final(second: bytes, version: int) -> None:
    reply = answer if version else token_answer
    watch = play(*exchange("SCRAM-SHA-256", "alice", version)[:-1])
    with pytest.raises(MalformedFrame):
        feed(watch, reply(second))
    assert (watch.user, watch.failed) == (None, True)


def test_a_bare_plain_answer_that_is_not_empty_is_no_yes() -> None:
    watch = play(*exchange("PLAIN", "alice", 0)[:-1])
    with pytest.raises(AuthenticationFailed):
        feed(watch, token_answer(b"no"))
    assert watch.user is None


@pytest.mark.parametrize("version", [0, 1])
def test_an_oauthbearer_refusal_is_followed_to_its_end(version: int) -> None:
    say, reply = (message, answer) if version else (token, token_answer)
    watch = play(*exchange("OAUTHBEARER", "alice", version)[:-1])
    assert feed(watch, reply(b'{"status":"invalid_token"}')) is False
    assert watch.user is None
    feed(watch, say(b"\x01"))
    assert watch.awaiting_broker
    with pytest.raises(AuthenticationFailed):
        feed(watch, reply())  # no broker answers so; if one does, it is not believed
    assert watch.user is None


def test_after_an_oauthbearer_refusal_no_second_token_is_taken() -> None:
    watch = play(*exchange("OAUTHBEARER", "alice")[:-1], answer(b"{}"))
    with pytest.raises(AuthenticationFailed):
        feed(watch, message(oauth("bob")))


UNREADABLE = [
    ("PLAIN", plain("alice", authzid="bob")),
    ("PLAIN", b"alice\0pw"),
    ("PLAIN", b"\0al\xffice\0pw"),
    ("SCRAM-SHA-256", b"n,a=bob,n=alice,r=x"),
    ("SCRAM-SHA-256", scram("alice", ",tokenauth=true,tokenauth=false")),
    ("SCRAM-SHA-256", b""),
    ("OAUTHBEARER", oauth("alice").replace(b"n,,", b"n,a=bob,")),
    ("OAUTHBEARER", oauth("bob")[:-1] + oauth("alice")[4:]),
]


@pytest.mark.parametrize(("mechanism", "says"), UNREADABLE)
def test_what_names_nobody_we_can_read_goes_to_the_broker_whose_refusal_reaches_the_client(
    mechanism: str, says: bytes
) -> None:
    watch = play(handshake(mechanism), handshake_answer(), message(says))
    assert watch.awaiting_broker
    assert feed(watch, answer(error=58)) is False
    assert (watch.user, watch.failed) == (None, True)


@pytest.mark.parametrize(("mechanism", "says"), UNREADABLE)
def test_a_broker_that_accepts_what_names_nobody_we_can_read_is_not_believed(
    mechanism: str, says: bytes
) -> None:
    watch = play(handshake(mechanism), handshake_answer(), message(says))
    with pytest.raises(AuthenticationFailed, match="nobody we can read"):
        play(
            answer(CHALLENGE), message(PROOF), answer(ACCEPTED), watch=watch
        ) if "SCRAM" in mechanism else play(answer(), watch=watch)
    assert watch.user is None


@pytest.mark.parametrize("name", sorted(UNNAMED_USERS))
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_real_user_called_like_a_shared_bucket_may_not_come_in(mechanism: str, name: str) -> None:
    with pytest.raises(AuthenticationFailed, match="reserved"):
        play(*exchange(mechanism, name))


# --- re-authentication


@pytest.mark.parametrize(("mechanism", "version"), NAMED)
def test_re_authentication_as_the_same_user_is_a_new_yes(mechanism: str, version: int) -> None:
    watch = play(*exchange("PLAIN", "alice"))
    *before, yes = exchange(mechanism, "alice", version)
    for event in before:
        feed(watch, event)
        assert watch.user == "alice"
    assert feed(watch, yes) is True


@pytest.mark.parametrize(("mechanism", "version"), EVERY_EXCHANGE)
def test_re_authentication_as_another_user_ends_the_connection_at_the_brokers_yes(
    mechanism: str, version: int
) -> None:
    watch = play(*exchange("PLAIN", "alice"))
    *before, yes = exchange("GSSAPI" if mechanism == "AWS_MSK_IAM" else mechanism, "bob", version)
    if mechanism in {"GSSAPI", "AWS_MSK_IAM"}:
        before, yes = before[:3], before[3]
    play(*before, watch=watch)
    with pytest.raises(PrincipalChanged) as caught:
        feed(watch, yes)
    assert caught.value.cause == DisconnectCause.PRINCIPAL_CHANGED
    assert watch.user == "alice"


def test_a_refused_re_authentication_leaves_the_user_as_he_was() -> None:
    watch = play(*exchange("PLAIN", "alice"), handshake("PLAIN"), handshake_answer(34))
    assert (watch.user, watch.in_exchange) == ("alice", False)
    play(*exchange("PLAIN", "alice")[:-1], watch=watch)
    assert feed(watch, answer(error=58)) is False
    assert (watch.user, watch.failed) == ("alice", True)


def test_an_unknown_user_re_authenticates_without_becoming_anybody() -> None:
    watch = play(*exchange("GSSAPI", ""), *exchange("GSSAPI", ""))
    assert watch.user == UNKNOWN_USER
    with pytest.raises(PrincipalChanged):
        play(*exchange("PLAIN", "alice"), watch=watch)


def test_no_secret_stands_in_the_repr_or_in_what_is_kept() -> None:
    watch = play(handshake("PLAIN"), handshake_answer(), message(plain("alice", "hunter2")))
    kept = [repr(watch), *(repr(getattr(watch, slot)) for slot in SaslWatch.__slots__)]
    assert not any("hunter2" in each for each in kept)
    assert "broker's turn" in repr(watch)
