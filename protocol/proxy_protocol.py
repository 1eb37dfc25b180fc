"""PROXY protocol v2: the header with which a balancer tells whose connection it passes on. Bytes ↔ endpoints.

    signature 12 | version and command 1 | family and transport 1 | length uint16 | addresses | TLVs

Knows nothing of who may be believed: a header counts only from a network that the configuration trusts.
Version 1, text without a length, is refused. Source: HAProxy's proxy-protocol.txt, 2.2.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final, NamedTuple

from sluice.protocol.errors import ProtocolError
from sluice.protocol.primitives import Buffer

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
MAX_BLOCK_BYTES: Final = 4096
"""Longest block of addresses and TLVs. Senders keep it below one TCP segment; HAProxy may add a client's
certificate. The length field would allow 65,535, to be waited for and kept from somebody who has shown
nothing yet."""
LOCAL_HEADER: Final = SIGNATURE + b"\x20\x00\x00\x00"
"""For a connection of the proxy's own (a health check, a refresh of metadata): nobody stands behind it."""

_V1_SIGNATURE: Final = b"PROXY "
_HEAD: Final = Struct(">12sBBH")
_TLV_HEAD_BYTES: Final = 3
_VERSION_2: Final = 0x20
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_WITHOUT_ENDPOINTS: Final = frozenset({0x00, 0x12, 0x22, 0x31, 0x32})
"""UNSPEC, and the families that are no TCP (UDP, UNIX sockets): a receiver takes them for UNSPEC."""
_ADDRESSES: Final = {_TCP4: Struct(">4s4sHH"), _TCP6: Struct(">16s16sHH")}


class ProxyProtocolError(ProtocolError):
    """What stands at a connection's begin is no PROXY v2 header that can be used: the connection must end."""

    cause = "proxy_protocol"


class Endpoint(NamedTuple):
    """One end of a connection, as getpeername() tells it."""

    host: str
    """a numeric address; IPv4 mapped into IPv6 is given as IPv4, so that one client has one address"""
    port: int


class ProxyHeader(NamedTuple):
    """Whose connection this is."""

    source: Endpoint | None
    """the client; None: the header does not say, and the connection's own peer counts"""
    destination: Endpoint | None
    """what the client connected to; None together with `source`"""
    end: int
    """offset behind the header: here the client's own bytes begin"""


def parse_v2(
    buf: Buffer, pos: int, end: int, *, max_block_bytes: int = MAX_BLOCK_BYTES
) -> ProxyHeader | None:
    """The header that begins at `buf[pos]`, or None if it does not end before `end`: more must come.

    Looks at no byte at or behind `end`. What contradicts the layout is told as soon as it is there. LOCAL
    headers, UNSPEC, and the families that are not TCP have no endpoints, and what follows in them is not
    looked at (2.2: a receiver must skip it). TLVs are stepped over, their contents ignored.

    Raises ProxyProtocolError: another protocol, v1, an unknown command or family, more than
    `max_block_bytes`, too short for its addresses, a TLV that does not end in the header.
    """
    head = bytes(buf[pos : min(end, pos + _HEAD.size)])
    if not (head.startswith(SIGNATURE) or SIGNATURE.startswith(head)):
        if _V1_SIGNATURE.startswith(head):
            return None
        raise _not_v2(head, pos)
    if len(head) > 12 and head[12] not in {_LOCAL, _PROXY}:
        if head[12] & 0xF0 != _VERSION_2:
            raise ProxyProtocolError(
                f"PROXY protocol version {head[12] >> 4}, only 2 is known", offset=pos + 12
            )
        raise ProxyProtocolError(f"unknown PROXY command {head[12] & 0x0F}", offset=pos + 12)
    if len(head) < _HEAD.size:
        return None
    _, command, family, block_bytes = _HEAD.unpack(head)
    if command == _PROXY and family not in _ADDRESSES and family not in _WITHOUT_ENDPOINTS:
        raise ProxyProtocolError(f"unknown PROXY address family 0x{family:02x}", offset=pos + 13)
    if block_bytes > max_block_bytes:
        raise ProxyProtocolError(
            f"PROXY header of {block_bytes} bytes, the limit is {max_block_bytes}", offset=pos + 14
        )
    start = pos + _HEAD.size
    stop = start + block_bytes
    addresses = _ADDRESSES.get(family) if command == _PROXY else None
    if addresses is not None and block_bytes < addresses.size:
        raise ProxyProtocolError(
            f"PROXY header of {block_bytes} bytes, its addresses need {addresses.size}", offset=pos + 14
        )
    if stop > end:
        return None
    if addresses is None:
        return ProxyHeader(None, None, stop)
    source_host, destination_host, source_port, destination_port = addresses.unpack_from(buf, start)
    _skip_tlvs(buf, start + addresses.size, stop)
    source = Endpoint(_host(source_host), source_port)
    return ProxyHeader(source, Endpoint(_host(destination_host), destination_port), stop)


def build_v2(source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    """The header for a connection that `source` has opened to `destination`: numeric addresses and ports.

    TCP over IPv4 if both are (also when mapped into IPv6), else over IPv6, into which IPv4 is mapped then.
    An IPv6 zone (`%eth0`) is left out: it means nothing elsewhere. Raises ValueError for a host that is no
    address or a port outside 0…65,535.
    """
    hosts = [_unmapped(ip_address(host)) for host, _ in (source, destination)]
    ports = [port for _, port in (source, destination)]
    if not all(0 <= port <= 0xFFFF for port in ports):
        raise ValueError(f"no TCP port in {ports}")
    family = _TCP4 if all(host.version == 4 for host in hosts) else _TCP6
    packed = [host.packed if family == _TCP4 else _as_v6(host).packed for host in hosts]
    block = _ADDRESSES[family].pack(*packed, *ports)
    return _HEAD.pack(SIGNATURE, _PROXY, family, len(block)) + block


def _not_v2(head: bytes, pos: int) -> ProxyProtocolError:
    if head.startswith(_V1_SIGNATURE):
        return ProxyProtocolError(
            "PROXY protocol v1 (text); set the sender to v2 (HAProxy: send-proxy-v2)", offset=pos
        )
    guess = " but a TLS handshake" if head[:2] == b"\x16\x03" else ""
    return ProxyProtocolError(
        f"no PROXY v2 header{guess}, though this address is in proxy_protocol_from", offset=pos
    )


def _skip_tlvs(buf: Buffer, pos: int, stop: int) -> None:
    while pos < stop:
        if stop - pos < _TLV_HEAD_BYTES:
            raise ProxyProtocolError(f"{stop - pos} bytes of a TLV in a PROXY header", offset=pos)
        value_bytes = int.from_bytes(buf[pos + 1 : pos + 3], "big")
        if value_bytes > stop - pos - _TLV_HEAD_BYTES:
            raise ProxyProtocolError(f"a TLV of {value_bytes} bytes runs beyond its PROXY header", offset=pos)
        pos += _TLV_HEAD_BYTES + value_bytes


def _host(packed: bytes) -> str:
    return str(_unmapped(ip_address(packed)))


def _unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _as_v6(address: IPv4Address | IPv6Address) -> IPv6Address:
    if isinstance(address, IPv6Address):
        return address
    return IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
