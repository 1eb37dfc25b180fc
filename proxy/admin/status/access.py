"""Who may see the status page: this machine's loopback, or who has the token. Pure.

    from                   without the token                                     with it
    loopback               yes, if Host is localhost, an address, or listed      yes
                           (token_on_loopback: no, 401)
    elsewhere              no: 401; where there is no token, 403                 yes

Host: a page of another site can make its own name lead to 127.0.0.1 (DNS rebinding) and so ask as this
machine's browser. It cannot do so under an address or `localhost`, nor does it have the token.
A request that another server passed on came from elsewhere, whatever the connection's address says.
The token comes as `Authorization: Bearer TOKEN`, or, from browsers, as the password of `Basic` (any user).
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from secrets import compare_digest
from typing import Final

CHALLENGE: Final = 'Basic realm="Sluice status: any user, the token as password", charset="UTF-8"'
_PASSED_ON: Final = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The HTTP status and what to do about it."""

    status: int
    title: str
    detail: str


class Access:
    """The rule of one process. `digest` may be set anew when the token's file has changed."""

    __slots__ = ("_hosts", "_token_on_loopback", "digest")

    def __init__(
        self,
        digest: bytes | None = None,
        hosts: Collection[str] = (),
        *,
        token_on_loopback: bool = False,
    ) -> None:
        """`digest`: of the token (digest_of); None: there is none. `hosts`: names besides localhost."""
        self.digest = digest
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._token_on_loopback = token_on_loopback

    def refusal(self, peer: str, headers: Mapping[str, str]) -> Refusal | None:
        """None: it may pass. `peer`: the connection's address; `headers`: looked up by names in
        lower case."""
        given = _token_of(headers.get("authorization", ""))
        if self.digest is not None and given is not None and compare_digest(digest_of(given), self.digest):
            return None
        is_here = _is_loopback(peer) and not any(name in headers for name in _PASSED_ON)
        if is_here and not self._token_on_loopback:
            host = host_name(headers.get("host", ""))
            if self._is_known(host):
                return None
            detail = (
                f"The name {host[:100]!r} may be another site's. Call this page by localhost or an address, "
                "list the name in admin.status.hosts, or send the token."
            )
            return Refusal(403, "Unknown host name", detail)
        if self.digest is None:
            detail = (
                "The status page is for this machine's loopback (kubectl port-forward, ssh -L). "
                "For elsewhere set admin.status.token_file."
            )
            return Refusal(403, "Only from loopback", detail)
        wrong = "missing" if given is None else "wrong"
        detail = f"The token is {wrong}. Send it as Authorization: Bearer TOKEN, or as the password."
        return Refusal(401, "A token is needed", detail)

    def _is_known(self, host: str) -> bool:
        return host == "localhost" or host in self._hosts or _is_address(host)


def digest_of(token: str) -> bytes:
    """Compared in place of the token: of one length, and no secret stays in memory."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def is_one_token(text: str) -> bool:
    """What a header can carry as a token: visible ASCII. Of two lines neither would open the page."""
    return bool(text) and all("!" <= character <= "~" for character in text)


def host_name(host: str) -> str:
    """The name in a Host header, without its port: `[::1]:9308` → `::1`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).rstrip(".")


def _token_of(authorization: str) -> str | None:
    scheme, _, value = authorization.strip().partition(" ")
    value = value.strip()
    if not value:
        return None
    if scheme.lower() == "bearer":
        return value
    if scheme.lower() == "basic":
        try:
            return b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:
            return None
    return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
