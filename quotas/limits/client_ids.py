"""By which text a client id is kept in buckets, records and tables: itself, or a beginning and a digest.

A client may send 32,767 bytes, which Python keeps as up to 131 KB, with each name that it thinks of. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from sluice.quotas.entity import ClientPart, Prefix

MAX_CLIENT_ID: Final = 256
"""characters; a longer one is kept by a digest, and no more of any is told in the access log"""
_DIGEST_BYTES: Final = 16
"""who wants another's bucket has to find a second text with its digest: 2¹²⁸ tries"""


class ClientIds:
    """The client ids that limits and exempt rules name, as far as they say how one is kept."""

    __slots__ = ("_long", "longest_prefix")

    def __init__(self, exempt: Iterable[str | None] = ()) -> None:
        """`exempt`: those in exempt rules."""
        self._long: dict[str, str] = {}  # by themselves, so that one object serves all
        self.longest_prefix = 0
        """characters, of those with a limit"""
        for name in exempt:
            self.add(name)

    def add(self, name: ClientPart) -> None:
        """It has a limit."""
        if isinstance(name, Prefix):
            self.longest_prefix = max(self.longest_prefix, len(name.text))
        elif isinstance(name, str) and len(name) > MAX_CLIENT_ID:
            self._long[name] = name

    def kept(self, client_id: str) -> str:
        """What stands for this client id: the limits find the same for it, and for no two it is the same.

        Itself, if it is short, or named. Any other's first characters, as many as a prefix or the access log
        can want, and the digest of the whole; that is longer than what is kept as itself.
        """
        most = max(MAX_CLIENT_ID, self.longest_prefix)
        if len(client_id) <= most:
            return client_id
        named = self._long.get(client_id)
        if named is not None:
            return named
        whole = client_id.encode(errors="surrogatepass")
        return f"{client_id[:most]}#{blake2b(whole, digest_size=_DIGEST_BYTES).hexdigest()}"
