#!/usr/bin/env python3
"""panels.yaml → sluice.json: the Grafana dashboard. The former says what differs from panel to panel.

    python deploy/grafana/generate.py [--check]

Where a panel stands and what all of them share is added here. Two panels a line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

OUTPUT: Final = Path(__file__).with_name("sluice.json")
PANELS: Final = Path(__file__).with_name("panels.yaml")
AT: Final = 'job=~"$job", instance=~"$instance"'
WHO: Final = "{{quota}} {{user}} {{client_id}}"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHT: Final = 8
_WIDTH: Final = 12
Values = dict[str, Any]


def panel_json(panel: Values, number: int, x: int, y: int) -> Values:
    """One panel in its place."""
    is_table = panel.get("kind") == "table"
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query["expr"].replace("@", AT),
            "legendFormat": WHO if query.get("legend") == "WHO" else query.get("legend", ""),
            **({"instant": True, "format": "table"} if is_table else {}),
        }
        for index, query in enumerate(panel["queries"])
    ]
    shared = {
        "id": number,
        "type": panel.get("kind", "timeseries"),
        "title": panel["title"],
        "description": panel["help"],
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel["unit"]}, "overrides": []},
        "targets": targets,
    }
    if is_table:
        hidden = {"id": "organize", "options": {"excludeByName": {"Time": True}}}
        return {**shared, "options": {}, "transformations": [hidden]}
    options = {
        "tooltip": {"mode": "multi", "sort": "desc"},
        "legend": {"displayMode": "list", "placement": "bottom"},
    }
    return {**shared, "options": options}


def variable(name: str, query: str, label: str) -> Values:
    """A choice of several values, all of them at first."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> Values:
    """The whole of it."""
    panels: list[Values] = []
    y = 0
    for section in yaml.safe_load(PANELS.read_text(encoding="utf-8")):
        row, content = section["row"], section["panels"]
        place = {"h": 1, "w": 2 * _WIDTH, "x": 0, "y": y}
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row,
                "collapsed": False,
                "panels": [],
                "gridPos": place,
            }
        )
        y += 1
        for index, panel in enumerate(content):
            panels.append(panel_json(panel, len(panels) + 1, index % 2 * _WIDTH, y + index // 2 * _HEIGHT))
        y += -(-len(content) // 2) * _HEIGHT
    return {
        "uid": "sluice",
        "title": "Sluice: Kafka quotas",
        "tags": ["kafka", "quotas", "sluice"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                variable("job", "label_values(sluice_build_info, job)", "Job"),
                variable("instance", 'label_values(sluice_build_info{job=~"$job"}, instance)', "Proxy"),
                variable("user", 'label_values(sluice_quota_bytes_total{job=~"$job"}, user)', "User"),
            ]
        },
        "panels": panels,
    }


def main(arguments: list[str]) -> int:
    """Write the file if it has changed; with --check only tell, with exit code 1."""
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text:
        return 0
    print(f"grafana: {OUTPUT.name}: {'stale' if '--check' in arguments else 'written'}")
    if "--check" in arguments:
        return 1
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
