"""`connection_creation_rate`: how fast one address may connect (KIP-612). Pure; time is given.

Who connects too fast is left waiting, unserved, and then closed, as Kafka does: not at once, or it would only
come again sooner; and not let in later, or a waiting connection would cost a place and its client's patience.
What is refused does not count, so who goes on too fast still gets its rate. The bucket is the pacing's: a
token bucket, or the broker's windows, in which ten seconds' worth may come at once.

An address is what ConnectionLimits counts as one (an IPv6 /64), or the exact one if that has a limit of its
own. Remembered are `max_addresses` of those under the default, and those that have been idle are forgotten;
beyond that many busy ones, further addresses share one bucket (wire-semantics 4.4).
Source: kafka.network.ConnectionQuotas.recordIpConnectionMaybeThrottle, closeThrottledConnections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from sluice.quotas.addresses import usual_address
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.sensor import Sensor

DEFAULT_MAX_ADDRESSES: Final = 10_000
DEFAULT_DELAY_MAX_MS: Final = 1_000.0
"""Kafka: one window (quota.window.size.seconds)"""
DEFAULT_FORGET_MS: Final = 11_000.0
_OTHERS: Final = ""
_ROUNDING_MS: Final = 1e-3
"""seven times a seventh of a second is a second"""


class AddressBuckets(NamedTuple):
    """The buckets of addresses as they are at a moment; without any where nobody counts them."""

    sensors: Sequence[Sensor] = ()
    """the address that names a bucket is its entity's"""
    name_of: Callable[[str], str] = str
    """of the bucket that a client's address is counted in: itself, its IPv6 prefix, or "" of all others"""


class ConnectionRates:
    """The rates of all addresses, in one process."""

    __slots__ = (
        "_default",
        "_delay_max_ms",
        "_exact",
        "_forget_ms",
        "_key",
        "_max_addresses",
        "_over",
        "_quotas",
    )

    def __init__(
        self,
        quotas: QuotaManager,
        key: Callable[[str], str],
        over: Counter[tuple[str, bool]],
        *,
        max_addresses: int = DEFAULT_MAX_ADDRESSES,
        delay_max_ms: float = DEFAULT_DELAY_MAX_MS,
        forget_ms: float = DEFAULT_FORGET_MS,
    ) -> None:
        """`key`: what is counted as one address. `over`: where connections above their rate are counted, by
        the rule (ip, default_ip) and whether it is in shadow mode. `forget_ms`: after which an idle bucket is
        as a new one."""
        self._quotas = quotas
        self._key = key
        self._max_addresses = max_addresses
        self._delay_max_ms = delay_max_ms
        self._forget_ms = forget_ms
        self._exact: dict[str, Sensor] = {}
        self._default: dict[str, Sensor] = {}
        """the one that was used last stands last"""
        self._over = over

    def delay_ms(self, address: str, now_ms: float) -> float:
        """A client connects from `address`. 0: let it in. Else leave it unserved for so long, then close."""
        limits = self._quotas.limits
        address = _canonical(address)
        found = limits.ip_limit(address)
        if found is None or (limits.exempt and limits.exempt.find("", "", address) is not None):
            return 0.0
        limit, rule, shadow = found
        is_exact = rule == "ip"
        sensor = self._sensor(address if is_exact else self._key(address), limit, now_ms, is_exact=is_exact)
        clears_at_ms = sensor.charge(1, now_ms)
        if clears_at_ms <= now_ms + _ROUNDING_MS:
            return 0.0
        sensor.refund(1, now_ms)
        self._over[rule, shadow] += 1
        return 0.0 if shadow else min(clears_at_ms - now_ms, self._delay_max_ms)

    def expire(self, now_ms: float) -> None:
        """Forget who has not connected for a while; to be called now and then."""
        for sensors in (self._exact, self._default):
            for key in [key for key, sensor in sensors.items() if self._is_idle(sensor, now_ms)]:
                del sensors[key]

    def buckets(self) -> AddressBuckets:
        """Those that are remembered, in a list of their own."""
        return AddressBuckets([*self._exact.values(), *self._default.values()], self._name_of)

    def _name_of(self, address: str) -> str:
        if not self:
            return address
        address = address.partition("%")[0]
        if address in self._exact:
            return address
        key = self._key(address)
        return key if key in self._default or key in self._exact else _OTHERS

    def __len__(self) -> int:
        return len(self._exact) + len(self._default)

    def _sensor(self, key: str, limit: float, now_ms: float, *, is_exact: bool) -> Sensor:
        sensors = self._exact if is_exact else self._default
        sensor = sensors.pop(key, None)
        if sensor is None and not is_exact and len(sensors) >= self._max_addresses:
            oldest = next(iter(sensors))
            if self._is_idle(sensors[oldest], now_ms):
                del sensors[oldest]
            else:
                key = _OTHERS
                sensor = sensors.pop(key, None)
        if sensor is None or sensor.rate_per_s != limit:
            sensor = self._quotas.address_sensor(key, limit, now_ms)
        sensors[key] = sensor
        return sensor

    def _is_idle(self, sensor: Sensor, now_ms: float) -> bool:
        return now_ms - sensor.last_ms >= self._forget_ms


@lru_cache(maxsize=1_024)
def _canonical(address: str) -> str:
    """As limits name it: an IPv4 address in IPv6 is one of IPv4, and a zone is left out."""
    try:
        return usual_address(address.partition("%")[0])
    except ValueError:
        return address
