"""The JSON Schema of the configuration file, for editors; the reader of the file knows more."""

from __future__ import annotations

import json

from sluice.proxy.config.config import Config
from sluice.proxy.config.options import without_titles


def config_schema_text() -> str:
    """The JSON Schema of the configuration file."""
    schema = without_titles(Config.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Sluice configuration"}
    return json.dumps({**head, **schema}, indent=2) + "\n"
