"""The newcomer goes by what pages and alerts say, not by what it was told once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.newcomer.__main__ import (
    ALERT,
    METRIC,
    THRESHOLD,
    Failed,
    ran,
    shell_blocks,
    top_of_the_alerts_page,
)

ROOT = Path(__file__).resolve().parents[2]


def test_its_threshold_is_that_of_the_alert() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    (rule,) = [rule for group in groups for rule in group["rules"] if rule["alert"] == ALERT]
    assert rule["expr"] == f"rate({METRIC}[5m]) > {THRESHOLD:g}"


def test_it_asks_top_as_the_page_says_with_the_alerts_label_as_it_stands() -> None:
    words = top_of_the_alerts_page("tenant:team-a", Path("sluice.yaml"), Path("sluice"))
    assert " ".join(words) == "sluice top --once --user tenant:team-a --why --config sluice.yaml"


def test_it_installs_by_one_block_of_the_quick_start() -> None:
    (block,) = [block for block in shell_blocks("docs/quick-start.md") if "pip install" in block.text]
    assert "~/sluice-env/bin/pip install --require-hashes -r requirements/run.txt" in block.text


def test_a_command_that_fails_ends_it_with_what_it_said() -> None:
    with pytest.raises(Failed, match=r"(?s)ended with 3.*no such thing"):
        ran(["bash", "-c", "echo no such thing >&2; exit 3"], {"PATH": "/usr/bin:/bin"})
