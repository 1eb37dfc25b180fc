"""The section `log` of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sluice.proxy.config.options import Options


class LogOptions(Options):
    """Structured logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level written."
    )
    format: Literal["auto", "json", "console"] = Field(
        default="auto",
        description="json: one object a line; console: for people; auto: console on a terminal, else json.",
    )
