"""Entities and the eight levels: what is looked up, who shares a bucket, what is printed."""

from __future__ import annotations

import pytest

from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity, QuotaLevel

# level → (entity looked up, bucket) for user "alice", client id "app"; Kafka's metric tags are the bucket:
# a part that Kafka tags with "" is None here (ClientQuotaManager.DefaultQuotaCallback.quotaMetricTags).
LEVELS = {
    QuotaLevel.USER_CLIENT: (QuotaEntity("alice", "app"), QuotaEntity("alice", "app")),
    QuotaLevel.USER_DEFAULT_CLIENT: (QuotaEntity("alice", DEFAULT), QuotaEntity("alice", "app")),
    QuotaLevel.USER: (QuotaEntity("alice", None), QuotaEntity("alice", None)),
    QuotaLevel.DEFAULT_USER_CLIENT: (QuotaEntity(DEFAULT, "app"), QuotaEntity("alice", "app")),
    QuotaLevel.DEFAULT_USER_DEFAULT_CLIENT: (QuotaEntity(DEFAULT, DEFAULT), QuotaEntity("alice", "app")),
    QuotaLevel.DEFAULT_USER: (QuotaEntity(DEFAULT, None), QuotaEntity("alice", None)),
    QuotaLevel.CLIENT: (QuotaEntity(None, "app"), QuotaEntity(None, "app")),
    QuotaLevel.DEFAULT_CLIENT: (QuotaEntity(None, DEFAULT), QuotaEntity(None, "app")),
}


def test_the_levels_stand_in_kafkas_order_of_precedence() -> None:
    assert list(QuotaLevel) == list(LEVELS)


def test_a_level_is_named_as_in_the_metric_label() -> None:
    assert [level.value for level in QuotaLevel] == [level.name.lower() for level in QuotaLevel]


@pytest.mark.parametrize("level", QuotaLevel)
def test_a_level_looks_up_its_entity_and_names_its_bucket(level: QuotaLevel) -> None:
    configured, bucket = LEVELS[level]
    assert level.configured_entity("alice", "app") == configured
    assert level.bucket("alice", "app") == bucket
    assert QuotaLevel.of(configured) is level


@pytest.mark.parametrize("level", QuotaLevel)
def test_a_bucket_is_minted_exactly_if_the_configured_entity_has_a_default(level: QuotaLevel) -> None:
    configured, _ = LEVELS[level]
    assert level.mints_buckets == (DEFAULT in {configured.user, configured.client_id})
    assert level.mints_client_ids == (configured.client_id is DEFAULT)


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
        (QuotaEntity(), "nobody"),
    ],
)
def test_an_entity_prints_on_one_line_and_tells_a_name_from_the_default(
    entity: QuotaEntity, shown: str
) -> None:
    assert str(entity) == shown
