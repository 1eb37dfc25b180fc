"""Certificates of a PEM file → when they can be used: those of a chain all at once, authorities one by one.

OpenSSL takes them into a context whatever their dates; those who verify then refuse every connection. Pure.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final

from sluice.proxy.listener.tls.certificate_fields import issuer_and_subject, validity_unix_s

_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")


class NotInForce(ValueError):
    """`until_unix_s`: from then on it is in force; inf: it was, and has ended."""

    def __init__(self, message: str, until_unix_s: float) -> None:
        super().__init__(message)
        self.until_unix_s = until_unix_s


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is looked at of one; names as they are encoded."""

    number: int
    """its place in the file, from 1"""
    issuer: bytes
    subject: bytes
    begin_unix_s: float
    end_unix_s: float

    @property
    def is_self_signed(self) -> bool:
        """It names itself as its issuer."""
        return self.issuer == self.subject

    def is_in_force(self, now_unix_s: float, skew_s: float) -> bool:
        """It may begin so much later than now: by another clock it has begun."""
        return self.begin_unix_s <= now_unix_s + skew_s and now_unix_s <= self.end_unix_s

    def check(self, what: str, now_unix_s: float, skew_s: float) -> None:
        """Raises NotInForce, which begins with `what`."""
        if not self.is_in_force(now_unix_s, skew_s):
            if self.end_unix_s < now_unix_s:
                raise NotInForce(f"{what} ended on {_told(self.end_unix_s)}", inf)
            raise NotInForce(f"{what} begins on {_told(self.begin_unix_s)}", self.begin_unix_s)


def certificates(content: bytes) -> list[Certificate]:
    """Those of a PEM file, in its order. ValueError: the first is broken. What is so of the others is left
    to OpenSSL."""
    found = []
    for number, pem in enumerate(_CERTIFICATE.findall(content), start=1):
        try:
            der = ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))
            found.append(Certificate(number, *issuer_and_subject(der), *validity_unix_s(der)))
        except ValueError:
            if number == 1:
                raise
    return found


def check_chain(held: Sequence[Certificate], now_unix_s: float, skew_s: float) -> Certificate:
    """The one that ends first of a chain: the first, and those of the others that vouch for it. Raises
    NotInForce.

    Others may be there, and end as they like: a root, which clients have themselves, and authorities of
    another chain. Of several that vouch for one, one in force is enough.
    """
    one = held[0]
    one.check("its certificate", now_unix_s, skew_s)
    ends_first = one
    left = [each for each in held[1:] if not each.is_self_signed]
    while issuers := [each for each in left if each.subject == one.issuer]:
        one = next((each for each in issuers if each.is_in_force(now_unix_s, skew_s)), issuers[0])
        one.check(f"certificate {one.number} in it, of an authority of its chain,", now_unix_s, skew_s)
        ends_first = min(ends_first, one, key=_end)
        left = [each for each in left if each.subject != one.subject]
    return ends_first


def check_authorities(held: Sequence[Certificate], now_unix_s: float, skew_s: float) -> None:
    """Raises NotInForce where not one of them can vouch for anybody."""
    if held and not any(each.is_in_force(now_unix_s, skew_s) for each in held):
        later = [each for each in held if each.begin_unix_s > now_unix_s]
        one = min(later, key=_begin) if later else max(held, key=_end)
        which = "its certificate" if len(held) == 1 else f"no certificate in it is in force: {one.number}"
        one.check(which, now_unix_s, skew_s)


def _begin(one: Certificate) -> float:
    return one.begin_unix_s


def _end(one: Certificate) -> float:
    return one.end_unix_s


def _told(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M} UTC"
