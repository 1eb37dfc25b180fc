"""A broker at which the proxy logs in, its answers one by one, and a login that is fed with them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from sluice.proxy.listener.login.credential_entries import Credentials, PasswordCredentials, TokenCredentials
from sluice.proxy.listener.login.login import FIRST_CORRELATION_ID, UpstreamLogin, UpstreamLoginError
from testkit.frames.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, answer, decoded
from testkit.peers.scram_server import ScramServer

SECRET = "hunter2-hunter2"
GARBAGE = b"\xff\xff\xff\xffsomebody else's"
"""Before `start` and behind `end`: must never be looked at."""


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
