"""Whose limit a client's usage counts against, as text: the bucket that the proxy would charge."""

from __future__ import annotations

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.entity_key import LimitOrigin, key_of_address, key_of_client, limit_of, origin_of
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
