"""The proxy's own login at a broker: whole, in pieces, refused, and at brokers that lie."""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from sluice.protocol.codec.wire import Struct
from sluice.protocol.sasl_client import MECHANISMS
from sluice.proxy.listener.login.credential_entries import Credentials, PasswordCredentials, TokenCredentials
from sluice.proxy.listener.login.login import (
    FIRST_CORRELATION_ID,
    MAX_ANSWER_BYTES,
    UpstreamLogin,
    UpstreamLoginError,
    reauthenticate_after_ms,
)
from testkit.frames.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, answer, decoded, sized
from testkit.peers.scram_server import ScramServer

untimed = settings(deadline=None)  # the machine may be busy
SECRET = "hunter2-hunter2"
GARBAGE = b"\xff\xff\xff\xffsomebody else's"
"""Before `start` and behind `end`: must never be looked at."""
OFFERED: Struct = {"mechanisms": ["SCRAM-SHA-512", "GSSAPI"]}


def credentials_for(mechanism: str) -> Credentials:
    if mechanism == "OAUTHBEARER":
        return TokenCredentials(SecretStr(SECRET), {"logicalCluster": "lkc-1"})
    return PasswordCredentials.of("alice", SECRET)


def login(mechanism: str = "PLAIN", **options: Any) -> UpstreamLogin:
    return UpstreamLogin(
        mechanism, credentials_for(mechanism), **{"client_id": "sluice", "nonce": "mine", **options}
    )


def feed(subject: UpstreamLogin, data: bytes, piece_bytes: int = 0) -> bytes:
    """All of `data`, each piece in the midst of a buffer of others' bytes; what there is to send."""
    replies = b""
    size = piece_bytes or len(data) or 1
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        taken, reply = subject.received(
            bytearray(GARBAGE + piece + GARBAGE), len(GARBAGE), len(GARBAGE) + len(piece)
        )
        assert taken == len(piece)
        replies += reply
    return replies


def handshake_answer(correlation_id: int = FIRST_CORRELATION_ID, error_code: int = 0, **body: Any) -> bytes:
    return answer(SASL_HANDSHAKE, 1, {"errorCode": error_code, **body}, correlation_id=correlation_id)


def authenticate_answer(message: bytes = b"", *, round_number: int = 1, **body: Any) -> bytes:
    return answer(
        SASL_AUTHENTICATE,
        2,
        {"authBytes": message.hex(), **body},
        correlation_id=FIRST_CORRELATION_ID + round_number,
    )


def message_in(frame: bytes) -> bytes:
    """The mechanism's message in a SaslAuthenticate request."""
    text = decoded("request", SASL_AUTHENTICATE, 2, frame).body["authBytes"]
    assert isinstance(text, str)
    return bytes.fromhex(text)


class Broker:
    """Lets in who knows SECRET, as a real one does; keeps what it was sent."""

    def __init__(self, mechanism: str, lifetime_ms: int = 0) -> None:
        self.mechanism = mechanism
        self.lifetime_ms = lifetime_ms
        self.rounds = 0
        self._scram = ScramServer(mechanism, SECRET) if mechanism.startswith("SCRAM") else None

    def answer(self, frame: bytes) -> bytes:
        if self.rounds == 0:
            self.rounds = 1
            asked = decoded("request", SASL_HANDSHAKE, 1, frame)
            assert asked.body["mechanism"] == self.mechanism
            assert asked.header["correlationId"] == FIRST_CORRELATION_ID
            return handshake_answer(mechanisms=[self.mechanism])
        message = message_in(frame)
        assert decoded("request", SASL_AUTHENTICATE, 2, frame).header["clientId"] == "sluice"
        number, self.rounds = self.rounds, self.rounds + 1
        if self._scram is None:
            assert SECRET.encode() in message
        elif number == 1:
            return authenticate_answer(self._scram.challenge(message))
        elif not self._scram.takes(message):
            return authenticate_answer(round_number=number, errorCode=58, errorMessage="wrong proof")
        final = self._scram.final if self._scram is not None else b""
        return authenticate_answer(final, round_number=number, sessionLifetimeMs=self.lifetime_ms)


