"""The section `pacing`: how a principal over its quota is slowed down."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sluice.proxy.config.options import NO_BOOL, Options

SoftwareName = Annotated[str, Field(pattern=r"^(\*|[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?)$")]
"""As Kafka allows them (KIP-511), or all others"""


class PacingOptions(Options):
    """How a principal over its quota is slowed down."""

    mode: Literal["smooth", "kafka"] = Field(
        default="smooth",
        description="smooth: one token bucket per quota entity, evenly paced; kafka: the broker's own "
        "windows and delays, sawtooth included.",
    )
    window_num: Annotated[int, Field(ge=2, le=1000), NO_BOOL] = Field(
        default=11, description="Mode kafka: samples kept (Kafka: quota.window.num)."
    )
    window_size_s: Annotated[int, Field(ge=1, le=3600), NO_BOOL] = Field(
        default=1, description="Mode kafka: span of a sample (Kafka: quota.window.size.seconds)."
    )
    burst_s: Annotated[float, Field(gt=0, le=3600), NO_BOOL] = Field(
        default=1.0, description="Seconds' worth of quota that an idle entity may use at once."
    )
    max_debt_s: Annotated[float, Field(gt=0, le=3600), NO_BOOL] = Field(
        default=60.0,
        description="Seconds' worth of quota that an entity can owe at most; what goes beyond is forgiven.",
    )
    answer_budget_s: Annotated[float, Field(gt=0, le=15), NO_BOOL] = Field(
        default=8.0,
        description="Longest that a request waits in the proxy by the proxy's own doing; what is left is "
        "carried as debt.",
    )
    client_patience: dict[SoftwareName, Annotated[float, Field(ge=5, le=3600), NO_BOOL]] = Field(
        default={},
        json_schema_extra={"additionalProperties": False},
        description="Seconds that a client waits for an answer, by the name that it tells in ApiVersions "
        "(`kgo`), beside and above the built-in table; `*` for all others. Its requests wait for 0.8 of it "
        "at most.",
    )
    group_delay_max_s: Annotated[float, Field(ge=0, le=2), NO_BOOL] = Field(
        default=2.0, description="Longest mute or hold of a connection that has carried a group request."
    )
    fetch_delay_default_s: Annotated[float, Field(ge=0, le=15), NO_BOOL] = Field(
        default=3.0,
        description="Longest mute of a connection that only fetches, while no session timeout was seen.",
    )
    written_fetch_throttle_max_s: Annotated[float, Field(ge=0, le=2), NO_BOOL] = Field(
        default=2.0,
        description="Largest throttle_time_ms written into a Fetch answer (some clients sleep on it).",
    )
    share_fetch_delay_max_s: Annotated[float, Field(ge=0, le=15), NO_BOOL] = Field(
        default=10.0,
        description="Longest mute after a ShareFetch or ShareAcknowledge (acquisition locks last 30 s).",
    )
