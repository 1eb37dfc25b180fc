"""Entities and the eight levels: what is looked up, who shares a bucket, what is printed."""

from __future__ import annotations

import pytest

from sluice.quotas.entity import DEFAULT, OVERFLOW, Prefix, QuotaEntity, QuotaLevel, Tenant

TEAM = Tenant("team")
A = Prefix("a")
# level → (entity looked up, bucket) for user "alice", client id "app"; Kafka's metric tags are the bucket:
# a part that Kafka tags with "" is None here (ClientQuotaManager.DefaultQuotaCallback.quotaMetricTags).
KAFKAS_LEVELS = {
    QuotaLevel.USER_CLIENT: (QuotaEntity("alice", "app"), QuotaEntity("alice", "app")),
    QuotaLevel.USER_DEFAULT_CLIENT: (QuotaEntity("alice", DEFAULT), QuotaEntity("alice", "app")),
    QuotaLevel.USER: (QuotaEntity("alice", None), QuotaEntity("alice", None)),
    QuotaLevel.DEFAULT_USER_CLIENT: (QuotaEntity(DEFAULT, "app"), QuotaEntity("alice", "app")),
    QuotaLevel.DEFAULT_USER_DEFAULT_CLIENT: (QuotaEntity(DEFAULT, DEFAULT), QuotaEntity("alice", "app")),
    QuotaLevel.DEFAULT_USER: (QuotaEntity(DEFAULT, None), QuotaEntity("alice", None)),
    QuotaLevel.CLIENT: (QuotaEntity(None, "app"), QuotaEntity(None, "app")),
    QuotaLevel.DEFAULT_CLIENT: (QuotaEntity(None, DEFAULT), QuotaEntity(None, "app")),
}
# The same, where alice is in tenant TEAM and prefix A fits. A group's bucket is shared.
GROUP_LEVELS = {
    QuotaLevel.USER_CLIENT_PREFIX: (QuotaEntity("alice", A), QuotaEntity("alice", A)),
    QuotaLevel.TENANT_CLIENT: (QuotaEntity(TEAM, "app"), QuotaEntity(TEAM, "app")),
    QuotaLevel.TENANT_CLIENT_PREFIX: (QuotaEntity(TEAM, A), QuotaEntity(TEAM, A)),
    QuotaLevel.TENANT_DEFAULT_CLIENT: (QuotaEntity(TEAM, DEFAULT), QuotaEntity(TEAM, "app")),
    QuotaLevel.TENANT: (QuotaEntity(TEAM, None), QuotaEntity(TEAM, None)),
    QuotaLevel.DEFAULT_USER_CLIENT_PREFIX: (QuotaEntity(DEFAULT, A), QuotaEntity("alice", A)),
    QuotaLevel.CLIENT_PREFIX: (QuotaEntity(None, A), QuotaEntity(None, A)),
}
LEVELS = {**KAFKAS_LEVELS, **GROUP_LEVELS}
USERS = ("user", "tenant", "default_user", "")
CLIENTS = ("client", "client_prefix", "default_client", "")


def test_kafkas_levels_stand_in_kafkas_order_of_precedence() -> None:
    assert [level for level in QuotaLevel if level.is_kafkas] == list(KAFKAS_LEVELS)


def test_groups_come_behind_the_exact_and_before_the_defaults_of_users_and_of_client_ids() -> None:
    in_order = ["_".join(filter(None, (user, client))) for user in USERS for client in CLIENTS]
    assert [level.value for level in QuotaLevel] == in_order[:-1]


def test_a_level_is_named_as_in_the_metric_label() -> None:
    assert [level.value for level in QuotaLevel] == [level.name.lower() for level in QuotaLevel]


@pytest.mark.parametrize("level", QuotaLevel)
def test_a_level_looks_up_its_entity_and_names_its_bucket(level: QuotaLevel) -> None:
    configured, bucket = LEVELS[level]
    assert level.configured_entity("alice", "app", TEAM, A) == configured
    assert level.bucket("alice", "app", configured) == bucket
    assert QuotaLevel.of(configured) is level


@pytest.mark.parametrize("level", GROUP_LEVELS)
def test_a_level_of_a_group_looks_up_nothing_for_who_is_in_none(level: QuotaLevel) -> None:
    assert level.configured_entity("alice", "app") is None


@pytest.mark.parametrize("level", QuotaLevel)
def test_a_bucket_is_minted_exactly_if_the_configured_entity_has_a_default(level: QuotaLevel) -> None:
    configured, _ = LEVELS[level]
    assert level.mints_buckets == (DEFAULT in {configured.user, configured.client_id})
    assert level.mints_client_ids == (configured.client_id is DEFAULT)


def test_a_group_is_none_of_the_names_that_it_looks_like() -> None:
    assert len({QuotaEntity("team"), QuotaEntity(TEAM), QuotaEntity("tenant:team")}) == 3
    assert len({QuotaEntity(None, "a"), QuotaEntity(None, A), QuotaEntity(None, "a*")}) == 3


def test_an_entity_tells_its_parts_by_their_keys_in_the_quota_file() -> None:
    assert QuotaEntity(TEAM, A).parts == {"tenant": "team", "client-id-prefix": "a"}
    assert QuotaEntity("alice", DEFAULT).parts == {"user": "alice", "client-id": DEFAULT}
    assert QuotaEntity(ip="10.0.0.1").parts == {"ip": "10.0.0.1"}


@pytest.mark.parametrize(
    "entity", [QuotaEntity(), QuotaEntity("alice", OVERFLOW), QuotaEntity(OVERFLOW, None)]
)
def test_an_entity_that_cannot_be_configured_has_no_level(entity: QuotaEntity) -> None:
    with pytest.raises(KeyError):
        QuotaLevel.of(entity)


def test_a_user_really_called_default_is_not_the_default() -> None:
    assert QuotaEntity("<default>", None) != QuotaEntity(DEFAULT, None)
    assert QuotaEntity("alice", "<overflow>") != QuotaEntity("alice", OVERFLOW)


@pytest.mark.parametrize(
    ("entity", "shown"),
    [
        (QuotaEntity("alice", "app"), "user 'alice', client-id 'app'"),
        (QuotaEntity(DEFAULT, None), "user <default>"),
        (QuotaEntity("<default>", None), "user '<default>'"),
        (QuotaEntity(None, OVERFLOW), "client-id <overflow>"),
        (QuotaEntity(None, "a\nb\ud800"), r"client-id 'a\nb\ud800'"),
        (QuotaEntity(TEAM, A), "tenant 'team', client-id-prefix 'a'"),
        (QuotaEntity(), "nobody"),
    ],
)
def test_an_entity_prints_on_one_line_and_tells_a_name_from_the_default(
    entity: QuotaEntity, shown: str
) -> None:
    assert str(entity) == shown