@pytest.mark.parametrize("piece_bytes", [0, 1, 3])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_however_the_answers_arrive(mechanism: str, piece_bytes: int) -> None:
    subject, broker = login(mechanism), Broker(mechanism, lifetime_ms=90_000)
    frame = subject.start()
    while not subject.done:
        assert frame
        frame = feed(subject, broker.answer(frame), piece_bytes)
    assert frame == b""
    assert subject.session_lifetime_ms == 90_000


def test_what_stands_behind_the_last_answer_is_left_to_others() -> None:
    subject = login()
    subject.start()
    feed(subject, handshake_answer())
    last = authenticate_answer()
    assert subject.received(last + b"another's answer", 0, len(last) + 16) == (len(last), b"")
    assert subject.done


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63)])
def test_a_session_without_a_lifetime_lives_on(lifetime_ms: int) -> None:
    subject = login()
    subject.start()
    feed(subject, handshake_answer())
    feed(subject, authenticate_answer(sessionLifetimeMs=lifetime_ms))
    assert (subject.done, subject.session_lifetime_ms) == (True, 0)


def test_an_answer_from_the_future_with_unknown_tags_is_read() -> None:
    subject = login()
    subject.start()
    feed(subject, handshake_answer())
    frame = authenticate_answer(sessionLifetimeMs=7)
    assert frame[-1] == 0
    feed(subject, sized(frame[4:-1] + b"\x01\x63\x03abc"))
    assert (subject.done, subject.session_lifetime_ms) == (True, 7)


def test_a_client_id_may_be_empty_and_is_never_too_long() -> None:
    assert decoded("request", SASL_HANDSHAKE, 1, login(client_id="").start()).header["clientId"] == ""
    longest = "x" * 32_767
    assert (
        decoded("request", SASL_HANDSHAKE, 1, login(client_id=longest).start()).header["clientId"] == longest
    )
    with pytest.raises(ValueError, match="too long"):
        login(client_id=longest + "x")


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "SCRAM-SHA-1", ""])
def test_an_unknown_mechanism_is_refused_before_anything_is_sent(mechanism: str) -> None:
    with pytest.raises(ValueError, match="is none of PLAIN"):
        login(mechanism)


@pytest.mark.parametrize(("mechanism", "other"), [("PLAIN", "OAUTHBEARER"), ("OAUTHBEARER", "PLAIN")])
def test_credentials_must_fit_the_mechanism(mechanism: str, other: str) -> None:
    with pytest.raises(ValueError, match=r"OAUTHBEARER|not a token"):
        UpstreamLogin(mechanism, credentials_for(other), client_id="sluice", nonce="mine")


def begun(mechanism: str = "PLAIN", **options: Any) -> UpstreamLogin:
    """The mechanism's first message is sent."""
    subject = login(mechanism, **options)
    subject.start()
    feed(subject, handshake_answer())
    return subject


def refusal(subject: UpstreamLogin, data: bytes) -> UpstreamLoginError:
    with pytest.raises(UpstreamLoginError) as refused:
        feed(subject, data)
    with pytest.raises(UpstreamLoginError, match="out of turn"):
        feed(subject, handshake_answer())
    assert not subject.done
    return refused.value


def test_a_mechanism_that_the_broker_does_not_have_is_told_with_those_it_has() -> None:
    subject = login()
    subject.start()
    error = refusal(subject, handshake_answer(error_code=33, mechanisms=["SCRAM-SHA-512", "GSSAPI"]))
    assert (error.mechanism, error.error_code, error.offered) == ("PLAIN", 33, ("SCRAM-SHA-512", "GSSAPI"))
    assert str(error) == (
        "PLAIN login at the broker: it does not take this mechanism; error 33 UNSUPPORTED_SASL_MECHANISM; "
        "it offers SCRAM-SHA-512, GSSAPI"
    )


def test_what_is_offered_is_no_way_into_the_log() -> None:
    subject = login()
    subject.start()
    names = ["PLAIN\nroot logged in", "x" * 1000, *(f"M-{number}" for number in range(100))]
    error = refusal(subject, handshake_answer(error_code=33, mechanisms=names))
    assert error.offered == tuple(f"M-{number}" for number in range(16))


