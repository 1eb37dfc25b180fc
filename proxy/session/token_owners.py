"""Whose delegation tokens are known: learned from the broker's own answers as they pass. Pure.

A SCRAM login with a token (`tokenauth=true`) names the token's id, not its owner, for whom Kafka counts what
the connection does. Answers to CreateDelegationToken and DescribeDelegationToken name both. Bounded, for
clients make tokens: an owner with more than his share loses his own oldest. Source: KIP-48; wire-semantics
4.4, 4.6.
"""

from __future__ import annotations

from typing import Any, Final

from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.delegation_tokens import read_tokens
from sluice.protocol.errors import ProtocolError
from sluice.protocol.headers import SIZE_BYTES, response_body

MAX_TOKENS: Final = 20_000
"""of all owners; some 200 bytes each"""
MAX_TOKENS_OF_OWNER: Final = 1_000
BRAKE_MS_PER_KIB: Final = 0.3
"""The brake behind an answer of which it is learned, for 0.1 ms are taken for each KiB at most: a connection
has a quarter of the time"""
_USER_TYPE: Final = "User"


class TokenOwners:
    """Token id → owner, shared by all connections of a process."""

    __slots__ = ("_by_owner", "_owners")

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._by_owner: dict[str, dict[str, None]] = {}  # ids of each owner, the oldest first

    def __len__(self) -> int:
        return len(self._owners)

    def owner_of(self, token_id: str) -> str | None:
        """The principal's name without its type; None: not known here."""
        return self._owners.get(token_id)

    def learn(self, token_id: str, owner: str) -> None:
        """The broker said whose it is. When all places are taken, the oldest of all is forgotten."""
        if self._owners.get(token_id) == owner:
            return
        self._forget(token_id)
        ids = self._by_owner.setdefault(owner, {})
        ids[token_id] = None
        self._owners[token_id] = owner
        if len(ids) > MAX_TOKENS_OF_OWNER:
            self._forget(next(iter(ids)))
        elif len(self._owners) > MAX_TOKENS:
            self._forget(next(iter(self._owners)))

    def _forget(self, token_id: str) -> None:
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            ids = self._by_owner[owner]
            del ids[token_id]
            if not ids:
                del self._by_owner[owner]

    def learn_from(self, buf: bytearray, pos: int, frame_end: int, api_key: int, version: int) -> None:
        """The broker's answer to one of TOKEN_APIS, `buf[pos:frame_end]`. What cannot be read is passed
        over."""
        try:
            if api_key == ApiKey.CREATE_DELEGATION_TOKEN:
                tokens = _created(bytes(buf[pos + SIZE_BYTES : frame_end]), version)
            else:
                body = response_body(buf, pos, frame_end, api_key, version)
                tokens = read_tokens(buf, body, frame_end, version)
        except ProtocolError:
            return
        for kind, owner, token_id in tokens:
            if kind == _USER_TYPE and token_id:
                self.learn(token_id, owner)


def _created(frame: bytes, version: int) -> list[tuple[str, str, str]]:
    """As `read_tokens`, of the token that was made."""
    body: Any = decode_frame("response", ApiKey.CREATE_DELEGATION_TOKEN, version, frame).body
    if body["errorCode"]:
        return []
    return [(body["principalType"], body["principalName"], body["tokenId"])]
