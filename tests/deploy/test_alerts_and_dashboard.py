"""Alerts and the dashboard ask for metrics and labels that exist; every alert has its page and its test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sluice.proxy.metrics.table import METRICS

ROOT: Final = Path(__file__).resolve().parents[2]
RULES: Final = ROOT / "deploy/prometheus/alerts.yaml"
TESTS: Final = ROOT / "deploy/prometheus/alerts_test.yaml"
DASHBOARD: Final = ROOT / "deploy/grafana/sluice.json"
RUNBOOK: Final = ROOT / "docs/runbook"
TARGET_LABELS: Final = {"job", "instance", "pod", "namespace"}
"""which Prometheus adds to every sample"""
NOT_OURS: Final = {
    "up",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
}
"""of Prometheus itself and of prometheus_client"""
WORD: Final = re.compile(r"\b(?:sluice|process|python)_[a-z0-9_]+\b|\bup\b")
SELECTOR: Final = re.compile(r"([a-z][a-z0-9_]*)\{([^}]*)\}")
LISTS: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def alerts() -> list[dict[str, Any]]:
    return [rule for group in load(RULES)["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str, str]]:
    """(where, expression, its legend or annotations) of all that is asked of Prometheus."""
    for rule in alerts():
        yield rule["alert"], rule["expr"], " ".join(rule["annotations"].values())
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            values = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert values is not None
            yield f"${variable['name']}", values[1], f"{{{{{values[2]}}}}}"


def row_name(name: str) -> str:
    """The row of the table that a sample belongs to."""
    family = re.sub(r"_(bucket|sum|count)$", "", name)
    return family if family in METRICS and METRICS[family].type == "histogram" else name


def labels_of(name: str) -> set[str]:
    if name in NOT_OURS:
        return TARGET_LABELS
    row = METRICS[row_name(name)]
    return TARGET_LABELS | set(row.labels) | ({"le"} if row.type == "histogram" else set())


def problems(expr: str, shown: str) -> list[str]:
    """What an expression, or the legend or text beside it, takes for granted and is not so."""
    names = set(WORD.findall(re.sub(r'"[^"]*"', '""', expr)))
    unknown = {name for name in names if name not in NOT_OURS and row_name(name) not in METRICS}
    if unknown or not names:
        return [f"no metrics: {sorted(unknown)}"]
    found = []
    for name, matchers in SELECTOR.findall(expr):
        used = set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers))
        found += [f"{name} has no label {label}" for label in sorted(used - labels_of(name))]
    known = set().union(*(labels_of(name) for name in names))
    asked = {label.strip() for labels in LISTS.findall(expr) for label in labels.split(",") if label.strip()}
    asked |= set(re.findall(r"\{\{\s*(?!end\b)(\w+)\s*\}\}", shown))
    asked |= set(re.findall(r"\$labels\.(\w+)", shown))
    return found + [f"nothing in it has a label {label}" for label in sorted(asked - known)]


@pytest.mark.parametrize(("where", "expr", "shown"), list(queries()), ids=lambda value: str(value)[:30])
def test_what_is_asked_for_exists(where: str, expr: str, shown: str) -> None:
    assert problems(expr, shown) == []


@pytest.mark.parametrize(
    ("expr", "shown", "problem"),
    [
        ("sluice_quota_byte_total", "", "no metrics: ['sluice_quota_byte_total']"),
        ("rate(sluice_quota_bytes_total_bucket[5m])", "", "no metrics: ['sluice_quota_bytes_total_bucket']"),
        ('sluice_connections{user="a"}', "", "sluice_connections has no label user"),
        ("sum by (user) (sluice_connections)", "", "nothing in it has a label user"),
        ("sluice_connections > 1", "{{ $labels.user }}", "nothing in it has a label user"),
        ("sluice_connections", "{{user}}", "nothing in it has a label user"),
        ("vector(1)", "", "no metrics: []"),
    ],
)
def test_a_mistake_in_an_expression_is_seen(expr: str, shown: str, problem: str) -> None:
    assert problems(expr, shown) == [problem]


def test_every_alert_has_a_severity_and_says_what_and_where() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in {"page", "ticket", "info"}, rule["alert"]
        assert {"summary", "description", "runbook_url"} == set(rule["annotations"]), rule["alert"]
        assert "for" in rule, rule["alert"]


def test_every_alert_leads_to_a_page_that_names_it_and_the_index_has_all() -> None:
    index = (RUNBOOK / "index.md").read_text(encoding="utf-8")
    for rule in alerts():
        page = ROOT / rule["annotations"]["runbook_url"]
        assert page.parent == RUNBOOK
        assert f"`{rule['alert']}`" in page.read_text(encoding="utf-8")
        assert f"`{rule['alert']}`" in index
        assert f"({page.name})" in index


def test_every_page_of_the_runbook_belongs_to_an_alert() -> None:
    led_to = {Path(rule["annotations"]["runbook_url"]).name for rule in alerts()}
    assert {path.name for path in RUNBOOK.glob("*.md")} - {"index.md"} == led_to


def test_every_alert_is_shown_to_fire_and_nothing_else_is_tested() -> None:
    fired = {
        case["alertname"]
        for test in load(TESTS)["tests"]
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in alerts()}


def test_every_option_that_a_page_names_exists() -> None:
    schema = json.loads((ROOT / "docs/config.schema.json").read_text(encoding="utf-8"))
    options = {
        option
        for definition in (schema, *schema["$defs"].values())
        for option in definition.get("properties", ())
    }
    sections = {name for name in schema["properties"] if name not in {"mode", "unknown_apis"}}
    for page in RUNBOOK.glob("*.md"):
        for section, option in re.findall(r"`([a-z_]+)\.([a-z_]+)[`:]", page.read_text(encoding="utf-8")):
            if section in sections:
                assert option in options, f"{page.name}: {section}.{option}"


def test_the_dashboard_is_what_its_panels_give() -> None:
    program = ROOT / "deploy/grafana/generate.py"
    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python {program.relative_to(ROOT)}: {done.stdout}"


def test_panels_have_places_of_their_own_and_say_what_they_show() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]
