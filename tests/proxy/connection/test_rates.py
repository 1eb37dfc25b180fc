"""connection_creation_rate: which address may connect when, and what is remembered of it. KIP-612."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.connection.rates import ConnectionRates
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager

KEY = "connection_creation_rate"
START_MS = 10_000.0
EVERYBODY = QuotaEntity(ip=DEFAULT)


def limits_of(rates: dict[str, int], *, shadow: bool = False, exempt: str | None = None) -> QuotaLimits:
    """By address; "" is the default."""
    entities = {QuotaEntity(ip=address or DEFAULT): rate for address, rate in rates.items()}
    return QuotaLimits(
        [(entity, {KEY: rate}) for entity, rate in entities.items()],
        shadow={entity: [KEY] for entity in entities} if shadow else {},
        exempt=[ExemptRule(network=network_of(exempt))] if exempt else (),
    )


def rates_of(
    limits: QuotaLimits, *, pacing: Pacing = "smooth", max_addresses: int = 10_000
) -> ConnectionRates:
    quotas = QuotaManager(limits, pacing=pacing)
    return ConnectionRates(quotas, ConnectionLimits().address_key, Counter(), max_addresses=max_addresses)


def let_in(rates: ConnectionRates, address: str, times: int, now_ms: float = START_MS) -> int:
    return sum(rates.delay_ms(address, now_ms) == 0.0 for _ in range(times))


def test_without_a_limit_everybody_may_connect_and_nobody_is_remembered() -> None:
    rates = rates_of(QuotaLimits())
    assert let_in(rates, "10.0.0.1", 1_000) == 1_000
    assert len(rates) == 0


def test_who_connects_too_fast_waits_until_the_next_is_due_and_is_not_counted() -> None:
    """4 a second: 4 at once, then each 250 ms, however many are refused meanwhile."""
    rates = rates_of(limits_of({"": 4}))
    assert let_in(rates, "10.0.0.1", 4) == 4
    assert rates.delay_ms("10.0.0.1", START_MS) == pytest.approx(250)
    assert rates.delay_ms("10.0.0.1", START_MS + 100) == pytest.approx(150)
    assert rates.delay_ms("10.0.0.1", START_MS + 250) == 0.0
    assert rates._over["default_ip", False] == 2


def test_an_address_does_not_cost_another_its_rate() -> None:
    rates = rates_of(limits_of({"": 2}))
    assert let_in(rates, "10.0.0.1", 50) == 2
    assert let_in(rates, "10.0.0.2", 50) == 2


def test_an_address_of_its_own_has_its_own_limit() -> None:
    rates = rates_of(limits_of({"": 2, "10.0.0.1": 7, "2001:db8::5": 3}))
    assert let_in(rates, "10.0.0.1", 50) == 7
    assert let_in(rates, "::ffff:10.0.0.1", 50) == 0, "the same address, as a listener on :: sees it"
    assert let_in(rates, "2001:db8:0::5", 50) == 3
    assert let_in(rates, "2001:db8::6", 50) == 2
    assert rates._over["ip", False] == 43 + 50 + 47


def test_the_addresses_of_one_ipv6_network_share_the_defaults_bucket() -> None:
    rates = rates_of(limits_of({"": 5}))
    assert sum(let_in(rates, f"2001:db8::{n:x}", 1) for n in range(50)) == 5
    assert len(rates) == 1


def test_two_addresses_of_one_network_with_limits_of_their_own_have_buckets_of_their_own() -> None:
    rates = rates_of(limits_of({"2001:db8::5": 3, "2001:db8::6": 3}))
    assert [let_in(rates, address, 9) for address in ("2001:db8::5", "2001:db8::6")] == [3, 3]


def test_however_short_the_burst_one_connection_is_let_in() -> None:
    quotas = QuotaManager(limits_of({"": 2}), burst_s=0.1)
    rates = ConnectionRates(quotas, ConnectionLimits().address_key, Counter())
    assert let_in(rates, "10.0.0.1", 9) == 1
    assert rates.delay_ms("10.0.0.1", START_MS + 500) == 0.0


def test_room_is_made_by_whoever_has_been_idle_for_longest() -> None:
    rates = rates_of(limits_of({"": 2}), max_addresses=2)
    for address, at_ms in (("10.0.0.1", 0), ("10.0.0.2", 1_000), ("10.0.0.1", 12_500), ("10.0.0.3", 13_000)):
        assert rates.delay_ms(address, START_MS + at_ms) == 0.0
    assert len(rates) == 2


def test_the_brokers_windows_let_ten_seconds_worth_in_at_once_and_delay_by_a_window_at_most() -> None:
    """Kafka's Rate: 11 windows of a second, of which missing ones count as idle."""
    rates = rates_of(limits_of({"": 4}), pacing="kafka")
    assert let_in(rates, "10.0.0.1", 100) == 40
    assert rates.delay_ms("10.0.0.1", START_MS) == 250
    rates = rates_of(limits_of({"": 1}), pacing="kafka")
    assert let_in(rates, "10.0.0.1", 100) == 10
    assert rates.delay_ms("10.0.0.1", START_MS) == 1_000


