"""The JSON Schema of the configuration file, for editors; the reader of the file knows more."""

from __future__ import annotations

import json
from typing import Any

from sluice.proxy.config.config import Config


def config_schema_text() -> str:
    """The JSON Schema of the configuration file."""
    schema = _without_titles(Config.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Sluice configuration"}
    return json.dumps({**head, **schema}, indent=2) + "\n"


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """pydantic's titles only repeat the keys."""
    return {
        key: _without_titles(value) if isinstance(value, dict) else value
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }
