"""The name in a certificate is written as Java writes it; the JDK is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from sluice.proxy.listener.tls.certificate_fields import validity_unix_s
from sluice.proxy.listener.tls.principal_mapping import distinguished_name
from testkit.kafka.java_machine import java_machine
from testkit.peers.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority()


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    with java_machine() as jvm:
        yield jvm


def certificate_of(*rdns: bytes) -> bytes:
    """A certificate's DER whose subject is made of these; its signature is wrong, and not looked at."""
    template = AUTHORITY.client("CN=alice").certificate
    old = template.subject.public_bytes()
    return replaced(template.public_bytes(Encoding.DER), old, element(0x30, b"".join(rdns)))


def replaced(certificate: bytes, old: bytes, new: bytes) -> bytes:
    """The subject exchanged, and the two lengths around it set anew."""
    to_be_signed_at = 4
    body = certificate[to_be_signed_at + 4 :]
    to_be_signed_length = int.from_bytes(certificate[to_be_signed_at + 2 : to_be_signed_at + 4], "big")
    to_be_signed, rest = body[:to_be_signed_length], body[to_be_signed_length:]
    assert to_be_signed.count(old) == 1
    return element(0x30, element(0x30, to_be_signed.replace(old, new)) + rest)


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def oid_of(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    content = b""
    for arc in (first * 40 + second, *rest):
        digits = [arc & 0x7F]
        while arc := arc >> 7:
            digits.append(0x80 | arc & 0x7F)
        content += bytes(reversed(digits))
    return element(0x06, content)


def rdn(*attributes: tuple[str, int, bytes]) -> bytes:
    encoded = (element(0x30, oid_of(oid) + element(tag, value)) for oid, tag, value in attributes)
    return element(0x31, b"".join(encoded))


UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1C, 0x1E
CN, OU, ORG, C = "2.5.4.3", "2.5.4.11", "2.5.4.10", "2.5.4.6"
DC, UID = "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"
EMAIL, SERIAL_NUMBER, OWN = "1.2.840.113549.1.9.1", "2.5.4.5", "2.999.1311768467463790320"
OF_RFC_2253 = [CN, C, "2.5.4.7", "2.5.4.8", "2.5.4.9", ORG, OU, UID, DC]
EVERY_KEYWORD = [*OF_RFC_2253, "2.5.4.4", "2.5.4.12", "2.5.4.42"]


Attribute = tuple[str, int, bytes]
"""OID, ASN.1 tag, value"""


def spoken_by_java(java: Any, name: bytes) -> str:
    """`name` in DER."""
    return str(java.javax.security.auth.x500.X500Principal(name).getName())


def assert_as_java_says(java: Any, rdns: list[list[Attribute]]) -> None:
    """Up to 21 Java takes all strings for UTF-8, and so do we. Java 25 reads each by its type, so it says
    what we say of the same text as a UTF8String."""
    read = [[as_utf8(*attribute) for attribute in one] for one in rdns] if reads_by_type(java) else rdns
    name = element(0x30, b"".join(rdn(*one) for one in rdns))
    ours = distinguished_name(certificate_of(*(rdn(*one) for one in read)))
    assert ours == spoken_by_java(java, name), name.hex()


def reads_by_type(java: Any) -> bool:
    return spoken_by_java(java, element(0x30, rdn((CN, BMP, b"\0a")))) == "CN=a"


def as_utf8(oid: str, tag: int, value: bytes) -> Attribute:
    """What another type of string says, as a UTF8String. Attributes that RFC 2253 has no keyword for are
    shown as their bytes, whatever they say."""
    encoding = {PRINTABLE: "latin-1", IA5: "latin-1", T61: "latin-1", BMP: "utf-16-be"}.get(tag)
    if encoding is None or oid not in OF_RFC_2253:
        return oid, tag, value
    return oid, UTF8, value.decode(encoding, errors="replace").encode()


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=alice", "CN=alice"),
        ("CN=alice,OU=Payments\\, EU,O=Example,C=DE", "CN=alice,OU=Payments\\, EU,O=Example,C=DE"),
        ("UID=a,DC=example,DC=com", "UID=a,DC=example,DC=com"),
        ("CN=Ærøskøbing 漢字 🐘", "CN=Ærøskøbing 漢字 🐘"),
        ("", ""),
    ],
)
def test_the_name_is_written_as_in_rfc_2253(subject: str, name: str) -> None:
    assert distinguished_name(AUTHORITY.client(subject).der) == name


