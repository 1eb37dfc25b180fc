"""A principal counts only once the broker has said yes to exactly that name, and then never changes."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.sasl_observer import (
    DELEGATION_TOKEN_USER,
    RESERVED_USERS,
    UNKNOWN_USER,
    AuthenticationFailed,
    PrincipalChanged,
    SaslWatch,
)

untimed = settings(deadline=None)  # the machine may be busy


class Event(NamedTuple):
    """One frame on the wire: what it is, and what the oracle needs to know of it."""

    kind: str
    body: bytes = b""
    version: int = 1
    says: str = ""
    """handshake: the mechanism; a client message: whom it names; an answer: yes, no, more"""


def handshake(mechanism: str, version: int = 1) -> Event:
    name = mechanism.encode()
    return Event("handshake", struct.pack(">h", len(name)) + name, version, mechanism)


def handshake_answer(error: int = 0, version: int = 1) -> Event:
    return Event(
        "handshake answer", struct.pack(">hih", error, 1, 5) + b"PLAIN", version, "no" if error else "yes"
    )


def message(token: bytes, names: str = "") -> Event:
    return Event("authenticate", struct.pack(">i", len(token)) + token, 0, names)


def answer(token: bytes = b"", error: int = 0) -> Event:
    return Event(
        "answer", struct.pack(">hhi", error, -1, len(token)) + token + bytes(8), 1, "no" if error else "yes"
    )


def token(token: bytes, names: str = "") -> Event:
    return Event("token", token, 0, names)


def token_answer(token: bytes = b"") -> Event:
    return Event("token answer", token, 0, "yes")


def feed(watch: SaslWatch, event: Event) -> bool:
    """Hand the event over in the middle of a larger buffer, as the session does."""
    buf = bytearray(b"before" + event.body + b"behind")
    pos, end = 6, 6 + len(event.body)
    before = (watch.user, watch.failed)
    established = False
    match event.kind:
        case "handshake":
            watch.on_handshake_request(buf, pos, end, event.version)
        case "handshake answer":
            watch.on_handshake_response(buf, pos, end, event.version)
        case "authenticate":
            watch.on_authenticate_request(buf, pos, end, event.version)
        case "answer":
            established = watch.on_authenticate_response(buf, pos, end, event.version)
        case "token":
            watch.on_raw_token_from_client(buf, pos, end)
        case "token answer":
            established = watch.on_raw_token_from_broker(buf, pos, end)
        case _:
            raise AssertionError(event.kind)
    assert established or watch.user == before[0]
    assert bytes(buf) == b"before" + event.body + b"behind"
    return established


def play(*events: Event, watch: SaslWatch | None = None) -> SaslWatch:
    watch = watch or SaslWatch()
    for event in events:
        feed(watch, event)
    return watch


def plain(user: str, password: str = "pw", authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def scram(user: str, extensions: str = "") -> bytes:
    return f"n,,n={user},r=cnonce{extensions}".encode()


def oauth(user: object, claim: str = "sub") -> bytes:
    payload = base64.urlsafe_b64encode(json.dumps({claim: user}).encode()).rstrip(b"=").decode()
    return f"n,,\x01auth=Bearer h.{payload}.s\x01\x01".encode()


CHALLENGE = b"r=cnoncesnonce,s=YQ==,i=4096"
PROOF = b"c=biws,r=cnoncesnonce,p=YQ=="
ACCEPTED = b"v=YQ=="


def exchange(mechanism: str, user: str, version: int = 1) -> list[Event]:
    """All frames of one successful authentication."""
    say, reply = (message, answer) if version else (token, token_answer)
    begin = [handshake(mechanism, version), handshake_answer(version=version)]
    match mechanism:
        case "PLAIN":
            return [*begin, say(plain(user), user), reply()]
        case "OAUTHBEARER":
            return [*begin, say(oauth(user), user), reply()]
        case "GSSAPI":
            rounds = [say(b"\x60\x01", UNKNOWN_USER), reply(b"\x60\x02"), say(b"", UNKNOWN_USER), reply(b"x")]
            return [*begin, *rounds, say(b"y", UNKNOWN_USER), reply()]
        case _:
            return [*begin, say(scram(user), user), reply(CHALLENGE), say(PROOF, user), reply(ACCEPTED)]


EVERY_EXCHANGE = [
    pytest.param(mechanism, version, id=f"{mechanism} v{version}")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
    for version in (0, 1)
    if version or mechanism not in {"GSSAPI", "AWS_MSK_IAM"}
]
NAMED = [case for case in EVERY_EXCHANGE if case.values[0] not in {"GSSAPI", "AWS_MSK_IAM"}]


# --- exchanges that go well


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


@pytest.mark.parametrize("version", [0, 1, 2])
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


@pytest.mark.parametrize("name", sorted(RESERVED_USERS))
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


# --- every event in every state


STATES: dict[str, list[Event]] = {
    "idle": [],
    "idle, known": exchange("PLAIN", "alice"),
    "handshake v0": [handshake("PLAIN", 0)],
    "handshake v1": [handshake("PLAIN")],
    "client's turn v0": exchange("SCRAM-SHA-256", "alice", 0)[:2],
    "client's turn v1": exchange("SCRAM-SHA-256", "alice")[:2],
    "broker's turn v0": exchange("SCRAM-SHA-256", "alice", 0)[:3],
    "broker's turn v1": exchange("SCRAM-SHA-256", "alice")[:3],
    "opaque": exchange("GSSAPI", "")[:4],
    "dead": [*exchange("PLAIN", "alice")[:3], answer(error=58)],
}
EVENTS: dict[str, Event] = {
    "handshake": handshake("PLAIN"),
    "handshake answer": handshake_answer(),
    "authenticate": message(scram("alice")),
    "answer": answer(CHALLENGE),
    "token": token(scram("alice")),
    "token answer": token_answer(CHALLENGE),
}
LEGAL = {
    ("idle", "handshake"),
    ("idle, known", "handshake"),
    ("opaque", "handshake"),
    ("handshake v0", "handshake answer"),
    ("handshake v1", "handshake answer"),
    ("client's turn v0", "token"),
    ("client's turn v1", "authenticate"),
    ("opaque", "authenticate"),
    ("broker's turn v0", "token answer"),
    ("broker's turn v1", "answer"),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_event_out_of_turn_raises_and_is_the_last(state: str, event: str) -> None:
    watch = play(*STATES[state])
    user = watch.user
    if (state, event) in LEGAL:
        feed(watch, EVENTS[event])
        assert not watch.failed
        return
    with pytest.raises(ProtocolError):
        feed(watch, EVENTS[event])
    assert watch.failed
    assert not watch.awaiting_broker
    for other in EVENTS.values():
        with pytest.raises(AuthenticationFailed):
            feed(watch, other)
    assert watch.user == user


@pytest.mark.parametrize("event", EVENTS)
def test_a_frame_that_cannot_be_read_is_the_last_one(event: str) -> None:
    for state in (
        state for state, legal in LEGAL if legal == event and event not in {"token", "token answer"}
    ):
        watch = play(*STATES[state])
        with pytest.raises((MalformedFrame, UnsupportedVersion)):
            feed(watch, EVENTS[event]._replace(body=EVENTS[event].body + b"\0"))
        assert watch.failed
        watch = play(*STATES[state])
        with pytest.raises(UnsupportedVersion):
            feed(watch, EVENTS[event]._replace(version=7))
        assert watch.failed


# --- every order of events


NAMES = ["alice", "bob"]
SINGLE_EVENTS: list[Event] = [
    *(handshake(m, v) for m in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI") for v in (0, 1)),
    *(handshake_answer(e, v) for e in (0, 34) for v in (0, 1)),
    *(say(make(name), name) for say in (message, token) for make in (plain, scram, oauth) for name in NAMES),
    *(say(text, "") for say in (message, token) for text in (PROOF, b"", b"\x01")),
    *(reply(text) for reply in (answer, token_answer) for text in (b"", CHALLENGE, ACCEPTED, b"e=no", b"{}")),
    answer(error=58),
]
WHOLE_EXCHANGES = [exchange(m, n, v) for m, v in (case.values for case in NAMED) for n in NAMES]  # type: ignore[arg-type]
WHOLE_EXCHANGES.append(exchange("GSSAPI", ""))


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Whole, cut and disturbed exchanges in a row: random events alone would seldom get anywhere."""
    history: list[Event] = []
    for _ in range(draw(st.integers(1, 4))):
        part = list(draw(st.sampled_from(WHOLE_EXCHANGES)))
        match draw(st.integers(0, 4)):
            case 0:
                part = part[: draw(st.integers(0, len(part)))]
            case 1:
                part.insert(draw(st.integers(0, len(part))), draw(st.sampled_from(SINGLE_EVENTS)))
            case 2:
                part[draw(st.integers(0, len(part) - 1))] = draw(st.sampled_from(SINGLE_EVENTS))
            case 3:
                part = draw(st.lists(st.sampled_from(SINGLE_EVENTS), max_size=5))
        history += part
    return history


