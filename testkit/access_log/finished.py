"""A finished request's record with names: to write one, and to read what sessions wrote."""

from __future__ import annotations

from typing import NamedTuple

from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import Flow


class Finished(NamedTuple):
    """A RequestRecord: the same tuple. `_make` gives names to one."""

    flow: Flow
    request_bytes: int = 100
    response_bytes: int = 50
    upstream_ms: float = 0.0
    throttle_ms: float = 0.0
    held_ms: float = 0.0
    finished_ms: float = 0.0
    api_key: int = 0
    api_version: int = 9
    user: str = "alice"
    sensor: Sensor | None = None

    @property
    def client_id(self) -> str:
        return self.flow.client_id
