"""Addresses of clients in the one form in which limits name them. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address


def usual_address(text: str) -> str:
    """`::1` for `0:0::1`; 10.1.2.3 for `::ffff:10.1.2.3`, as which a socket of IPv6 tells a client of IPv4.

    Raises ValueError for what is no address, nor for one with a zone (`fe80::1%eth0`): that is a place on one
    machine, and clients' addresses are compared without it.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise ValueError(f"{text!r} has a zone")
    return str(unmapped(address))


def unmapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The same address; one of IPv4 that is written in IPv6 is one of IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
