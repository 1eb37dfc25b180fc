"""The smallest good configuration, and what is told about one that is not good."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.proxy.config.file import load_config
from sluice.quotas.files.config_error import ConfigError

GOOD = """\
listeners:
  - name: clients
    bind_port: 9092
    upstream_host: 127.0.0.1
    upstream_port: 19092
quotas:
  file: quotas.yaml
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "sluice.yaml"
    file.write_text(text)
    return file


def errors_of(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    """The problems of a configuration, a line each, without the folder's name."""
    with pytest.raises(ConfigError) as caught:
        load_config(write(folder, text), environ or {})
    return str(caught.value).replace(f"{folder}/", "").splitlines()
