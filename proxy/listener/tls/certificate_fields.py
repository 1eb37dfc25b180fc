"""A certificate in DER → the fields of it that Sluice needs: its names, and when it is valid.

By hand, for `cryptography` would add 18 MB and hides how a name was encoded, which its form in Java rests on.
OpenSSL has verified what comes here, or it is the operator's own. Sources: RFC 5280, 4.1; X.690, 8 and 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_INTEGER: Final = 0x02
_OID: Final = 0x06
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_VERSION: Final = 0xA0  # [0], constructed
_TIME_FORMATS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}  # UTCTime, GeneralizedTime
_FIRST_CENTURY_YEAR: Final = 2050  # RFC 5280, 4.1.2.5.1: two digits mean 1950 to 2049


class Attribute(NamedTuple):
    """One attribute of a name."""

    oid: str
    """dotted"""
    tag: int
    """the ASN.1 type of its value"""
    content: bytes
    """the value"""
    encoded: bytes
    """the value with tag and length"""


class _Element(NamedTuple):
    tag: int
    start: int
    """where tag and length begin"""
    begin: int
    end: int


def subject(der: bytes) -> list[list[Attribute]]:
    """The relative distinguished names of a certificate's subject, as encoded. ValueError: it is none."""
    names = []
    for rdn in _children(der, _fields(der)[4], _SEQUENCE):
        attributes = []
        for attribute in _children(der, rdn, _SET):
            oid, value = _exactly(der, attribute, 2)
            _expect(oid, _OID)
            content, encoded = der[value.begin : value.end], der[value.start : value.end]
            attributes.append(Attribute(_dotted(der[oid.begin : oid.end]), value.tag, content, encoded))
        names.append(attributes)
    return names


def issuer_and_subject(der: bytes) -> tuple[bytes, bytes]:
    """The names of who signed a certificate and of whom it is, as encoded. ValueError: it is none."""
    issuer, _, subject = _fields(der)[2:]
    return der[issuer.start : issuer.end], der[subject.start : subject.end]


def validity_unix_s(der: bytes) -> tuple[float, float]:
    """When a certificate begins and ends, in s of Unix time. ValueError: it is none."""
    begin, end = _exactly(der, _fields(der)[3], 2)
    return _unix_s(der, begin, "begin"), _unix_s(der, end, "end")


def _unix_s(der: bytes, time: _Element, what: str) -> float:
    time_format = _TIME_FORMATS.get(time.tag)
    if time_format is None:
        raise ValueError(f"not a certificate: no time where its {what} should be")
    when = datetime.strptime(der[time.begin : time.end].decode("ascii"), time_format).replace(tzinfo=UTC)
    if time.tag == 0x17 and when.year >= _FIRST_CENTURY_YEAR:
        when = when.replace(year=when.year - 100)
    return when.timestamp()


def _fields(der: bytes) -> list[_Element]:
    """Serial number, signature algorithm, issuer, validity, subject."""
    certificate = _element(der, 0, len(der))
    to_be_signed = next(_children(der, certificate, _SEQUENCE), None)
    if to_be_signed is None:
        raise ValueError("not a certificate: it is empty")
    fields = list(_children(der, to_be_signed, _SEQUENCE))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6 or fields[0].tag != _INTEGER:
        raise ValueError("not a certificate: its fields are others")
    return fields[:5]


def _children(der: bytes, parent: _Element, tag: int) -> Iterator[_Element]:
    _expect(parent, tag)
    pos = parent.begin
    while pos < parent.end:
        child = _element(der, pos, parent.end)
        yield child
        pos = child.end


def _exactly(der: bytes, parent: _Element, count: int) -> list[_Element]:
    children = list(_children(der, parent, _SEQUENCE))
    if len(children) != count:
        raise ValueError(f"not a certificate: {len(children)} elements where {count} belong")
    return children


def _expect(element: _Element, tag: int) -> None:
    if element.tag != tag:
        raise ValueError(f"not a certificate: ASN.1 type {element.tag:#04x} where {tag:#04x} belongs")


def _element(der: bytes, pos: int, end: int) -> _Element:
    if end - pos < 2:
        raise ValueError("not a certificate: it ends too soon")
    tag, length = der[pos], der[pos + 1]
    begin = pos + 2
    if length >= 0x80:  # so many bytes tell the length
        begin += length - 0x80
        if length in {0x80, 0xFF} or begin > end:
            raise ValueError("not a certificate: a length that DER does not have")
        length = int.from_bytes(der[pos + 2 : begin], "big")
    if length > end - begin:
        raise ValueError("not a certificate: it ends too soon")
    return _Element(tag, pos, begin, begin + length)


def _dotted(content: bytes) -> str:
    """X.690, 8.19: base 128, the first two arcs in one number."""
    if not content or content[-1] & 0x80:
        raise ValueError("not a certificate: an object identifier that is none")
    arcs: list[int] = []
    arc = 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
