"""PROXY v2: whose connection it is, from whole, cut and broken headers; and headers that Sluice writes."""

from __future__ import annotations

import ipaddress
import re
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.protocol.proxy_protocol import (
    LOCAL_HEADER,
    MAX_BLOCK_BYTES,
    SIGNATURE,
    Endpoint,
    ProxyHeader,
    ProxyProtocolError,
    build_v2,
    parse_v2,
)

untimed = settings(deadline=None)  # the machine may be busy
GARBAGE = b"\x00\x00\x00\x10SOMEBODY ELSE'S"
"""Behind `end`: must never be looked at."""

TCP4_BLOCK = bytes([10, 1, 2, 3, 192, 168, 0, 1]) + struct.pack(">HH", 40_000, 9092)
TCP6_BLOCK = bytes.fromhex("20010db800000000000000000000000120010db80000000000000000000000ff") + struct.pack(
    ">HH", 1, 65_535
)


def header(block: bytes, *, command: int = 0x21, family: int = 0x11, block_bytes: int | None = None) -> bytes:
    size = len(block) if block_bytes is None else block_bytes
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", size) + block


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">H", len(value)) + value


def parse(data: bytes, **options: int) -> ProxyHeader | None:
    """`data` in the midst of a buffer that holds other bytes before and behind."""
    buf = bytearray(b"before" + data + GARBAGE)
    found = parse_v2(buf, 6, 6 + len(data), **options)
    return found if found is None else found._replace(end=found.end - 6)


def test_the_signature_is_the_specifications() -> None:
    assert SIGNATURE.hex() == "0d0a0d0a000d0a515549540a"


def test_tcp_over_ipv4() -> None:
    found = parse(header(TCP4_BLOCK) + b"client's own bytes")
    assert found == (Endpoint("10.1.2.3", 40_000), Endpoint("192.168.0.1", 9092), 28)


def test_tcp_over_ipv6() -> None:
    found = parse(header(TCP6_BLOCK, family=0x21) + b"x")
    assert found == (Endpoint("2001:db8::1", 1), Endpoint("2001:db8::ff", 65_535), 52)


def test_ipv4_mapped_into_ipv6_is_the_same_client() -> None:
    mapped = bytes(10) + b"\xff\xff"
    block = mapped + TCP4_BLOCK[:4] + mapped + TCP4_BLOCK[4:8] + TCP4_BLOCK[8:]
    found = parse(header(block, family=0x21))
    assert found is not None
    assert (found.source, found.destination) == (Endpoint("10.1.2.3", 40_000), Endpoint("192.168.0.1", 9092))


def test_tlvs_are_stepped_over() -> None:
    tlvs = tlv(0x02, b"kafka.example") + tlv(0x04, b"") + tlv(0xEA, b"\x01vpce-08d2bf15fac5001c9")
    tlvs += tlv(0x04, bytes(300)) + tlv(0x02, b"x")  # a length of two bytes that are not 0
    found = parse(header(TCP4_BLOCK + tlvs) + b"next")
    assert found is not None
    assert found.source == Endpoint("10.1.2.3", 40_000)
    assert found.end == 28 + len(tlvs)


@pytest.mark.parametrize("family", [0x00, 0x11, 0x21, 0x99])
@pytest.mark.parametrize("block", [b"", b"\xff", TCP4_BLOCK, bytes(100)])
def test_local_has_no_endpoints_whatever_follows_in_it(family: int, block: bytes) -> None:
    assert parse(header(block, command=0x20, family=family) + b"x") == (None, None, 16 + len(block))


@pytest.mark.parametrize("family", [0x00, 0x12, 0x22, 0x31, 0x32])
@pytest.mark.parametrize("block", [b"", b"\xff\xff", bytes(216)])
def test_what_is_not_tcp_counts_as_unspecified(family: int, block: bytes) -> None:
    assert parse(header(block, family=family)) == (None, None, 16 + len(block))


