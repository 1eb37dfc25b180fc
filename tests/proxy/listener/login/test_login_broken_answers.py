"""A broker that lies, breaks off or answers nonsense ends the proxy's login in one clear error."""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.sasl_client import MECHANISMS
from sluice.proxy.listener.login.login import (
    FIRST_CORRELATION_ID,
    MAX_ANSWER_BYTES,
    UpstreamLogin,
    UpstreamLoginError,
)
from testkit.frames.frames import sized
from testkit.peers.login_broker import (
    SECRET,
    Broker,
    authenticate_answer,
    begun,
    feed,
    handshake_answer,
    login,
    refusal,
)
from testkit.thorough import cases

untimed = settings(deadline=None)  # the machine may be busy

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


@settings(deadline=None, max_examples=cases(300))
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
