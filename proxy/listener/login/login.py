"""Logs the proxy in at a broker: its bytes in, ours out, on a connection on which nothing else is under way.

SaslHandshake v1, then SaslAuthenticate v2, which every supported broker knows (since Kafka 2.4), so that no
ApiVersions is asked. Knows no socket and no clock; no error tells a secret, not even if the broker does.
Source: SaslClientAuthenticator; KIP-152, KIP-368.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from sluice.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, ErrorCode
from sluice.protocol.errors import ProtocolError
from sluice.protocol.headers import (
    REQUEST_HEAD,
    RESPONSE_HEAD,
    RESPONSE_HEAD_BYTES,
    SIZE_BYTES,
    response_body,
)
from sluice.protocol.primitives import INT16, Buffer
from sluice.protocol.sasl import read_authenticate_response, read_handshake_response
from sluice.protocol.sasl_client import MECHANISMS, SaslClientError
from sluice.proxy.listener.login.credential_entries import Credentials
from sluice.proxy.session.causes import DisconnectCause

FIRST_CORRELATION_ID: Final = 2**31 - 8
"""Kafka's clients keep the last eight ids for SASL, for nothing else (SaslClientAuthenticator)."""
MAX_ANSWER_BYTES: Final = 65_536
_ERROR_NAMES: Final = {
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "UNSUPPORTED_SASL_MECHANISM",
    ErrorCode.ILLEGAL_SASL_STATE: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SASL_AUTHENTICATION_FAILED",
}
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2
_MAX_CLIENT_ID_BYTES: Final = 32_767
_SHOWN_CHARACTERS: Final = 300
_SHOWN_MECHANISMS: Final = 16
_MECHANISM_NAME: Final = re.compile(r"[A-Z0-9_-]{1,20}")
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")


class UpstreamLoginError(ProtocolError):
    """The broker does not let the proxy in, or what it says is no answer: the connection must end."""

    cause = DisconnectCause.UPSTREAM_LOGIN_FAILED.value

    def __init__(
        self,
        reason: str,
        *,
        mechanism: str,
        error_code: int = 0,
        broker_message: str = "",
        offered: tuple[str, ...] = (),
    ) -> None:
        self.mechanism = mechanism
        self.error_code = error_code
        """the broker's; 0: it refused nothing, but broke the protocol or closed"""
        self.broker_message = broker_message
        """in its own words, printable, cut, and without the secret"""
        self.offered = offered
        """the mechanisms that the broker has, if it does not have this one"""
        parts = [f"{mechanism} login at the broker: {reason}"]
        if error_code:
            parts.append(f"error {error_code} {_ERROR_NAMES.get(error_code, '')}".rstrip())
        if broker_message:
            parts.append(f"the broker says: {broker_message}")
        if offered:
            parts.append(f"it offers {', '.join(offered)}")
        super().__init__("; ".join(parts))


class _State(Enum):
    NEW = "new"
    HANDSHAKE = "SaslHandshake sent"
    AUTHENTICATE = "SaslAuthenticate sent"
    DONE = "done"
    DEAD = "dead"


