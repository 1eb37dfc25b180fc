"""Names for people: api keys in logs, errors and metric labels."""

from __future__ import annotations

from sluice.protocol._tables import API_NAMES


def api_name(api_key: int) -> str:
    """`Produce` for 0; `ApiKey1234` for a key that Kafka 4.3.1 does not have."""
    return API_NAMES.get(api_key, f"ApiKey{api_key}")
