"""The section `producer_ids` of the configuration, and what the quota makes of it (docs/producer-ids.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sluice.proxy.config.options import NO_BOOL, File, Options
from sluice.proxy.session.producer_ids.gate_table import DEFAULT_EXPIRY_MS, DEFAULT_MAX_GATES
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.producer_ids.buckets import BucketShape
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.store import StoreKind


class ProducerIdOptions(Options):
    """How new producer ids are told from known ones, and kept within producer_ids_rate (KIP-936)."""

    window_num: Annotated[int, Field(ge=2, le=1000), NO_BOOL] = Field(
        default=11,
        description="Samples for which an id stays known (KIP-936: producer.id.quota.window.num).",
    )
    window_size_s: Annotated[int, Field(ge=1, le=86_400), NO_BOOL] = Field(
        default=3600, description="Span of a sample (KIP-936: producer.id.quota.window.size.seconds)."
    )
    store: Literal["exact", "bloom"] = Field(
        default="exact",
        description="exact: a set of the known ids; bloom: filters, smaller for rates of 100,000 an hour "
        "and more, but a few new ids pass as known.",
    )
    false_positive_share: Annotated[float, Field(gt=0, le=0.5), NO_BOOL] = Field(
        default=0.01, description="Store bloom: share of new ids that pass as known, uncounted."
    )
    burst_s: Annotated[float, Field(gt=0, le=604_800), NO_BOOL] = Field(
        default=3600.0, description="Seconds' worth of the rate that an idle user may bring at once."
    )
    forced_share: Annotated[float, Field(ge=0, le=1), NO_BOOL] = Field(
        default=0.1,
        description="What ids that have waited for long may bring beyond the rate, as a share of it; half of "
        "it is for members of groups and transactional producers alone.",
    )
    forced_after_s: Annotated[float, Field(ge=0, le=3600), NO_BOOL] = Field(
        default=30.0,
        description="For so long an id has waited then, refusals included; of a group's member or a "
        "transactional producer a third of its smallest timeout, if that is less.",
    )
    broker_heap_bytes: Annotated[int, Field(ge=67_108_864, le=2**50), NO_BOOL] = Field(
        default=1_073_741_824,
        description="Heap of the broker behind (-Xmx); its share for ids is the ceiling over all users.",
    )
    broker_heap_share: Annotated[float, Field(gt=0, le=1), NO_BOOL] = Field(
        default=0.25,
        description="Share of that heap that producer ids may take, 270 bytes for each partition of an id.",
    )
    user_share: Annotated[float, Field(gt=0, le=1), NO_BOOL] = Field(
        default=0.5, description="Share of the ceiling that one user may take, whatever its rate."
    )
    broker_expiration_s: Annotated[float, Field(ge=1, le=31_536_000), NO_BOOL] = Field(
        default=86_400.0,
        description="For so long the broker keeps an id after its last write "
        "(Kafka: producer.id.expiration.ms).",
    )
    transactional_ids_per_hour: Annotated[float, Field(gt=0, le=2**31), NO_BOOL] | None = Field(
        default=None,
        description="New transactional ids that a user with producer_ids_rate may bring without waiting. "
        "Beyond, InitProducerId waits, 8 s at most, and then goes; if left out, they are only counted.",
    )
    max_waiting_ids: Annotated[int, Field(ge=1, le=10_000_000), NO_BOOL] = Field(
        default=10_000,
        description="Waiting ids of one user whose age is kept; those beyond begin to wait anew when "
        "they are sent again.",
    )
    max_gates: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] = Field(
        default=DEFAULT_MAX_GATES,
        description="Sequence gates of one user: one for each refused (id, topic, partition). One who fills "
        "them goes on being refused.",
    )
    gate_s: Annotated[float, Field(ge=30, le=3600), NO_BOOL] = Field(
        default=DEFAULT_EXPIRY_MS / 1000.0,
        description="A gate ends so long after its batch was refused last; at least as long as a client "
        "may let pass between two tries, its hold included.",
    )
    cleanup_interval_s: Annotated[float, Field(ge=0.1, le=3600), NO_BOOL] = Field(
        default=60.0,
        description="How often what is over is dropped also for users that are silent "
        "(KIP-936: producer.id.quota.cache.cleanup.scheduler.interval.ms, there 10 ms).",
    )
    max_observed_ids: Annotated[int, Field(ge=2, le=10_000_000), NO_BOOL] = Field(
        default=100_000, description="Ids remembered of a user that nothing limits: shadow mode, exempt."
    )
    max_users: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] = Field(
        default=10_000, description="Users with a limit that are counted each; those beyond share one."
    )
    snapshot_file: File | None = Field(
        default=None,
        description="Where known ids and buckets survive a restart; if left out, all live ids are unseen "
        "after it. One file for one process.",
    )
    snapshot_interval_s: Annotated[float, Field(ge=1, le=86_400), NO_BOOL] = Field(
        default=60.0, description="How often that file is written, besides at the end."
    )


def settings_of(options: ProducerIdOptions) -> ProducerIdSettings:
    """The same as the quota takes it."""
    return ProducerIdSettings(
        window_num=options.window_num,
        sample_ms=options.window_size_s * 1000.0,
        store=StoreKind(options.store),
        false_positive_rate=options.false_positive_share,
        buckets=BucketShape(
            burst_h=options.burst_s / 3600.0,
            forced_share=options.forced_share,
            expiration_ms=options.broker_expiration_s * 1000.0,
        ),
        forced_after_ms=options.forced_after_s * 1000.0,
        broker_heap_bytes=options.broker_heap_bytes,
        heap_share=options.broker_heap_share,
        principal_share=options.user_share,
        transactional_ids_per_hour=options.transactional_ids_per_hour,
        max_waiting_ids=options.max_waiting_ids,
        max_observed_ids=options.max_observed_ids,
        max_principals=options.max_users,
    )


def producer_ids_of(options: ProducerIdOptions) -> ProducerIds:
    """What the sessions of the process share, by these options."""
    return ProducerIds(settings_of(options), max_gates=options.max_gates, gate_ms=options.gate_s * 1000.0)