def spelled(history: list[Event]) -> Iterator[str]:
    """The history as words for a regular expression: an oracle with no state machine in it."""
    for event in history:
        kind = "T" if event.kind.startswith("token") else "A"
        match event.kind:
            case "handshake":
                yield f"handshake:{event.says}:{event.version} "
            case "handshake answer":
                yield "taken " if event.says == "yes" else "refused "
            case "authenticate" | "token":
                says = event.body if event.kind == "token" else event.body[4:]
                maker = next(
                    (m.__name__ for m in (plain, scram, oauth) if event.says and says == m(event.says)), "x"
                )
                yield f"{kind}>{maker}={event.says} "
            case _:
                raw = event.body if event.kind == "token answer" else event.body[8:-8]
                error = event.says == "no"
                yield f"{kind}<{'error' if error else raw.hex() or 'empty'} "


def yes_to(user: str) -> re.Pattern[str]:
    """What must stand at the end of a history in which `user` has just been established."""
    if user == UNKNOWN_USER:
        return re.compile(r"handshake:GSSAPI:1 taken (A>\S+ A<(?!error)\S+ )+$")
    challenge, accepted = CHALLENGE.hex(), ACCEPTED.hex()
    return re.compile(
        rf"(handshake:PLAIN:1 taken A>plain={user} A<(?!error)\S+"
        rf"|handshake:PLAIN:0 taken T>plain={user} T<empty"
        rf"|handshake:OAUTHBEARER:1 taken A>oauth={user} A<empty"
        rf"|handshake:OAUTHBEARER:0 taken T>oauth={user} T<empty"
        rf"|handshake:SCRAM-SHA-\d+:1 taken A>scram={user} A<{challenge} A>\S+ A<{accepted}"
        rf"|handshake:SCRAM-SHA-\d+:0 taken T>scram={user} T<{challenge} T>\S+ T<{accepted}) $"
    )


