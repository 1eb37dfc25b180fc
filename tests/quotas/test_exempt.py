"""Whom exempt rules cover: users, addresses of both families, client ids only beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule, ExemptRules, exempt_sensor, network_of
from sluice.quotas.kinds import BYTE_KINDS, KINDS, QuotaKind, Scope
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager

TEN = network_of("10.1.0.0/16")
EVERYBODY = QuotaEntity(DEFAULT, DEFAULT)


def manager_of(*rules: ExemptRule) -> QuotaManager:
    """1,000 B/s for each user and client id."""
    limits = {spec.config_key: 1_000 for spec in KINDS.values() if spec.scope is Scope.USERS_AND_CLIENTS}
    return QuotaManager(QuotaLimits([(EVERYBODY, limits)], exempt=rules), max_sensors=10)


def is_exempt(rules: list[ExemptRule], user: str, client_id: str = "app", address: str = "10.1.2.3") -> bool:
    return ExemptRules(rules).find(user, client_id, address) is not None


def test_a_rule_covers_whom_all_its_parts_fit() -> None:
    rules = [ExemptRule("alice", TEN, "backup")]
    assert is_exempt(rules, "alice", "backup", "10.1.2.3")
    assert not is_exempt(rules, "bob", "backup", "10.1.2.3")
    assert not is_exempt(rules, "alice", "app", "10.1.2.3")
    assert not is_exempt(rules, "alice", "backup", "10.2.2.3")


def test_a_part_that_is_not_named_is_not_looked_at() -> None:
    assert is_exempt([ExemptRule("alice")], "alice", "anything", "")
    assert is_exempt([ExemptRule(network=TEN)], "anybody", "anything", "10.1.255.255")


def test_a_client_that_calls_itself_what_an_exempt_one_does_is_not_exempt() -> None:
    """Its name fits, its user or address does not: mallory, and bob from elsewhere."""
    rules = [ExemptRule("alice", None, "backup"), ExemptRule(None, TEN, "replicator")]
    assert not is_exempt(rules, "mallory", "backup", "10.9.9.9")
    assert not is_exempt(rules, "bob", "replicator", "10.9.9.9")


def test_the_rule_that_names_the_user_is_told_first() -> None:
    by_address, by_user = ExemptRule(network=TEN), ExemptRule("alice")
    assert ExemptRules([by_address, by_user]).find("alice", "app", "10.1.2.3") is by_user
    assert ExemptRules([by_address, by_user]).find("bob", "app", "10.1.2.3") is by_address


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.1.0.0/16", "10.1.2.3", "10.2.0.0"),
        ("10.1.0.0/16", "::ffff:10.1.2.3", "::ffff:10.2.0.0"),
        ("::ffff:10.1.0.0/112", "10.1.2.3", "10.2.0.0"),
        ("::ffff:10.1.2.3", "::ffff:10.1.2.3", "::ffff:10.1.2.4"),
        ("10.1.2.3", "10.1.2.3", "10.1.2.4"),
        ("2001:db8::/32", "2001:db8:1::9", "2001:db9::"),
        ("2001:db8::1", "2001:0db8:0::1", "2001:db8::2"),
        ("fe80::/10", "fe80::1%eth0", "10.1.2.3"),
        ("0.0.0.0/0", "255.1.1.1", "2001:db8::1"),
        ("::/0", "2001:db8::1", "::ffff:10.1.2.3"),
    ],
)
def test_addresses_of_both_families_are_found_in_their_networks(
    network: str, inside: str, outside: str
) -> None:
    """A socket of IPv6 tells clients of IPv4 as ::ffff:a.b.c.d: they are clients of IPv4."""
    rules = [ExemptRule(network=network_of(network))]
    assert is_exempt(rules, "alice", address=inside)
    assert not is_exempt(rules, "alice", address=outside)


@given(address=st.text(max_size=20))
def test_what_is_no_address_fits_no_rule_with_one(address: str) -> None:
    assert not is_exempt([ExemptRule(network=network_of("192.0.2.1"))], "alice", address=address)


@pytest.mark.parametrize("text", ["10.1.2.3/16", "10.1.2/16", "example.org", "", "10.1.2.3/33"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        network_of(text)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({}, "names nobody; give user, address or both"),
        (
            {"client_id": "x"},
            "a client-id alone exempts whoever uses that name; give user or address with it",
        ),
        (
            {"client_id": "x", "network": network_of("0.0.0.0/0")},
            "address 0.0.0.0/0 is every address, so this is a client-id alone",
        ),
        ({"user": ""}, "an empty name exempts nobody in particular"),
        ({"user": "a", "client_id": ""}, "an empty name exempts nobody in particular"),
    ],
    ids=str,
)
def test_a_rule_that_anybody_could_claim_is_refused(parts: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason):
        ExemptRule(**parts)  # type: ignore[arg-type]


def test_a_rule_shows_what_it_names() -> None:
    assert str(ExemptRule("al\nice", TEN, "x")) == "user 'al\\nice', address 10.1.0.0/16, client-id 'x'"
    assert ExemptRule(network=network_of("10.1.2.3")).parts == {"address": "10.1.2.3/32"}


@pytest.mark.parametrize("kind", BYTE_KINDS)
def test_exempt_connections_charge_a_sensor_that_never_owes_and_make_no_bucket(kind: QuotaKind) -> None:
    manager = manager_of(ExemptRule("alice"))
    sensor = manager.sensor(kind, "alice", "app", 0, "10.9.9.9")
    assert sensor is not None
    for now_ms in (0.0, 0.0, 5_000.0):
        assert sensor.charge(10**15, now_ms) <= now_ms
        assert sensor.eligible_at_ms <= now_ms
    assert (sensor.exempt, sensor.shadow, sensor.kind) == (True, True, kind)
    assert manager.sensor(kind, "alice", "other", 0, "10.9.9.9") is sensor
    assert len(manager) == 0


def test_who_is_not_exempt_is_limited_as_before() -> None:
    manager = manager_of(ExemptRule(network=TEN))
    for address in ("10.9.9.9", ""):
        sensor = manager.sensor(QuotaKind.PRODUCE, "alice", "app", 0, address)
        assert sensor is not None
        assert (sensor.exempt, sensor.rate_per_s) == (False, 1_000)


def test_a_reload_puts_other_rules_in_force() -> None:
    manager = manager_of(ExemptRule("alice"))
    generation = manager.generation
    manager.reload(QuotaLimits(manager.limits.entries.items(), exempt=[ExemptRule("bob")]), 0)
    sensors = [manager.sensor(QuotaKind.PRODUCE, user, "app", 0) for user in ("alice", "bob")]
    assert [sensor.exempt for sensor in sensors if sensor] == [False, True]
    assert manager.generation > generation


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ("::ffff:10.1.0.0/112", "10.1.0.0/16"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::/95", "::/95"),
        ("2001:db8::/32", "2001:db8::/32"),
    ],
)
def test_a_network_of_ipv4_written_in_ipv6_is_one_of_ipv4(text: str, network: str) -> None:
    assert str(network_of(text)) == network


def test_an_exempt_connection_owes_nothing_however_much_it_moves() -> None:
    sensor = exempt_sensor(QuotaKind.PRODUCE)
    assert sensor.charge(1e15, 5.0) <= 5.0
    assert sensor.exempt
    assert sensor.shadow
