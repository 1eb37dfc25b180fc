"""The quick start boots: its blocks as they stand, two real brokers, a Sluice before each, a real client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testkit.kafka.dist import KafkaDist
from testkit.repository.page_world import ROOT, own_network, page_environment

pytestmark = [pytest.mark.kafka, pytest.mark.long]


def prepared(folder: Path, dist: KafkaDist) -> dict[str, str]:
    """Kafka's scripts on the PATH, and Sluice where the page installs it; the environment for it."""
    environment = page_environment(folder, dist)
    installed = folder / "home" / "sluice-env" / "bin"
    installed.mkdir(parents=True)
    (installed / "sluice").symlink_to(Path(sys.executable).with_name("sluice"))
    return environment


def test_the_quick_start_as_it_stands_leads_clients_through_sluice_to_both_brokers(
    kafka_dist: KafkaDist, tmp_path: Path
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    done = subprocess.run(
        [*own_network(), sys.executable, "-m", "testkit.repository.page_run", folder],
        env=prepared(tmp_path, kafka_dist),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
    )
    logs = "".join(f"\n{log.name}: {log.read_text()[-1500:]}" for log in sorted(folder.glob("*.log")))
    assert done.returncode == 0, done.stderr + logs
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["used"] == {
        "failed": [],
        "left": 0,
        "consumed": 3_000,
        "in_sync": [[0, 1]] * 4,
        "followers": 0.0,  # they fetch past Sluice
        "addresses": ["localhost:9092", "localhost:9192"],
    }
    looked = said["sluice top --once --why"]
    assert "ANONYMOUS" in looked
    assert "sluice_throttled_seconds_total{" in looked
    assert '{"status": "ok"}' in looked
    changed = next(text for command, text in said.items() if command.startswith("sluice configs"))
    assert "2,097,152 bytes per second" in changed
