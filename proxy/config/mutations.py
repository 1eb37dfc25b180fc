"""The section `controller_mutations` of the configuration (docs/controller-mutations.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sluice.proxy.config.options import NO_BOOL, Options


class MutationOptions(Options):
    """How partitions created and deleted are counted for controller_mutation_rate (KIP-599)."""

    window_num: Annotated[int, Field(ge=1, le=1000), NO_BOOL] = Field(
        default=11,
        description="The bucket holds so many samples of the rate (Kafka: controller.quota.window.num).",
    )
    window_size_s: Annotated[int, Field(ge=1, le=3600), NO_BOOL] = Field(
        default=1, description="Span of a sample (Kafka: controller.quota.window.size.seconds)."
    )
    default_partitions: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] = Field(
        default=1,
        description="Partitions of a topic for which a client leaves the number to the brokers, until an "
        "answer of theirs tells it (Kafka: num.partitions).",
    )
