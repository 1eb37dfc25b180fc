"""Whose limit a client's usage counts against, as text: the bucket that the proxy would charge."""

from __future__ import annotations

from itertools import combinations, product

from sluice.quotas.entity import DEFAULT, ClientPart, Prefix, QuotaEntity, QuotaLevel, Tenant, UserPart
from sluice.quotas.entity_key import (
    LimitOrigin,
    is_exempt,
    key_of_address,
    key_of_client,
    limit_of,
    origin_of,
)
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits

KEY = "producer_byte_rate"
PRODUCE = QuotaKind.PRODUCE


def test_a_client_has_the_key_of_the_bucket_that_it_is_charged_to_and_one_without_a_limit_none() -> None:
    limits = QuotaLimits([(QuotaEntity("alice"), {KEY: 5}), (QuotaEntity("bob", DEFAULT), {KEY: 7})])
    assert key_of_client(limits, PRODUCE, "alice", "app") == '{"user": "alice"}'
    assert key_of_client(limits, PRODUCE, "bob", "app") == '{"client-id": "app", "user": "bob"}'
    assert key_of_client(limits, PRODUCE, "carol", "app") is None
    assert key_of_client(limits, QuotaKind.FETCH, "alice", "app") is None
    assert limit_of(limits, PRODUCE, '{"user": "alice"}') == 5
    assert limit_of(limits, PRODUCE, '{"user": "carol"}') is None


def test_an_address_has_a_bucket_of_its_own_where_there_is_a_limit() -> None:
    limits = QuotaLimits([(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 5})])
    assert key_of_address(limits, "10.0.0.1") == '{"ip": "10.0.0.1"}'
    assert key_of_address(limits, "10.0.0.2") is None


def test_a_name_is_written_as_it_is_told_and_not_in_escapes() -> None:
    limits = QuotaLimits([(QuotaEntity("jürgen", "поток"), {KEY: 5})])
    assert key_of_client(limits, PRODUCE, "jürgen", "поток") == '{"client-id": "поток", "user": "jürgen"}'
    assert limit_of(limits, PRODUCE, '{"client-id": "поток", "user": "jürgen"}') == 5


def test_a_limit_that_names_get_by_a_default_is_told_from_one_that_somebody_was_given() -> None:
    entries = [
        QuotaEntity("alice"), QuotaEntity("bob", DEFAULT), QuotaEntity("bob", "app"), QuotaEntity(DEFAULT),
        QuotaEntity(None, DEFAULT),
    ]  # fmt: skip
    limits = QuotaLimits([(entity, {KEY: 5}) for entity in entries])
    found = [
        origin_of(limits, PRODUCE, key)
        for key in ('{"user": "alice"}', '{"client-id": "app", "user": "bob"}', '{"user": "carol"}',
                    '{"client-id": "x", "user": "bob"}')
    ]  # fmt: skip
    assert found == [LimitOrigin.OWN, LimitOrigin.OWN, LimitOrigin.DEFAULT, LimitOrigin.ANYBODY]
    of_clients = QuotaLimits([(QuotaEntity(None, DEFAULT), {KEY: 5}), (QuotaEntity(None, "app"), {KEY: 5})])
    assert origin_of(of_clients, PRODUCE, '{"client-id": "x"}') is LimitOrigin.ANYBODY
    assert origin_of(of_clients, PRODUCE, '{"client-id": "app"}') is LimitOrigin.OWN
    rate = {"connection_creation_rate": 5}
    of_addresses = QuotaLimits([(QuotaEntity(ip=DEFAULT), rate), (QuotaEntity(ip="10.0.0.2"), rate)])
    kind = QuotaKind.CONNECTION_CREATION
    assert origin_of(of_addresses, kind, '{"ip": "10.0.0.1"}') is LimitOrigin.ANYBODY
    assert origin_of(of_addresses, kind, '{"ip": "10.0.0.2"}') is LimitOrigin.OWN


def test_the_key_of_a_clients_bucket_leads_back_to_the_limit_that_the_proxy_applies_at_all_levels() -> None:
    """Prefixes of a tenant, and prefixes beside an exact client id of the same name, led to no limit."""
    users: tuple[UserPart, ...] = ("alice", "bob", Tenant("t"), DEFAULT, None)
    ids: tuple[ClientPart, ...] = ("app", "app-", Prefix("app"), Prefix("app-"), DEFAULT, None)
    entities = [QuotaEntity(*pair) for pair in product(users, ids) if pair != (None, None)]
    reached = set()
    for some in combinations(entities, 3):
        limits = QuotaLimits(
            ((entity, {KEY: 5 + number}) for number, entity in enumerate(some)),
            tenants={"t": ["alice", "carol"]},
        )
        for user, client_id in product(("alice", "bob", "carol"), ("app", "app-", "app-1", "apple", "x", "")):
            match = limits.resolve(PRODUCE, user, client_id)
            key = key_of_client(limits, PRODUCE, user, client_id)
            assert (match is None) is (key is None)
            if match is not None and key is not None:
                reached.add(match.level)
                assert limit_of(limits, PRODUCE, key) == match.limit, (some, user, client_id)
                assert (origin_of(limits, PRODUCE, key) is LimitOrigin.OWN) is not match.level.mints_buckets
    assert reached == set(QuotaLevel)


def test_a_prefix_whose_limit_is_gone_has_that_of_no_default() -> None:
    limits = QuotaLimits([(QuotaEntity("bob", DEFAULT), {KEY: 5}), (QuotaEntity(None, "app"), {KEY: 6})])
    assert limit_of(limits, PRODUCE, '{"client-id-prefix": "app", "user": "bob"}') is None
    assert limit_of(limits, PRODUCE, '{"client-id-prefix": "app"}') is None


def test_a_bucket_is_exempt_where_rules_fit_all_its_clients_wherever_they_come_from() -> None:
    limits = QuotaLimits(
        exempt=[
            ExemptRule("mirror"),
            ExemptRule("copy"),
            ExemptRule("alice", client_id="backfill"),
            ExemptRule("bob", network_of("10.0.0.0/8")),
            ExemptRule(network=network_of("10.9.0.0/16")),
        ],
        tenants={"whole": ["mirror"], "in-part": ["copy", "alice"], "empty": []},
    )
    keys = {
        '{"user": "mirror"}': True, '{"client-id": "x", "user": "mirror"}': True,
        '{"client-id-prefix": "x", "user": "mirror"}': True,
        '{"user": "alice"}': False, '{"client-id": "backfill", "user": "alice"}': True,
        '{"client-id-prefix": "backfill", "user": "alice"}': False, '{"user": "bob"}': False,
        '{"client-id": "backfill"}': False, '{"ip": "10.9.0.1"}': True, '{"ip": "10.8.0.1"}': False,
        '{"tenant": "whole"}': True, '{"tenant": "in-part"}': False, '{"tenant": "empty"}': False,
        '{"client-id": "backfill", "tenant": "in-part"}': True,
    }  # fmt: skip
    assert {key: is_exempt(limits, key) for key in keys} == keys
