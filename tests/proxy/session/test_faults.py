"""Peers that break the protocol: what came before goes on, one clear error, and that connection ends."""

from __future__ import annotations

import struct

import pytest

from sluice.protocol.errors import ProtocolError
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.errors import BrokerError, BrokerMalformed
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    answer,
    fetch,
    fetch_answer_of,
    produce,
    produce_answer,
    produce_of,
    record_batch,
    request,
    sized,
)
from testkit.proxy.playbook import Broker, Client, Ending, Playbook, Shell, ToBroker, ToClient, session_of

GOOD = request(METADATA, 12, correlation_id=77)
SASL = SessionPolicy(authentication_required=True)
KIB = 1024
MIB = 1024 * KIB


def head(
    api_key: int, version: int, rest: bytes = b"", *, size: int | None = None, id_length: int = 0
) -> bytes:
    """A request that says what it likes of its size and of its client id's length."""
    content = struct.pack(">hhih", api_key, version, 1, id_length) + rest
    return struct.pack(">i", len(content) if size is None else size) + content


TOO_LARGE = DisconnectCause.FRAME_TOO_LARGE
MALFORMED = DisconnectCause.MALFORMED_FRAME
UNMETERED = DisconnectCause.UNMETERED_VERSION
UNKNOWN = DisconnectCause.UNKNOWN_API

BAD_REQUESTS = {
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00", DisconnectCause.TLS_ON_PLAINTEXT, "a TLS handshake"),
    "http": (b"GET / HTTP/1.1\r\n\r\n", TOO_LARGE, "an HTTP request"),
    "negative size": (
        b"\xff\xff\xff\xff" + bytes(20),
        TOO_LARGE,
        "negative frame size -1",
    ),
    "too large": (
        b"\x06\x40\x00\x01" + bytes(20),
        TOO_LARGE,
        "frame of 104857601 bytes",
    ),
    "no header": (b"\x00\x00\x00\x09" + bytes(20), MALFORMED, "frame of 9 bytes"),
    "empty": (b"\x00\x00\x00\x00", MALFORMED, "frame of 0 bytes"),
    "garbage": (
        b"\x00\x00\x00\x20" + b"\xa5" * 40,
        UNKNOWN,
        "an API that this proxy",
    ),
    "client id beyond its frame": (
        head(METADATA, 12, b"app\0", id_length=5),
        MALFORMED,
        "client id of 5 bytes, api Metadata (3), version 12, offset 12",
    ),
    "produce without acks": (
        head(PRODUCE, 9, b"\0\0\0"),
        MALFORMED,
        "Produce request without acks, api Produce (0), version 9, offset 15",
    ),
    "fetch without max bytes": (
        head(FETCH, 12, b"\0" + bytes(15)),
        MALFORMED,
        "no max_bytes, api Fetch (1), version 12, offset 27",
    ),
    "share fetch whose group cannot fit": (
        head(SHARE_FETCH, 1, b"\0\x70g" + bytes(30)),
        MALFORMED,
        "111 bytes wanted, 31 left, api ShareFetch (78), version 1, offset 16",
    ),
    "metadata of topics that cannot fit": (
        head(METADATA, 1, b"\x7f\xff\xff\xff"),
        MALFORMED,
        "topics: array of 2147483647 in 0 bytes, api Metadata (3), version 1, offset 18",
    ),
    "heartbeat of no group": (
        head(HEARTBEAT, 0, b"\xff\xff" + bytes(20)),
        MALFORMED,
        "groupId: null where none may be, api Heartbeat (12), version 0, offset 14",
    ),
    "join group without a timeout": (
        head(JOIN_GROUP, 9, b"\0\x02g" + bytes(3)),
        MALFORMED,
        "sessionTimeoutMs: 8 bytes wanted, 3 left, api JoinGroup (11), version 9, offset 17",
    ),
    "header tags that cannot fit": (
        head(PRODUCE, 12, b"\x05\x01\x7f" + bytes(20)),
        MALFORMED,
        "api Produce (0), version 12, offset",
    ),
    "produce too old": (
        produce_of(200)[:6] + b"\0\2" + produce_of(200)[8:],
        UNMETERED,
        "2",
    ),
    "produce too new": (
        head(PRODUCE, 14, bytes(40)),
        UNMETERED,
        "this version would go unmetered, api Produce (0), version 14",
    ),
    "fetch too old": (
        head(FETCH, 3, bytes(40)),
        UNMETERED,
        "api Fetch (1), version 3",
    ),
    "fetch too new": (
        head(FETCH, 19, bytes(40)),
        UNMETERED,
        "api Fetch (1), version 19",
    ),
    "fetch of a negative version": (
        head(FETCH, -1, bytes(40)),
        UNMETERED,
        "version -1",
    ),
    "share fetch too old": (head(SHARE_FETCH, 0, bytes(40)), UNMETERED, "version 0"),
    "share fetch too new": (head(SHARE_FETCH, 3, bytes(40)), UNMETERED, "version 3"),
    "sasl frame too large": (
        head(SASL_AUTHENTICATE, 2, size=512 * KIB + 1),
        TOO_LARGE,
        "bytes to authenticate with, the limit is 524288, api SaslAuthenticate (36), version 2",
    ),
}
STRICT = SessionPolicy(pass_unknown_apis=False)


