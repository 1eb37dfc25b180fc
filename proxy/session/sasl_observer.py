"""Observes one connection's SASL authentication as it passes: who is this, once the broker has said yes?

Takes part in nothing and changes no byte. The session makes one at a connection's first SaslHandshake and
hands it the bodies of whole SaslHandshake and SaslAuthenticate frames, and the bare tokens of handshake v0.
Knows no socket, no clock, no quota. Binding: wire-semantics 4.6 and 5. Source: SaslServerAuthenticator;
KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, assert_never

from sluice.protocol.apis import ErrorCode
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.protocol.primitives import Buffer
from sluice.protocol.sasl import (
    OAUTHBEARER_GIVE_UP,
    is_scram_challenge,
    locate_auth_bytes,
    oauthbearer_user,
    plain_user,
    read_authenticate_response,
    read_handshake_request,
    read_handshake_response,
    scram_accepted,
    scram_client,
)
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.token_owners import TokenOwners
from sluice.quotas.entity import DELEGATION_TOKEN_USER, UNKNOWN_USER, UNNAMED_USERS

_MECHANISM_NAME: Final = re.compile(r"[A-Z0-9_-]+")


class AuthenticationFailed(ProtocolError):
    """An exchange that cannot be followed, or a name that may not be claimed: no principal comes of it."""

    cause = DisconnectCause.AUTHENTICATION_FAILED.value


class PrincipalChanged(ProtocolError):
    """The broker let a re-authentication name another principal; Kafka's never does (KIP-368)."""

    cause = DisconnectCause.PRINCIPAL_CHANGED.value


class _State(Enum):
    IDLE = "idle"
    HANDSHAKE = "handshake"
    CLIENT_TURN = "client's turn"
    BROKER_TURN = "broker's turn"
    OPAQUE = "opaque"
    REFUSAL_DUE = "refusal due"
    DEAD = "dead"


class _Mechanism(Enum):
    PLAIN = "PLAIN"
    SCRAM = "SCRAM"
    OAUTHBEARER = "OAUTHBEARER"
    OPAQUE = "opaque"


