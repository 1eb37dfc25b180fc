"""Whom no limit delays: rules that name a user, an address, or both, and a client id only beside them.

A client id alone is whatever a client calls itself, so it proves nothing (wire-semantics 4.6). What exempt
connections use is measured all the same: they charge a sensor whose rate is endless.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from math import inf
from typing import Final, TypeAlias

from sluice.quotas.addresses import unmapped
from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.sensor import Sensor
from sluice.quotas.sensors.smooth import SmoothSensor

Network: TypeAlias = IPv4Network | IPv6Network
_MAPPED_BITS: Final = 96  # ::ffff:0:0/96 holds the addresses of IPv4


@dataclass(frozen=True, slots=True)
class ExemptRule:
    """Exempts whom all its parts fit; None: this part is not looked at."""

    user: str | None = None
    network: Network | None = None
    """of `network_of`"""
    client_id: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a rule that anybody could claim."""
        if self.user is None and self.network is None:
            if self.client_id is None:
                raise ValueError("names nobody; give user, address or both")
            raise ValueError("a client-id alone exempts whoever uses that name; give user or address with it")
        if "" in {self.user, self.client_id}:
            raise ValueError("an empty name exempts nobody in particular")
        if self.client_id is not None and self.user is None and self.network and not self.network.prefixlen:
            raise ValueError(f"address {self.network} is every address, so this is a client-id alone")

    @property
    def parts(self) -> dict[str, str]:
        """What it names, by the keys of the quota file."""
        named = {"user": self.user, "address": self.network, "client-id": self.client_id}
        return {key: str(part) for key, part in named.items() if part is not None}

    def __str__(self) -> str:
        """As in messages; names are escaped: one line stays one."""
        named = self.parts
        return ", ".join(f"{key} {part if key == 'address' else repr(part)}" for key, part in named.items())


class ExemptRules:
    """The rules in force; looked up once a connection and identity, not for each request."""

    __slots__ = ("_by_user", "_of_any_user", "rules")

    def __init__(self, rules: Iterable[ExemptRule] = ()) -> None:
        self.rules: Final = tuple(rules)
        self._by_user: dict[str, list[ExemptRule]] = {}
        self._of_any_user: list[ExemptRule] = []
        for rule in self.rules:
            if rule.user is None:
                self._of_any_user.append(rule)
            else:
                self._by_user.setdefault(rule.user, []).append(rule)

    def find(self, user: str, client_id: str, address: str) -> ExemptRule | None:
        """The first rule that fits, those that name the user before the others; None: not exempt.

        `address`: as the socket tells it, or ""; one that is none fits no rule with an address.
        """
        for rules in (self._by_user.get(user, ()), self._of_any_user):
            for rule in rules:
                if rule.client_id is not None and rule.client_id != client_id:
                    continue
                if rule.network is None:
                    return rule
                parsed = address_of(address)
                if parsed is not None and parsed in rule.network:
                    return rule
        return None

    def __bool__(self) -> bool:
        return bool(self.rules)


def network_of(text: str) -> Network:
    """The network of a CIDR, or of a single address. One of IPv4 written in IPv6 (::ffff:…) is one of IPv4.

    Raises ValueError with a reason, also where bits behind the prefix are set.
    """
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is not None and network.prefixlen >= _MAPPED_BITS:
        return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
    return network


@lru_cache(maxsize=1_024)
def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The address, None for what is none. A socket of IPv6 tells clients of IPv4 as ::ffff:a.b.c.d."""
    try:
        return unmapped(ip_address(text))
    except ValueError:
        return None


def exempt_sensor(kind: QuotaKind) -> Sensor:
    """What all exempt connections of a process charge: its rate is endless, so it never owes anything.

    It is no bucket: nobody's entity, and its level is of no meaning.
    """
    sensor = SmoothSensor(kind, QuotaLevel.USER, QuotaEntity(), inf, 0.0)
    sensor.exempt = sensor.shadow = True
    return sensor