@pytest.mark.parametrize(("bad", "cause", "said"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_frames_before_a_bad_one_still_go_and_nothing_behind_it_does(
    bad: bytes, cause: DisconnectCause, said: str
) -> None:
    """The same whether it comes whole, byte by byte, or alone; its offset counts from the frame's begin."""
    shell = (
        Playbook(session_of(policy=STRICT))
        >> Client(GOOD + GOOD + bad + GOOD)
        << ToBroker(GOOD + GOOD)
        << Ending(cause)
        >> Client(GOOD)
    ).done()
    assert said in shell.detail
    assert "offset -" not in shell.detail
    assert [shell.session.finished, shell.session.in_flight] == [False, 2]
    shell.broker_sends(answer(METADATA, 12, correlation_id=77) * 2)
    assert shell.session.finished

    for stale in (b"\x00", b"\x01", b"\x7f", b"\xff"):
        bytewise = Shell(session_of(policy=STRICT), stale=stale)
        for byte in GOOD + GOOD + bad:
            bytewise.client_sends(bytes([byte]))
        assert (bytewise.to_broker, bytewise.cause) == (bytearray(GOOD + GOOD), cause)
        assert bytewise.detail == shell.detail


@pytest.mark.parametrize("name", ["tls", "http", "negative size", "too large", "no header", "empty"])
def test_four_bytes_are_enough_to_see_that_a_size_is_none(name: str) -> None:
    bad, cause, said = BAD_REQUESTS[name]
    for stale in (b"\x00", b"\x16\x03", b"GET "):
        shell = Shell(session_of(), stale=stale)
        shell.client_sends(bad[:3])
        assert shell.state is State.READING
        shell.client_sends(bad[3:4])
        assert shell.cause is cause
        assert said in shell.detail


def test_a_transactional_id_longer_than_any_string_is_not_waited_for() -> None:
    """Kafka's strings have 32,767 bytes at most; acks behind 2 MiB of one would fill the receive buffer."""
    frame = head(PRODUCE, 9, b"\0\xff\xff\x7f" + bytes(3 * MIB))
    shell = Shell(session_of())
    for start in range(0, 256 * KIB, 64 * KIB):
        shell.client_sends(frame[start : start + 64 * KIB])
    assert shell.to_broker == b""
    assert shell.cause is DisconnectCause.MALFORMED_FRAME
    assert "api Produce (0), version 9, offset" in shell.detail


@pytest.mark.parametrize("version", [8, 9])
def test_a_transactional_id_of_the_greatest_length_is_waited_for(version: int) -> None:
    frame = produce({"orders": [(0, record_batch())]}, version=version, transactional_id="t" * 32_767)
    shell = Shell(session_of())
    for start in range(0, len(frame), 1_000):
        shell.client_sends(frame[start : start + 1_000])
    assert shell.to_broker == frame


def test_no_request_is_kept_that_could_fill_the_receive_buffer() -> None:
    """Whatever is kept unjudged stays below half of it: random heads, zeros behind, 1 MiB each."""
    for api_key in (
        PRODUCE,
        FETCH,
        SHARE_FETCH,
        JOIN_GROUP,
        SASL_HANDSHAKE,
        SASL_AUTHENTICATE,
        METADATA,
        999,
    ):
        for version in (1, 4, 9, 12):
            for rest in (b"\x80", b"\xff", b"\x7f", b"\x00", b"\xfe\xff\xff\x07"):
                shell = Shell(session_of())
                shell.client_sends(head(api_key, version, (rest * MIB)[:MIB], size=50 * MIB))
                shell.client_sends(bytes(1_000))
                assert len(shell.kept) <= 512 * KIB or shell.state is State.ENDING


# Limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "limit"),
    [(SASL, 512 * KIB), (SessionPolicy(), 100 * MIB), (SessionPolicy(max_frame_bytes=5_000), 5_000)],
)
def test_a_frame_of_the_limit_passes_and_one_byte_more_ends_the_connection(
    policy: SessionPolicy, limit: int
) -> None:
    """512 KiB before authentication, 100 MiB else; a size counts what stands behind it, as Kafka's does."""
    fits = Shell(session_of(policy=policy))
    fits.client_sends(head(API_VERSIONS, 0, bytes(100), size=limit))
    assert (fits.state, len(fits.to_broker)) == (State.READING, 114)
    beyond = Shell(session_of(policy=policy))
    beyond.client_sends(head(API_VERSIONS, 0, bytes(100), size=limit + 1))
    assert (beyond.cause, len(beyond.to_broker)) == (DisconnectCause.FRAME_TOO_LARGE, 0)
    assert beyond.detail == f"frame of {limit + 1} bytes, the limit is {limit}, offset 0"


@pytest.mark.parametrize("api_key", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_an_authentication_frame_of_the_limit_is_kept_until_it_is_whole(api_key: int) -> None:
    shell = Shell(session_of(policy=SASL))
    frame = head(api_key, 1, bytes(512 * KIB - 10))
    shell.client_sends(frame[:-1])
    assert (shell.state, len(shell.kept)) == (State.READING, len(frame) - 1)
    beyond = Shell(session_of())
    beyond.client_sends(head(api_key, 1, bytes(512 * KIB - 9))[:20])
    assert beyond.cause is DisconnectCause.FRAME_TOO_LARGE


def test_an_unknown_api_ends_the_connection_where_the_settings_say_so() -> None:
    (
        Playbook(session_of(policy=STRICT))
        >> Client(GOOD + head(999, 3, bytes(10)))
        << ToBroker(GOOD)
        << Ending(DisconnectCause.UNKNOWN_API)
    ).done()


# The broker -------------------------------------------------------------------------------------------------


def test_an_answer_out_of_order_is_an_error_and_is_not_delivered() -> None:
    shell = Shell(session_of())
    shell.client_sends(request(METADATA, 12, correlation_id=1) + request(METADATA, 12, correlation_id=2))
    with pytest.raises(BrokerError) as caught:
        shell.broker_sends(answer(METADATA, 12, correlation_id=2))
    assert str(caught.value) == "correlation id 2, due is 1, api Metadata (3), version 12"
    assert caught.value.cause is DisconnectCause.BROKER_CORRELATION
    assert shell.to_client == b""
    assert shell.records == []


@pytest.mark.parametrize("good", [0, 1, 3])
def test_answers_before_a_bad_one_count_as_sent(good: int) -> None:
    """They go on: the connection's record has their bytes."""
    shell = Shell(session_of())
    for number in range(6):
        shell.client_sends(produce_of(200, correlation_id=number))
    answers = b"".join(produce_answer(correlation_id=number) for number in range(good))
    with pytest.raises(BrokerError) as caught:
        shell.broker_sends(answers + produce_answer(correlation_id=99))
    assert caught.value.good_end - 3 == len(answers)  # three bytes stand before them
    assert shell.session.bytes_to_client == len(answers)


def test_an_answer_that_no_request_asked_for_is_an_error() -> None:
    """So is one to a Produce without acks, and one to a request that is held."""
    for sent in (b"", produce_of(100, acks=0)):
        shell = Shell(session_of())
        shell.client_sends(sent)
        with pytest.raises(BrokerError):
            shell.broker_sends(produce_answer())
    held = Shell(session_of(produce_rate=1_000))
    held.client_sends(produce_of(3_000, acks=0))
    with pytest.raises(BrokerError):
        held.broker_sends(produce_answer())


ID = struct.pack(">i", 1)
BAD_ANSWERS = {
    "too short for a correlation id": (METADATA, 12, b"\0\0\0\3" + struct.pack(">i", 1)),
    "negative size": (METADATA, 12, struct.pack(">ii", -1, 1)),
    "a throttled Produce answer without a body": (PRODUCE, 3, struct.pack(">ii", 4, 1)),
    "a throttled Produce answer cut off": (PRODUCE, 9, sized(produce_answer()[4:20])),
    "a Produce answer of too many topics": (
        PRODUCE,
        9,
        sized(ID + b"\0\xff\xff\x7f" + bytes(50)),
    ),
    "a Fetch answer without a body": (FETCH, 12, struct.pack(">ii", 4, 1)),
    "a Fetch answer with tags beyond it": (
        FETCH,
        12,
        sized(struct.pack(">i", 1) + b"\x01\x05\x7f" + bytes(30)),
    ),
    "a JoinGroup answer without an error": (JOIN_GROUP, 9, sized(struct.pack(">i", 1) + b"\0" + bytes(5))),
    "an ApiVersions answer cut off": (API_VERSIONS, 3, sized(struct.pack(">ihb", 1, 0, 9))),
}


@pytest.mark.parametrize(("api_key", "version", "bad"), BAD_ANSWERS.values(), ids=BAD_ANSWERS)
def test_a_broken_answer_is_an_error_that_names_api_and_version(
    api_key: int, version: int, bad: bytes
) -> None:
    shell = Shell(session_of(produce_rate=1, fetch_rate=1))
    if api_key == PRODUCE:
        shell.client_sends(produce_of(200, version=version))
    else:
        body = {"groupId": "g"} if api_key == JOIN_GROUP else {}
        shell.client_sends(request(api_key, version, dict(body)))
    with pytest.raises(BrokerMalformed) as caught:
        shell.broker_sends(bad)
    assert caught.value.cause is DisconnectCause.BROKER_MALFORMED
    assert (caught.value.api_key, caught.value.api_version) == (api_key, version)
    assert shell.to_client == b""


def test_a_broken_answer_is_told_with_the_offset_in_its_frame() -> None:
    """Wherever in the buffer it stands: behind another answer, say. Tags of 127 bytes begin at 11."""
    shell = Shell(session_of(fetch_rate=1))
    shell.client_sends(GOOD + fetch(correlation_id=1))
    bad = sized(struct.pack(">i", 1) + b"\x01\x05\x7f" + bytes(30))
    with pytest.raises(BrokerMalformed) as caught:
        shell.broker_sends(answer(METADATA, 12, correlation_id=77) + bad)
    assert str(caught.value).endswith("api Fetch (1), version 12, offset 11")


def test_an_authentication_answer_that_cannot_be_kept_is_an_error() -> None:
    """Passed on unread, it would leave the connection waiting for ever for the yes that was in it."""
    shell = Shell(session_of(policy=SASL))
    shell.client_sends(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    with pytest.raises(BrokerMalformed):
        shell.broker_sends(struct.pack(">ii", 600 * KIB, 1) + bytes(1_000))


def test_answers_that_end_in_the_midst_leave_the_connection_unfinished() -> None:
    shell = (
        Playbook(session_of())
        >> Client(fetch())
        << ToBroker(fetch())
        >> Broker(fetch_answer_of(9_000)[:5_000])
        << ToClient(fetch_answer_of(9_000)[:5_000])
    ).done()
    shell.session.client_closed(DisconnectCause.CLIENT_CLOSED)
    assert not shell.session.finished


def test_every_error_has_a_cause_that_is_counted() -> None:
    errors = {ProtocolError}
    while any(not set(error.__subclasses__()) <= errors for error in errors):
        errors |= {subclass for error in errors for subclass in error.__subclasses__()}
    assert len(errors) >= 9
    assert {error.cause for error in errors} <= set(DisconnectCause)