class SaslWatch:
    """The state machine of one connection's authentications.

                SaslHandshake                error 0                   token
        IDLE ─────────────────► HANDSHAKE ────────────► CLIENT_TURN ──────────► BROKER_TURN
         ▲ ▲                        │                        ▲                   │ │ │ │
         │ │  any error (33, 34 …): │                        │   a challenge     │ │ │ │
         │ └── nothing has begun ───┘                        └───────────────────┘ │ │ │
         └─────────────────────────── yes: `user` is set ──────────────────────────┘ │ │
                                                             no, or e= ──► DEAD ◄────┘ │
        OPAQUE ◄── error 0, the mechanism is opaque: `user` is UNKNOWN_USER ───────────┘
          └── SaslAuthenticate ──► BROKER_TURN     └── SaslHandshake ──► HANDSHAKE

        IDLE, with a user ── SaslAuthenticate ──► REFUSAL_DUE ── error 34 ──► IDLE; any other answer ──► DEAD

    The last line: a broker refuses a re-authentication within a second of the last one, handshake and token
    alike, and goes on. Nobody is believed by it.

    Any other event in any state, and any frame that cannot be read, raises ProtocolError and leaves DEAD:
    nothing is believed after a surprise. The broker closes a connection whose authentication failed; the
    session closes it when a method raises, without passing on what raised.

    What counts as the broker's yes:
      PLAIN        the answer to the one message: error 0; with bare tokens an empty one (a refusal closes).
      SCRAM        the server-final `v=` answering the second message, after a server-first to the first.
      OAUTHBEARER  error 0 with no bytes. Bytes are a refusal: the client answers ^A, the broker then fails
                   the exchange.
      opaque       (GSSAPI, AWS_MSK_IAM, …) any error 0. Whether more rounds follow cannot be seen, and need
                   not: the name is nobody's, and until the exchange is over the broker serves nothing else.

    An opaque mechanism with handshake v0 is refused: its last token has no answer, so it could not be seen
    where requests, and all that is metered, begin. Clients since Kafka 1.0 use v1 (KIP-152).

    A client message that names nobody we can read (malformed, an authzid that is not the user, …) is passed
    on, so that the client gets the broker's own refusal; should the broker accept it, the connection ends.
    """

    __slots__ = (
        "_bare",
        "_claim",
        "_mechanism",
        "_oauth_claim",
        "_rounds",
        "_state",
        "_tokens",
        "awaiting_broker",
        "failed",
        "in_exchange",
        "raw_tokens",
        "session_lifetime_ms",
        "user",
    )

    def __init__(self, oauth_claim: str = "sub", tokens: TokenOwners | None = None) -> None:
        """`oauth_claim`: the JWT claim that names the principal (broker: sasl.oauthbearer.sub.claim.name).

        `tokens`: whose delegation tokens are known; None: nobody's.
        """
        self.user: str | None = None
        """the principal's name, without its type, from the broker's yes on; changes afterwards only from
        DELEGATION_TOKEN_USER to the owner, once he is known"""
        self.awaiting_broker = False
        """nothing of the client may be forwarded (nor handed to this object) before the broker's answer"""
        self.in_exchange = False
        """no other request may come now: the broker would refuse it, so the session ends the connection"""
        self.raw_tokens = False
        """handshake v0: the client's next frame and the broker's answer are bare tokens behind their size"""
        self.failed = False
        """the broker said no (or something raised): if it closes now, the cause is authentication_failed"""
        self.session_lifetime_ms = 0
        """as this exchange's last answer told it (KIP-368); 0: not yet, or none, as with version 0"""
        self._oauth_claim = oauth_claim
        self._tokens = tokens
        self._state = _State.IDLE
        self._mechanism = _Mechanism.OPAQUE
        self._claim: str | None = None  # whom the client says it is; None: we cannot tell
        self._bare = False  # tokens without a header are to come if the broker takes the mechanism
        self._rounds = 0  # messages of the client in this exchange

    def __repr__(self) -> str:
        return (
            f"<SaslWatch {self._state.value}, {self._mechanism.value}, "
            f"{self._rounds} rounds, user {self.user!r}>"
        )

    def on_handshake_request(self, buf: Buffer, pos: int, end: int, version: int) -> None:
        """The client chose a mechanism; body `buf[pos:end]` of a SaslHandshake request v0–1.

        Raises AuthenticationFailed for an opaque mechanism with v0, or a name that no mechanism has (RFC
        4422, 3.1: a broker that ignores case must not make a known mechanism opaque to us).
        """
        self._take("SaslHandshake", _State.IDLE, _State.OPAQUE)
        name = read_handshake_request(buf, pos, end, version)
        if not _MECHANISM_NAME.fullmatch(name):
            raise AuthenticationFailed("not the name of a SASL mechanism")
        self._mechanism = _mechanism(name)
        if self._mechanism is _Mechanism.OPAQUE and version == 0:
            raise AuthenticationFailed("SaslHandshake v0 with a mechanism whose end cannot be seen")
        self._bare = version == 0
        self._rounds = self.session_lifetime_ms = 0
        self._enter(_State.HANDSHAKE)

    def on_handshake_response(self, buf: Buffer, pos: int, end: int, version: int) -> None:
        """The broker took the mechanism (error 0), or not: then nothing has begun, and `user` stays as it
        was.

        33 UNSUPPORTED_SASL_MECHANISM: the broker closes. 34 ILLEGAL_SASL_STATE: a listener without SASL, or
        one that wants no re-authentication now; the connection goes on. `version` is the request's.
        """
        self._take("a SaslHandshake answer", _State.HANDSHAKE)
        error_code, _ = read_handshake_response(buf, pos, end, version)
        if error_code == 0:
            self.raw_tokens = self._bare
            self._enter(_State.CLIENT_TURN)
        else:
            self._enter(_State.IDLE)

    def on_authenticate_request(self, buf: Buffer, pos: int, end: int, version: int) -> None:
        """The client's next message; body of a SaslAuthenticate request v0–2."""
        is_stray = self._state is _State.IDLE and self.user is not None
        self._take("SaslAuthenticate", _State.IDLE if is_stray else _State.CLIENT_TURN, _State.OPAQUE)
        start, stop = locate_auth_bytes(buf, pos, end, version)
        if is_stray:
            self._enter(_State.REFUSAL_DUE)
        else:
            self._client_spoke(bytes(buf[start:stop]))

    def on_authenticate_response(self, buf: Buffer, pos: int, end: int, version: int) -> bool:
        """The broker's answer to it; `version` is the request's. True: `user` was established (again).

        Raises PrincipalChanged if the broker accepted another principal than `user`.
        """
        is_refusal_due = self._state is _State.REFUSAL_DUE
        self._take("a SaslAuthenticate answer", _State.BROKER_TURN, _State.REFUSAL_DUE)
        answer = read_authenticate_response(buf, pos, end, version)
        if is_refusal_due:
            if answer.error_code == 0:
                raise AuthenticationFailed("the broker accepted a message that no handshake was before")
            if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
                self._enter(_State.IDLE)
            return False
        if answer.error_code != 0:
            return False  # and dead, as `_take` left it
        self.session_lifetime_ms = answer.session_lifetime_ms
        return self._broker_spoke(bytes(buf[answer.token_start : answer.token_end]))

    def on_raw_token_from_client(self, buf: Buffer, pos: int, end: int) -> None:
        """The client's next message after a SaslHandshake v0: `buf[pos:end]`, behind the size."""
        self._take("a bare token", _State.CLIENT_TURN, raw=True)
        self._client_spoke(bytes(buf[pos:end]))

    def on_raw_token_from_broker(self, buf: Buffer, pos: int, end: int) -> bool:
        """The broker's bare answer; as `on_authenticate_response`. After True, frames have headers again."""
        self._take("a bare answer", _State.BROKER_TURN, raw=True)
        return self._broker_spoke(bytes(buf[pos:end]))

    def _client_spoke(self, message: bytes) -> None:
        self._rounds += 1
        if self._rounds == 1:
            self._claim = self._named_by(message)
        elif self._mechanism is _Mechanism.OAUTHBEARER and message != OAUTHBEARER_GIVE_UP:
            raise AuthenticationFailed("OAUTHBEARER goes on after a refusal")
        self._enter(_State.BROKER_TURN)

    def _named_by(self, message: bytes) -> str | None:
        """Whom the first message of an exchange names; None if nobody we can read."""
        try:
            match self._mechanism:
                case _Mechanism.PLAIN:
                    name: str | None = plain_user(message)
                case _Mechanism.SCRAM:
                    name, is_token = scram_client(message)
                    if is_token:
                        return self._token_user(name)
                case _Mechanism.OAUTHBEARER:
                    name = oauthbearer_user(message, self._oauth_claim)
                    if name is None:
                        return UNKNOWN_USER
                case _Mechanism.OPAQUE:
                    return UNKNOWN_USER
                case _:
                    assert_never(self._mechanism)
        except MalformedFrame:
            return None
        if name in UNNAMED_USERS:
            raise AuthenticationFailed("a reserved name is claimed")
        return name

    def _token_user(self, token_id: str) -> str:
        """Whose token it is, as far as is known here.

        A connection that has a principal keeps it with a token that is not known: the broker lets nobody
        change his principal (KIP-368). For the same reason one whose owner was not known may be named later.
        """
        owner = None if self._tokens is None else self._tokens.owner_of(token_id)
        if owner is not None and owner not in UNNAMED_USERS:
            return owner
        return self.user or DELEGATION_TOKEN_USER

    def _broker_spoke(self, message: bytes) -> bool:
        """The broker's answer, error 0 or bare, to the client's message number `_rounds`."""
        match self._mechanism:
            case _Mechanism.PLAIN:
                if message and self.raw_tokens:
                    raise AuthenticationFailed("a bare PLAIN answer that is not empty")
                return self._accepted(_State.IDLE)
            case _Mechanism.SCRAM:
                if self._rounds > 1:
                    return scram_accepted(message) and self._accepted(_State.IDLE)
                if not is_scram_challenge(message):
                    raise AuthenticationFailed("the first SCRAM answer is no challenge")
            case _Mechanism.OAUTHBEARER:
                if self._rounds > 1:
                    raise AuthenticationFailed("the broker goes on after an OAUTHBEARER refusal")
                if not message:
                    return self._accepted(_State.IDLE)
            case _Mechanism.OPAQUE:
                return self._accepted(_State.OPAQUE)
            case _:
                assert_never(self._mechanism)
        self._enter(_State.CLIENT_TURN)
        return False

    def _accepted(self, state: _State) -> bool:
        if self._claim is None:
            raise AuthenticationFailed("the broker accepted a message that names nobody we can read")
        if self.user not in {None, self._claim, DELEGATION_TOKEN_USER}:
            raise PrincipalChanged("re-authentication names another principal")
        self.user = self._claim
        self.raw_tokens = False
        self._enter(state)
        return True

    def _take(self, event: str, *states: _State, raw: bool = False) -> None:
        """Begin an event that is legal in `states`. Dead until `_enter` says otherwise: no error path can
        forget it.
        """
        before = self._state
        self._enter(_State.DEAD)
        if before is _State.DEAD:
            raise AuthenticationFailed(f"{event} after a failed authentication")
        if before not in states or raw is not self.raw_tokens:
            raise ProtocolError(f"{event} is out of turn ({before.value})")

    def _enter(self, state: _State) -> None:
        self._state = state
        self.awaiting_broker = state in {_State.HANDSHAKE, _State.BROKER_TURN, _State.REFUSAL_DUE}
        self.in_exchange = state not in {_State.IDLE, _State.OPAQUE}
        self.failed = state is _State.DEAD


def _mechanism(name: str) -> _Mechanism:
    """The reader of a mechanism's messages. All of SCRAM's hash functions share one."""
    if name.startswith("SCRAM-SHA-"):
        return _Mechanism.SCRAM
    return {"PLAIN": _Mechanism.PLAIN, "OAUTHBEARER": _Mechanism.OAUTHBEARER}.get(name, _Mechanism.OPAQUE)
