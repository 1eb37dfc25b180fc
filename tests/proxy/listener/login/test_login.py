"""The proxy's own login at a broker: whole, in pieces, and refused."""

from __future__ import annotations

import traceback

import pytest

from sluice.protocol.sasl_client import MECHANISMS
from sluice.proxy.listener.login.login import UpstreamLogin, UpstreamLoginError, reauthenticate_after_ms
from testkit.frames.frames import SASL_HANDSHAKE, decoded, sized
from testkit.peers.login_broker import (
    SECRET,
    Broker,
    authenticate_answer,
    begun,
    credentials_for,
    feed,
    handshake_answer,
    login,
    message_in,
    refusal,
)
from testkit.peers.scram_server import ScramServer


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