@settings(untimed, max_examples=1000)
@given(histories())
def test_no_order_of_events_makes_a_user_without_the_brokers_yes_to_that_name_nor_changes_one(
    history: list[Event],
) -> None:
    watch = SaslWatch()
    user: str | None = None
    dead = False
    for at, event in enumerate(history):
        try:
            established = feed(watch, event)
        except ProtocolError:
            dead = True
        else:
            assert not dead, "an event passed after one that raised"
            if established:
                assert watch.user is not None
                assert yes_to(watch.user).search("".join(spelled(history[: at + 1])))
                assert user in {None, watch.user}
                user = watch.user
        assert watch.user == user
        assert not (watch.awaiting_broker and watch.failed)


def test_the_oracle_knows_every_whole_exchange() -> None:
    for whole in WHOLE_EXCHANGES:
        watch = play(*whole)
        assert watch.user is not None
        assert yes_to(watch.user).search("".join(spelled(whole)))


def test_no_secret_stands_in_the_repr_or_in_what_is_kept() -> None:
    watch = play(handshake("PLAIN"), handshake_answer(), message(plain("alice", "hunter2")))
    kept = [repr(watch), *(repr(getattr(watch, slot)) for slot in SaslWatch.__slots__)]
    assert not any("hunter2" in each for each in kept)
    assert "broker's turn" in repr(watch)