def test_a_listener_without_sasl_is_told() -> None:
    subject = login()
    subject.start()
    error = refusal(subject, handshake_answer(error_code=34))
    assert error.error_code == 34
    assert "its listener has no SASL, or wants no new login now; error 34 ILLEGAL_SASL_STATE" in str(error)


def test_a_wrong_password_is_told_in_the_brokers_words() -> None:
    words = "Authentication failed: Invalid username or password"
    error = refusal(begun(), authenticate_answer(errorCode=58, errorMessage=words))
    assert (error.error_code, error.broker_message) == (58, words)
    assert str(error) == (
        f"PLAIN login at the broker: refused; error 58 SASL_AUTHENTICATION_FAILED; the broker says: {words}"
    )


def test_an_unknown_error_without_words_is_a_refusal_too() -> None:
    error = refusal(begun(), authenticate_answer(errorCode=-1, errorMessage=None))
    assert str(error) == "PLAIN login at the broker: refused; error -1"


def test_a_refused_token_is_given_up_and_told_with_the_servers_reason() -> None:
    subject = begun("OAUTHBEARER")
    reply = feed(subject, authenticate_answer(b'{"status":"invalid_token"}'))
    assert message_in(reply) == b"\x01"
    error = refusal(subject, authenticate_answer(errorCode=58, errorMessage="no", round_number=2))
    assert error.broker_message == 'no, {"status":"invalid_token"}'


def test_a_broker_that_takes_a_token_after_its_refusal_is_not_believed() -> None:
    subject = begun("OAUTHBEARER")
    feed(subject, authenticate_answer(b'{"status":"invalid_token"}'))
    error = refusal(subject, authenticate_answer(round_number=2))
    assert "goes on after it refused" in str(error)


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """It would get all that clients produce."""
    subject, scram = login("SCRAM-SHA-256"), ScramServer("SCRAM-SHA-256", "another")
    subject.start()
    first = feed(subject, handshake_answer())
    final = feed(subject, authenticate_answer(scram.challenge(message_in(first))))
    assert not scram.takes(message_in(final))
    error = refusal(subject, authenticate_answer(scram.final, round_number=2))
    assert "does not know the password" in str(error)
    assert error.error_code == 0


@pytest.mark.parametrize("challenge", [b"", b"r=mine-and-mine,s=AAAA,i=1", b"v=AAAA"])
def test_a_scram_login_is_not_cut_short(challenge: bytes) -> None:
    """Error 0 alone is no yes: a broker that asks for no proof has none either."""
    refusal(begun("SCRAM-SHA-256"), authenticate_answer(challenge))


BROKEN: dict[str, tuple[bytes, str]] = {
    "a negative size": (struct.pack(">i", -1), "an answer of -1 bytes"),
    "no size": (struct.pack(">i", 0), "an answer of 0 bytes"),
    "too small for a header": (struct.pack(">i", 3), "an answer of 3 bytes"),
    "too large": (struct.pack(">i", MAX_ANSWER_BYTES + 1), f"at most {MAX_ANSWER_BYTES} are taken"),
    "TLS": (b"\x15\x03\x03\x00\x02\x02\x46", "it speaks TLS; set upstream_security_protocol: SASL_SSL"),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n", "an answer of 1213486160 bytes"),
    "another correlation id": (handshake_answer(5), f"request 5, awaited is {FIRST_CORRELATION_ID}"),
    "nothing behind the header": (sized(struct.pack(">i", FIRST_CORRELATION_ID)), "cannot be read"),
    "half an answer": (sized(handshake_answer(mechanisms=["PLAIN"])[4:-1]), "cannot be read"),
    "a byte too many": (sized(handshake_answer()[4:] + b"\0"), "1 bytes behind the last field"),
    "two answers": (handshake_answer() + b"\0", "more than it was asked for"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_answer_ends_the_login(case: str) -> None:
    data, message = BROKEN[case]
    subject = login()
    subject.start()
    error = refusal(subject, data)
    assert message in str(error)
    assert error.error_code == 0


def test_the_limit_of_an_answer_is_exact() -> None:
    frame = authenticate_answer(bytes(100))
    size = len(frame) - 4
    subject = begun(max_answer_bytes=size)
    feed(subject, frame)
    assert subject.done
    assert f"at most {size - 1} are taken" in str(refusal(begun(max_answer_bytes=size - 1), frame))


def test_a_size_beyond_the_limit_is_told_before_its_bytes_are_waited_for() -> None:
    subject = login()
    subject.start()
    assert feed(subject, b"\x7f\xff\xff") == b""
    with pytest.raises(UpstreamLoginError, match="2147483647 bytes"):
        feed(subject, b"\xff")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (login, r"closed the connection \(new\)"),
        (
            lambda: begun("SCRAM-SHA-256"),
            r"\(SaslAuthenticate sent\); some brokers do this instead of refusing",
        ),
    ],
)
def test_a_broker_that_closes_midway_is_told_with_the_place(
    step: Callable[[], UpstreamLogin], words: str
) -> None:
    subject = step()
    error = subject.broker_closed()
    with pytest.raises(UpstreamLoginError, match=words):
        raise error
    with pytest.raises(UpstreamLoginError, match="out of turn"):
        subject.start()