SUBJECTS: dict[str, list[list[Attribute]]] = {
    "empty": [],
    "order": [[(C, PRINTABLE, b"DE")], [(ORG, UTF8, b"Example")], [(CN, UTF8, b"alice")]],
    "multi-valued": [[(OU, UTF8, b"b"), (CN, UTF8, b"a"), (EMAIL, IA5, b"a@b")], [(ORG, UTF8, b"x")]],
    "special characters": [[(CN, UTF8, b',=+<>#;"\\/|*' + b"'")]],
    "spaces": [[(CN, UTF8, b"  a  b  ")], [(ORG, UTF8, b"   ")], [(OU, UTF8, b"\r \ra\r")]],
    "hash first": [[(CN, UTF8, b"#a#")]],
    "controls": [[(CN, UTF8, b"a\nb\tc\x00d\x7f")]],
    "empty value": [[(CN, UTF8, b"")]],
    "e-mail, serial number": [[(EMAIL, IA5, b"alice@example.com")], [(SERIAL_NUMBER, PRINTABLE, b"4")]],
    "a large OID": [[(OWN, UTF8, "ä".encode())]],
    "T61 and universal": [[(CN, T61, b"abc")], [(ORG, UNIVERSAL, "ab".encode("utf-32-be"))]],
    "BMP": [[(CN, BMP, "alice".encode("utf-16-be"))]],
    "no string": [[(CN, 0x02, b"\x05")], [(ORG, 0x03, b"\x00\xff")]],
    "a long value": [[(CN, UTF8, b"x" * 300)]],
    "not UTF-8": [[(CN, UTF8, b"a\xffb\xc3")], [(ORG, T61, b"\xe9t\xe9")], [(OU, UTF8, b"\xed")]],
    "every keyword": [[(oid, UTF8, b"v")] for oid in EVERY_KEYWORD],
}  # fmt: skip


@pytest.mark.parametrize("case", SUBJECTS)
def test_the_name_is_what_java_says(java: Any, case: str) -> None:
    assert_as_java_says(java, SUBJECTS[case])


def test_random_names_are_what_java_says(java: Any) -> None:
    random = Random(1)
    oids = [*EVERY_KEYWORD, EMAIL, SERIAL_NUMBER, OWN]
    texts = [
        "a",
        "b",
        " ",
        ",",
        "+",
        "=",
        '"',
        "\\",
        "#",
        ";",
        "<",
        "é",
        "漢",
        "🐘",
        "\0",
        "\r",
        "\n",
        "\u0301",
    ]
    for _ in range(300):
        rdns = []
        for _ in range(random.randint(1, 4)):
            attributes = [
                (
                    random.choice(oids),
                    random.choice([UTF8, UTF8, UTF8, PRINTABLE, IA5, T61, BMP, UNIVERSAL]),
                    "".join(random.choice(texts) for _ in range(random.randint(0, 6))).encode(),
                )
                for _ in range(random.choice([1, 1, 1, 2, 3]))
            ]
            rdns.append(attributes)
        assert_as_java_says(java, rdns)


def test_values_that_are_not_utf_8_are_what_java_makes_of_them(java: Any) -> None:
    random = Random(1)
    pieces = [
        b"a",
        b"\x80",
        b"\xbf",
        b"\xc0",
        b"\xc3",
        b"\xe0",
        b"\xe9",
        b"\xed",
        b"\xa0",
        b"\xf0",
        b"\x9f",
        b"\xf4",
        b"\xf8",
        b"\xff",
    ]
    for _ in range(600):
        value = b"".join(random.choice(pieces) for _ in range(random.randint(1, 7)))
        assert_as_java_says(java, [[(CN, random.choice([UTF8, T61]), value)]])


def test_a_name_made_by_another_library_is_what_java_says(java: Any) -> None:
    def name_of(kind: _ASN1Type) -> x509.Name:
        return x509.Name([
            x509.RelativeDistinguishedName([
                x509.NameAttribute(NameOID.COMMON_NAME, "alice+bob", kind),
                x509.NameAttribute(NameOID.USER_ID, "7"),
            ]),
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.JURISDICTION_COUNTRY_NAME, "DE")]),
        ])  # fmt: skip

    read = name_of(_ASN1Type.UTF8String if reads_by_type(java) else _ASN1Type.BMPString)
    spoken = spoken_by_java(java, name_of(_ASN1Type.BMPString).public_bytes())
    assert distinguished_name(AUTHORITY.client(read).der) == spoken


@pytest.mark.parametrize("ends_in_days", [1, 365 * 20, 365 * 40])
def test_the_end_is_read_also_beyond_the_two_digits_of_utc_time(ends_in_days: float) -> None:
    identity = AUTHORITY.client("CN=alice", ends_in_days=ends_in_days)
    assert validity_unix_s(identity.der)[1] == identity.not_after.timestamp()


def test_what_is_no_certificate_is_a_value_error_wherever_it_is_cut() -> None:
    der = AUTHORITY.client("CN=alice,O=Example").der
    for end in range(len(der)):
        with pytest.raises(ValueError, match="not a certificate"):
            distinguished_name(der[:end])
    random = Random(1)
    for _ in range(3000):
        spoiled = bytearray(der)
        spoiled[random.randrange(150)] = random.randrange(256)
        for read in (distinguished_name, validity_unix_s):
            with suppress(ValueError):
                read(bytes(spoiled))
