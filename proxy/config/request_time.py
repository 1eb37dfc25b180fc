"""The section `request_time` of the configuration: what request_percentage takes requests to cost."""

from __future__ import annotations

from pydantic import Field

from sluice.proxy.config.options import File, Options


class RequestTimeOptions(Options):
    """What requests cost the broker's threads (docs/request-percentage.md)."""

    cost_file: File | None = Field(
        default=None,
        description="Costs that `sluice calibrate-cost` measured on a broker like yours; if left out, those "
        "that Sluice brings.",
    )