@pytest.mark.parametrize("block", [b"", TCP4_BLOCK, TCP4_BLOCK + tlv(2, b"name")])
def test_a_header_that_is_not_all_there_wants_more(block: bytes) -> None:
    whole = header(block, command=0x21 if block else 0x20)
    assert [parse(whole[:length]) for length in range(len(whole))] == [None] * len(whole)
    assert parse(whole) is not None


REFUSED = {
    "another version": (header(b"", command=0x31), "version 3, only 2 is known"),
    "version 0": (header(b"", command=0x01), "version 0, only 2 is known"),
    "an unknown command": (header(TCP4_BLOCK, command=0x22), "unknown PROXY command 2"),
    "an unknown family": (header(bytes(216), family=0x41), "family 0x41"),
    "an unknown transport": (header(TCP4_BLOCK, family=0x13), "family 0x13"),
    "a family without a transport": (header(TCP4_BLOCK, family=0x10), "family 0x10"),
    "too short for IPv4": (header(TCP4_BLOCK[:11]), "11 bytes, its addresses need 12"),
    "too short for IPv6": (header(TCP4_BLOCK, family=0x21), "12 bytes, its addresses need 36"),
    "too long": (header(b"", block_bytes=65_535), f"65535 bytes, the limit is {MAX_BLOCK_BYTES}"),
    "too long, local": (header(b"", command=0x20, block_bytes=65_535), "the limit is"),
    "a piece of a TLV": (header(TCP4_BLOCK + b"\x04\x00"), "2 bytes of a TLV"),
    "a TLV beyond the end": (header(TCP4_BLOCK + b"\x04\x00\x01"), "a TLV of 1 bytes runs beyond"),
    "version 1": (b"PROXY TCP4 10.1.2.3 192.168.0.1 40000 9092\r\n", r"v1 \(text\); set the sender to v2"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01", "but a TLS handshake"),
    "Kafka": (b"\x00\x00\x00\x10\x00\x12", "no PROXY v2 header, though this address"),
    "HTTP": (b"POST / HTTP/1.1\r\n", "no PROXY v2 header"),
    "almost the signature": (SIGNATURE[:11] + b"\r" + bytes(4), "no PROXY v2 header"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_words(case: str) -> None:
    data, message = REFUSED[case]
    with pytest.raises(ProxyProtocolError, match=message):
        parse(data)


@pytest.mark.parametrize("case", sorted(set(REFUSED) - {"a piece of a TLV", "a TLV beyond the end"}))
def test_no_rest_is_waited_for_when_the_head_is_wrong_already(case: str) -> None:
    """Somebody who sends a wrong head and then nothing would hold the connection until its timeout."""
    with pytest.raises(ProxyProtocolError):
        parse(REFUSED[case][0][:16])


def test_version_1_is_told_apart_however_it_arrives() -> None:
    """Its first bytes alone are nobody's; then the sender's setting is named, not just any protocol."""
    assert [parse(b"PROXY "[:length]) for length in range(6)] == [None] * 6
    with pytest.raises(ProxyProtocolError, match="no PROXY v2 header"):
        parse(b"PROD")


def test_the_error_never_quotes_what_a_stranger_sent() -> None:
    with pytest.raises(ProxyProtocolError) as refused:
        parse(b"user:hunter2\r\n")
    assert "hunter2" not in str(refused.value)


def test_the_limit_is_exact() -> None:
    block = TCP4_BLOCK + tlv(4, bytes(100 - 15))
    assert len(block) == 100
    assert parse(header(block), max_block_bytes=100) is not None
    with pytest.raises(ProxyProtocolError, match="100 bytes, the limit is 99"):
        parse(header(block), max_block_bytes=99)


def test_the_offset_is_where_the_fault_stands() -> None:
    with pytest.raises(ProxyProtocolError) as refused:
        parse(header(TCP4_BLOCK + tlv(4, b"") + b"\x04\xff\xff"))
    assert refused.value.offset == 6 + 28 + 3


endpoints = st.tuples(
    st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str), st.integers(min_value=0, max_value=65_535)
)


def unmapped(endpoint: tuple[str, int]) -> tuple[str, int]:
    address = ipaddress.ip_address(endpoint[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), endpoint[1]


@untimed
@given(endpoints, endpoints, st.binary(max_size=20))
@example(("::ffff:10.0.0.1", 1), ("10.0.0.2", 2), b"")
@example(("10.0.0.1", 1), ("2001:db8::1", 2), b"")
def test_what_is_built_is_read_back(
    source: tuple[str, int], destination: tuple[str, int], rest: bytes
) -> None:
    built = build_v2(source, destination)
    assert parse(built + rest) == (unmapped(source), unmapped(destination), len(built))


def test_two_ipv4_addresses_go_as_ipv4_byte_for_byte() -> None:
    assert build_v2(("10.1.2.3", 40_000), ("192.168.0.1", 9092)) == header(TCP4_BLOCK)
    assert build_v2(("::ffff:10.1.2.3", 40_000), ("192.168.0.1", 9092)) == header(TCP4_BLOCK)


def test_ipv6_goes_as_ipv6_without_its_zone() -> None:
    assert build_v2(("2001:db8::1%eth0", 1), ("2001:db8::ff", 65_535)) == header(TCP6_BLOCK, family=0x21)


def test_the_local_header_names_nobody() -> None:
    assert parse(LOCAL_HEADER) == (None, None, 16)


@pytest.mark.parametrize("source", [("localhost", 1), ("10.0.0.1", 65_536), ("10.0.0.1", -1), ("", 1)])
def test_no_header_is_built_from_what_is_no_endpoint(source: tuple[str, int]) -> None:
    with pytest.raises(ValueError, match=re.compile("port|address")):
        build_v2(source, ("10.0.0.2", 2))


headers = st.one_of(
    st.builds(header, st.just(TCP4_BLOCK)),
    st.builds(lambda value: header(TCP4_BLOCK + tlv(2, value)), st.binary(max_size=40)),
    st.builds(lambda value: header(TCP6_BLOCK + tlv(2, value), family=0x21), st.binary(max_size=40)),
    st.builds(lambda block: header(block, command=0x20), st.binary(max_size=40)),
    st.just(b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"),
)


def outcome(data: bytes, behind: bytes) -> ProxyHeader | str | None:
    buf = bytearray(data + behind)
    try:
        return parse_v2(buf, 0, len(data))
    except ProxyProtocolError as error:
        return str(error)


@untimed
@given(headers, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3), st.data())
def test_no_mutation_and_no_cut_raises_anything_else_or_reads_beyond_the_end(
    data: bytes, mutations: list[tuple[int, int]], draw: st.DataObject
) -> None:
    mutated = bytearray(data)
    for place, value in mutations:
        mutated[place % len(mutated)] = value
    cut = bytes(mutated[: draw.draw(st.integers(0, len(mutated)))])
    found = outcome(cut, b"")
    assert found == outcome(cut, b"\xff" * 100) == outcome(cut, bytes(100))
    if isinstance(found, ProxyHeader):
        assert found.end <= len(cut)


@untimed
@given(headers, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=2))
def test_every_split_comes_to_the_end_that_the_whole_comes_to(
    data: bytes, mutations: list[tuple[int, int]]
) -> None:
    mutated = bytearray(data)
    for place, value in mutations:
        mutated[place % len(mutated)] = value
    outcomes = [outcome(bytes(mutated[:length]), b"") for length in range(len(mutated) + 1)]
    decided = [found for found in outcomes if found is not None]
    if any(isinstance(found, str) for found in decided):
        assert all(isinstance(found, str) for found in decided), "an error never follows a header"
    assert all(later is not None for later in outcomes[len(outcomes) - len(decided) :]), (
        "no verdict is taken back"
    )