class UpstreamLogin:
    """One login; a re-authentication (KIP-368) is another one, on the same connection.

                 start                     error 0                             the mechanism is content
            NEW ───────► HANDSHAKE ─────────────────► AUTHENTICATE ──────────────────────────► DONE
                                                        │      ▲
                                                        └──────┘ a challenge

    Anything else raises UpstreamLoginError and leaves DEAD: then the connection must end, for nobody knows
    what the broker thinks. What `received` is given must be answers to this login alone, so a
    re-authentication begins when all requests are answered; and no request may go before `done`: the broker
    ends the connection on any other API.
    """

    __slots__ = (
        "_awaited_id",
        "_client",
        "_client_id",
        "_frame",
        "_max_answer_bytes",
        "_mechanism",
        "_secret",
        "_state",
        "session_lifetime_ms",
    )

    def __init__(
        self,
        mechanism: str,
        credentials: Credentials,
        *,
        client_id: str,
        nonce: str,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        """`nonce`: as ScramClient wants it; another one for each login, not used by PLAIN and OAUTHBEARER.

        Raises ValueError if `mechanism` is unknown, or cannot carry `credentials` or `nonce`, or if the
        `client_id`, which brokers show in their logs and metrics, is longer than 32,767 bytes.
        """
        if mechanism not in MECHANISMS:
            raise ValueError(f"{mechanism} is none of {', '.join(MECHANISMS)}")
        self._mechanism = mechanism
        self._client = credentials.client(mechanism, nonce)
        self._secret = credentials.secret
        self._client_id = client_id.encode()
        if len(self._client_id) > _MAX_CLIENT_ID_BYTES:
            raise ValueError("the client id is too long")
        self._max_answer_bytes = max_answer_bytes
        self._state = _State.NEW
        self._frame = bytearray()  # of the answer, as far as it has come
        self._awaited_id = FIRST_CORRELATION_ID - 1
        self.session_lifetime_ms = 0
        """once done: after this time the broker wants a new login, else it ends the connection; 0: never"""

    def __repr__(self) -> str:
        return f"<UpstreamLogin {self._mechanism}, {self._state.value}>"

    @property
    def done(self) -> bool:
        """The broker has said yes: any request may be sent."""
        return self._state is _State.DONE

    def start(self) -> bytes:
        """The first frame to send. Called once."""
        self._take("start", _State.NEW)
        name = self._mechanism.encode()
        frame = self._request(SASL_HANDSHAKE, _HANDSHAKE_VERSION, INT16.pack(len(name)) + name)
        self._state = _State.HANDSHAKE
        return frame

    def received(self, buf: Buffer, start: int, end: int) -> tuple[int, bytes]:
        """What the broker sent, `buf[start:end]`, in any pieces → (how many bytes were taken, what to send).

        All is taken and kept, until `done`: what then stands behind the last answer is not ours. Empty bytes:
        there is nothing to send (yet). Raises UpstreamLoginError: the broker refuses (`error_code`), or its
        bytes are not the answer that is awaited: too large, of another correlation id, malformed, too much.
        """
        state = self._take("an answer", _State.HANDSHAKE, _State.AUTHENTICATE)
        taken = self._fill(buf, start, end, SIZE_BYTES)
        size = self._size()
        taken += self._fill(buf, start + taken, end, SIZE_BYTES + size)
        if size == 0 or len(self._frame) < SIZE_BYTES + size:
            self._state = state
            return taken, b""
        answer, self._frame = self._frame, bytearray()
        try:
            body = self._body(answer, state)
            reply = (
                self._on_handshake(answer, body)
                if state is _State.HANDSHAKE
                else self._on_authenticate(answer, body)
            )
        except UpstreamLoginError:
            raise
        except ProtocolError as error:  # of the readers: their words quote nothing
            reason = f"its answer cannot be read: {error}"
        else:
            if reply and taken < end - start:
                raise self._error("it sent more than it was asked for")
            self._state = _State.AUTHENTICATE if reply else _State.DONE
            return taken, reply
        raise self._error(reason)  # raised outside: no chain

    def broker_closed(self) -> UpstreamLoginError:
        """The error to raise when the broker has ended the connection before `done`."""
        state, self._state = self._state, _State.DEAD
        hint = ""
        if state is _State.HANDSHAKE:
            hint = "; does its listener speak SASL, with or without TLS as configured here?"
        elif state is _State.AUTHENTICATE:
            hint = "; some brokers do this instead of refusing"
        return self._error(f"it closed the connection ({state.value}){hint}")

    def _take(self, event: str, *states: _State) -> _State:
        """Begin an event that is legal in `states`. Dead until the event has gone well."""
        state, self._state = self._state, _State.DEAD
        if state not in states:
            raise self._error(f"{event} is out of turn ({state.value})")
        return state

    def _fill(self, buf: Buffer, start: int, end: int, wanted: int) -> int:
        """Take bytes until the frame has `wanted`; how many were taken."""
        stop = min(end, start + max(0, wanted - len(self._frame)))
        self._frame += buf[start:stop]
        return stop - start

    def _size(self) -> int:
        """Size of the answer behind its size field; 0: not there yet. Raises what is wrong with it."""
        if len(self._frame) < SIZE_BYTES:
            return 0
        size = int.from_bytes(self._frame[:SIZE_BYTES], "big", signed=True)
        if bytes(self._frame[:2]) in _TLS_RECORDS:
            raise self._error("it speaks TLS; set upstream_security_protocol: SASL_SSL")
        if not RESPONSE_HEAD_BYTES - SIZE_BYTES <= size <= self._max_answer_bytes:
            raise self._error(f"an answer of {size} bytes, at most {self._max_answer_bytes} are taken")
        return size

    def _body(self, answer: bytearray, state: _State) -> int:
        """Offset of the answer's body."""
        _, correlation_id = RESPONSE_HEAD.unpack_from(answer)
        if correlation_id != self._awaited_id:
            raise self._error(f"an answer to request {correlation_id}, awaited is {self._awaited_id}")
        if state is _State.HANDSHAKE:
            return response_body(answer, 0, len(answer), SASL_HANDSHAKE, _HANDSHAKE_VERSION)
        return response_body(answer, 0, len(answer), SASL_AUTHENTICATE, _AUTHENTICATE_VERSION)

    def _on_handshake(self, answer: bytearray, body: int) -> bytes:
        error_code, offered = read_handshake_response(answer, body, len(answer), _HANDSHAKE_VERSION)
        if error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._error("its listener has no SASL, or wants no new login now", error_code)
        if error_code != 0:
            raise self._error("it does not take this mechanism", error_code, offered=offered)
        return self._authenticate(self._client.first())

    def _on_authenticate(self, answer: bytearray, body: int) -> bytes:
        """The next frame; empty: done."""
        found = read_authenticate_response(answer, body, len(answer), _AUTHENTICATE_VERSION)
        if found.error_code != 0:
            raise self._error("refused", found.error_code, found.error_message or "")
        try:
            message = self._client.respond(bytes(answer[found.token_start : found.token_end]))
        except SaslClientError as error:
            reason = str(error)
        else:
            if message is not None:
                return self._authenticate(message)
            self.session_lifetime_ms = max(0, found.session_lifetime_ms)  # below 0 is none, to Kafka's client
            return b""
        raise self._error(reason)

    def _authenticate(self, message: bytes) -> bytes:
        body = b"\0" + _uvarint(len(message) + 1) + message + b"\0"  # header's tags; the message; body's tags
        return self._request(SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, body)

    def _request(self, api_key: int, version: int, rest: bytes) -> bytes:
        self._awaited_id += 1
        size = REQUEST_HEAD.size - SIZE_BYTES + len(self._client_id) + len(rest)
        head = REQUEST_HEAD.pack(size, api_key, version, self._awaited_id, len(self._client_id))
        return head + self._client_id + rest

    def _error(
        self, reason: str, error_code: int = 0, broker_message: str = "", offered: tuple[str, ...] = ()
    ) -> UpstreamLoginError:
        says = ", ".join(
            filter(None, (self._without_secret(broker_message), self._without_secret(self._client.refusal)))
        )
        return UpstreamLoginError(
            reason,
            mechanism=self._mechanism,
            error_code=error_code,
            broker_message=says,
            offered=tuple(name for name in offered if _MECHANISM_NAME.fullmatch(name))[:_SHOWN_MECHANISMS],
        )

    def _without_secret(self, text: str) -> str:
        """What a broker says, fit for a log."""
        text = text.replace(self._secret.get_secret_value(), "***")
        text = "".join(character if character.isprintable() else "?" for character in text)
        return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def reauthenticate_after_ms(session_lifetime_ms: int, random_share: float) -> int:
    """When to log in again, as Kafka's clients do: after 85 to 95 % of the session, by `random_share`.

    Early, so that the clocks and the way may differ; at random, so that not all connections do it at once.
    Source: SaslClientAuthenticator.ReauthInfo.
    """
    return int(session_lifetime_ms * (0.85 + 0.10 * random_share))


def _uvarint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