def test_a_broker_that_closes_upon_the_handshake_has_perhaps_another_security() -> None:
    subject = login()
    subject.start()
    feed(subject, handshake_answer()[:7])
    assert "does its listener speak SASL, with or without TLS" in str(subject.broker_closed())


def test_a_login_begins_once() -> None:
    subject = login()
    subject.start()
    with pytest.raises(UpstreamLoginError, match=r"start is out of turn \(SaslHandshake sent\)"):
        subject.start()


def test_a_login_that_is_done_takes_nothing_more() -> None:
    subject = begun()
    feed(subject, authenticate_answer())
    with pytest.raises(UpstreamLoginError, match=r"out of turn \(done\)"):
        feed(subject, authenticate_answer())


def test_a_broker_that_tells_the_secret_is_not_repeated() -> None:
    for error in (
        refusal(begun(), authenticate_answer(errorCode=58, errorMessage=f"{SECRET} is wrong: {SECRET}")),
        refusal(begun(), authenticate_answer(errorCode=58, errorMessage="x" * 295 + SECRET)),
    ):
        assert SECRET[:5] not in "".join(traceback.format_exception(error))
        assert SECRET[:5] not in error.broker_message
        assert "***" in str(error)


def test_a_brokers_words_are_printable_and_cut() -> None:
    error = refusal(
        begun(), authenticate_answer(errorCode=58, errorMessage="a\r\n\x1b[31m\u202eb" + "x" * 5000)
    )
    assert error.broker_message.startswith("a???[31m?bxxx")
    assert len(error.broker_message) == 301


def test_the_next_login_begins_before_the_session_ends() -> None:
    assert [reauthenticate_after_ms(60_000, share) for share in (0.0, 0.5, 1.0)] == [51_000, 54_000, 57_000]


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(MECHANISMS),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_no_broker_makes_a_login_raise_anything_else_or_be_done_by_mistake(
    mechanism: str, mutations: list[tuple[int, int]], damaged_round: int, piece_bytes: int
) -> None:
    subject, broker = login(mechanism), Broker(mechanism)
    frame = subject.start()
    for round_number in range(4):
        if subject.done:
            break
        data = bytearray(broker.answer(frame))
        if round_number == damaged_round:
            for place, value in mutations:
                data[place % len(data)] = value
        try:
            frame = feed(subject, bytes(data), piece_bytes)
        except UpstreamLoginError as error:
            told = "".join(traceback.format_exception(error)) + repr(subject)
            break
        if not subject.done and not frame:  # a size that wants more than there is
            subject.broker_closed()
            return
    else:
        raise AssertionError("it goes on for ever")
    if not subject.done:
        assert SECRET not in told
    elif mechanism.startswith("SCRAM"):
        assert broker.rounds == 3, "both proofs were asked for"


@untimed
@given(st.binary(max_size=40), st.integers(1, 40))
def test_any_bytes_come_to_the_same_end_in_any_pieces(data: bytes, piece_bytes: int) -> None:
    ends = []
    for size in (len(data) or 1, piece_bytes):
        subject = login()
        subject.start()
        try:
            feed(subject, sized(struct.pack(">i", FIRST_CORRELATION_ID) + data), size)
            ends.append(repr(subject))
        except UpstreamLoginError as error:
            ends.append(str(error))
    assert ends[0] == ends[1]
