#!/usr/bin/env python3
"""Compose's own loader takes the compose example, promtool its Prometheus file; bad ones are seen."""

# limit: 900 s

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from check_tools import CACHE, ROOT, Failed, go_build, output_of, prometheus_tool, run_check

FOLDER: Final = ROOT / "deploy" / "examples" / "compose"
SERVICES: Final = {"kafka", "sluice", "prometheus", "grafana"}
MISTAKES: Final = {
    "read_only: true": "readonly: true",
    "network_mode: service:kafka": "network_mode: service:nobody",
    "127.0.0.1:9092:9092": "127.0.0.1:port",
    "condition: service_started": "condition: service_there",
}
"""what is right in the file → what Compose refuses"""


def load(program: Path, file: Path) -> subprocess.CompletedProcess[str]:
    """What Compose makes of a file."""
    return subprocess.run([program, file], capture_output=True, text=True, timeout=60, check=False)


def main() -> str:
    program = go_build(ROOT / "deploy" / "checks" / "compose_files", CACHE / "bin")
    loaded = load(program, FOLDER / "compose.yaml")
    if loaded.returncode:
        raise Failed(f"compose.yaml: {loaded.stderr}")
    _look_at(json.loads(loaded.stdout))
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        bad = Path(folder, "compose.yaml")
        for right, wrong in MISTAKES.items():
            if right not in text:
                raise Failed(f"{right!r} is gone from compose.yaml; change this check")
            bad.write_text(text.replace(right, wrong), encoding="utf-8")
            if load(program, bad).returncode == 0:
                raise Failed(f"Compose takes {wrong!r}, so it would not see that mistake in ours")
        _check_prometheus(Path(folder))
    return f"Compose loads {len(SERVICES)} services, sees {len(MISTAKES)} mistakes, as promtool does"


def _look_at(project: dict[str, Any]) -> None:
    """As Compose understood it: what it would mount is there."""
    if set(project["services"]) != SERVICES:
        raise Failed(f"services: {sorted(project['services'])}")
    for name, service in project["services"].items():
        for mount in service.get("volumes") or ():
            if mount["type"] == "bind" and not Path(mount["source"]).exists():
                raise Failed(f"{name}: there is no {mount['source']}")
    build = Path(project["services"]["sluice"]["build"]["context"])
    if build.resolve() != ROOT:
        raise Failed(f"sluice is built of {build}")


def _check_prometheus(folder: Path) -> None:
    """In a folder with the rules beside it, as they are mounted."""
    (folder / "prometheus.yml").write_bytes((FOLDER / "prometheus.yml").read_bytes())
    (folder / "alerts.yaml").write_bytes((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_bytes())
    promtool = prometheus_tool("promtool")
    print(output_of(promtool, "check", "config", folder / "prometheus.yml"))
    (folder / "alerts.yaml").unlink()
    done = subprocess.run(
        [promtool, "check", "config", folder / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        raise Failed(f"promtool does not miss the rules: {done.stdout}")


if __name__ == "__main__":
    run_check(main)
