"""Whose delegation tokens are known: learned from the broker's own answers as they pass. Pure.

A SCRAM login with a token (`tokenauth=true`) names the token's id, not its owner, for whom Kafka counts what
the connection does. Answers to CreateDelegationToken and DescribeDelegationToken name both. Bounded, for
clients make tokens: an owner with more than his share loses his own oldest. Source: KIP-48; wire-semantics
4.4, 4.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.errors import ProtocolError

MAX_TOKENS: Final = 20_000
"""of all owners; some 200 bytes each"""
MAX_TOKENS_OF_OWNER: Final = 1_000
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

    def learn_from(self, frame: bytes, api_key: int, version: int) -> None:
        """The broker's answer to one of TOKEN_APIS, without its size. What cannot be read is passed over."""
        try:
            body = decode_frame("response", api_key, version, frame).body
        except ProtocolError:
            return
        for token_id, owner in _tokens(api_key, body):
            self.learn(token_id, owner)


def _tokens(api_key: int, body: Any) -> Iterator[tuple[str, str]]:
    """(token id, owner) of each token in an answer."""
    if body["errorCode"]:
        return
    for token in [body] if api_key == ApiKey.CREATE_DELEGATION_TOKEN else body["tokens"]:
        if token["principalType"] == _USER_TYPE and token["tokenId"]:
            yield token["tokenId"], token["principalName"]