def test_another_limit_is_in_force_from_the_next_connection_on() -> None:
    quotas = QuotaManager(limits_of({"": 2}))
    rates = ConnectionRates(quotas, ConnectionLimits().address_key, Counter())
    assert let_in(rates, "10.0.0.1", 50) == 2
    quotas.reload(limits_of({"": 6}), START_MS)
    assert let_in(rates, "10.0.0.1", 50) == 6
    quotas.reload(QuotaLimits(), START_MS)
    assert let_in(rates, "10.0.0.1", 50) == 50


def test_a_limit_in_shadow_mode_lets_everybody_in_and_counts() -> None:
    rates = rates_of(limits_of({"": 2}, shadow=True))
    assert let_in(rates, "10.0.0.1", 50) == 50
    assert rates._over == {("default_ip", True): 48}


def test_who_is_exempt_by_address_is_not_limited() -> None:
    rates = rates_of(limits_of({"": 2}, exempt="10.0.0.0/24"))
    assert let_in(rates, "10.0.0.9", 50) == 50
    assert let_in(rates, "10.0.1.9", 50) == 2


def test_more_addresses_than_are_remembered_share_one_bucket_and_free_nobody() -> None:
    rates = rates_of(limits_of({"": 2, "10.9.9.9": 3}), max_addresses=100)
    assert sum(let_in(rates, f"10.0.{n // 250}.{n % 250}", 2) for n in range(500)) == 202
    assert len(rates) == 101
    assert let_in(rates, "10.9.9.9", 50) == 3, "who is configured has its own"
    assert let_in(rates, "10.0.0.5", 50) == 0, "who came before keeps its bucket"
    assert let_in(rates, "10.1.0.1", 9, START_MS + 11_000) == 2, "idle ones make room"
    assert len(rates) == 102


def test_who_has_been_idle_is_forgotten() -> None:
    rates = rates_of(limits_of({"": 2, "10.9.9.9": 3}))
    let_in(rates, "10.0.0.1", 5)
    let_in(rates, "10.9.9.9", 5)
    let_in(rates, "10.0.0.2", 5, START_MS + 8_000)
    rates.expire(START_MS + 11_000)
    assert len(rates) == 1
    assert let_in(rates, "10.0.0.1", 50, START_MS + 11_000) == 2


def test_what_is_no_address_is_counted_as_it_is() -> None:
    rates = rates_of(limits_of({"": 2}))
    assert let_in(rates, "unix:/run/socket", 50) == 2


@settings(deadline=None)
@given(
    rate=st.integers(1, 50),
    pacing=st.sampled_from(["smooth", "kafka"]),
    gaps_ms=st.lists(st.sampled_from([0, 0, 0, 1, 20, 500, 3_000]), min_size=1, max_size=300),
)
def test_no_address_is_let_in_faster_than_its_burst_and_rate(
    rate: int, pacing: Pacing, gaps_ms: list[int]
) -> None:
    """In T seconds rate · (T + burst): 1 s of it; in Kafka's windows 11, of which one is the present one."""
    rates = rates_of(limits_of({"": rate}), pacing=pacing)
    now_ms, entered = START_MS, 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        delay_ms = rates.delay_ms("10.0.0.1", now_ms)
        assert 0.0 <= delay_ms <= 1_000.0
        entered += delay_ms == 0.0
    burst_s = 1 if pacing == "smooth" else 11
    assert entered <= rate * ((now_ms - START_MS) / 1000.0 + burst_s) + 1
