"""Authentication as it passes between client and broker: which frames carry it, and what the session may do
meanwhile.

Frames in, principal out; SaslWatch knows the mechanisms. Nothing follows a SaslHandshake or SaslAuthenticate
before its answer, and a principal counts once the broker has said yes (wire-semantics 4.6). Pure.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.apis import SASL_HANDSHAKE
from sluice.protocol.errors import FrameTooLarge
from sluice.protocol.headers import SIZE_BYTES, request_body, response_body
from sluice.proxy.session.in_flight import AnswerWork
from sluice.proxy.session.sasl_observer import SaslWatch
from sluice.proxy.session.token_owners import TokenOwners

WHOLE_MAX_BYTES: Final = 512 * 1024
"""Largest size of a frame that is kept until it is whole: half the receive buffer, and Kafka's own limit
before a login."""


class Authentication:
    """One connection's. Costs nothing until the first SaslHandshake: idle connections number thousands."""

    __slots__ = ("_claim", "_tokens", "_watch")

    def __init__(self, oauthbearer_principal_claim: str, tokens: TokenOwners) -> None:
        self._claim = oauthbearer_principal_claim
        self._tokens = tokens
        self._watch: SaslWatch | None = None

    @property
    def raw_tokens(self) -> bool:
        """The next frames are bare tokens: a size, no header (SaslHandshake v0)."""
        return self._watch is not None and self._watch.raw_tokens

    @property
    def failed(self) -> bool:
        """The broker said no: if it closes now, that is why."""
        return self._watch is not None and self._watch.failed

    @property
    def session_lifetime_ms(self) -> int:
        """How long the session is that the broker's last yes began; 0: not told."""
        return 0 if self._watch is None else self._watch.session_lifetime_ms

    @staticmethod
    def check_whole(end: int, pos: int, frame_end: int, max_bytes: int) -> bool:
        """Has the frame arrived whole, as it must? Raises FrameTooLarge for one that cannot be kept until
        then."""
        size = frame_end - pos - SIZE_BYTES
        if size > max_bytes:
            raise FrameTooLarge(f"{size} bytes to authenticate with, the limit is {max_bytes}")
        return frame_end <= end

    def request(
        self, buf: bytearray, client_id_end: int, frame_end: int, api_key: int, version: int
    ) -> AnswerWork:
        """A SaslHandshake or SaslAuthenticate goes on; returns the work that its answer will need."""
        body = request_body(buf, client_id_end, frame_end, api_key, version)
        watch = self._watch
        if watch is None:
            watch = self._watch = SaslWatch(self._claim, self._tokens)
        if api_key == SASL_HANDSHAKE:
            watch.on_handshake_request(buf, body, frame_end, version)
            return AnswerWork.HANDSHAKE
        watch.on_authenticate_request(buf, body, frame_end, version)
        return AnswerWork.AUTHENTICATE

    def answer(self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int) -> str | None:
        """The broker's answer to `request`. Returns the user's name if it said yes."""
        watch = self._watch
        assert watch is not None
        body = response_body(buf, pos, frame_end, api_key, version)
        if api_key == SASL_HANDSHAKE:
            watch.on_handshake_response(buf, body, frame_end, version)
            return None
        return watch.user if watch.on_authenticate_response(buf, body, frame_end, version) else None

    def raw_token(self, buf: bytearray, pos: int, end: int) -> None:
        """A bare token goes on."""
        assert self._watch is not None
        self._watch.on_raw_token_from_client(buf, pos, end)

    def raw_answer(self, buf: bytearray, pos: int, end: int) -> str | None:
        """The broker's bare token. Returns the user's name if it said yes."""
        assert self._watch is not None
        return self._watch.user if self._watch.on_raw_token_from_broker(buf, pos, end) else None
