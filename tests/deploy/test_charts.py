"""What of the Helm charts can be seen without Helm: generated files are current, schemas strict."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import jsonschema
import pytest
import yaml

from sluice.proxy.config.config import LIVE_OPTIONS, Config

ROOT: Final = Path(__file__).resolve().parents[2]
HELM: Final = ROOT / "deploy/helm"
CHARTS: Final = ("sluice-lib", "sluice")
FREE: Final = {"properties.global"}
"""objects of which Helm, and no schema of ours, says what is in them"""


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def schema(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HELM / chart / "values.schema.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chart_generator", HELM / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def objects(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object, by where it stands."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from objects(item, f"{path}[{index}]")
    elif isinstance(node, dict):
        if node.get("type") == "object" or "properties" in node:
            yield path, node
        for key, value in node.items():
            yield from objects(value, f"{path}.{key}".strip("."))


def test_generated_files_are_current() -> None:
    program = HELM / "generate.py"
    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run python {program.relative_to(ROOT)}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("chart", CHARTS)
def test_no_object_of_a_schema_takes_keys_that_it_does_not_name(chart: str) -> None:
    open_objects = [
        path
        for path, node in objects(schema(chart))
        if node.get("additionalProperties", True) is True and path.split("proxy.")[-1] not in FREE
    ]
    assert open_objects == []


@pytest.mark.parametrize("chart", CHARTS)
def test_the_defaults_keep_to_their_schema_and_every_key_of_them_has_a_comment(
    chart: str, generator: ModuleType
) -> None:
    values = load(HELM / chart / "values.yaml")
    documented = {path for path, _, _ in generator.documented_values(chart)}
    # The gateway's `proxy` is only what differs from the library's defaults; Helm merges the two.
    values.pop("proxy", None)
    jsonschema.Draft7Validator.check_schema(schema(chart))
    jsonschema.validate(values, schema(chart), jsonschema.Draft7Validator)

    def leaves(node: Any, path: str) -> Iterator[str]:
        if path in documented or not isinstance(node, dict):
            yield path
            return
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}".strip("."))

    assert set(leaves(values, "")) == documented


@pytest.mark.parametrize("chart", CHARTS)
def test_every_key_of_a_schema_is_in_the_values_file(chart: str) -> None:
    known, values = schema(chart)["properties"], load(HELM / chart / "values.yaml")
    assert set(values) == set(known) - {"global"}
    for key, section in known.items():
        if key not in {"global", "proxy", "config", "quotaFile"} and "properties" in section:
            assert set(values[key]) == set(section["properties"]), key


def test_config_takes_what_the_proxy_takes_and_nothing_else() -> None:
    taken = schema("sluice-lib")["properties"]["config"]["properties"]
    assert set(taken) == set(Config.model_fields)


def test_the_templates_know_every_option_that_is_reloaded() -> None:
    text = (HELM / "sluice-lib/templates/_live.tpl").read_text(encoding="utf-8")
    assert set(re.findall(r"^[a-z_].*$", text, re.M)[0].split()) == LIVE_OPTIONS


def test_charts_image_and_package_have_one_version() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.*)"', project, re.M)
    assert found is not None
    chart = load(HELM / "sluice/Chart.yaml")
    assert load(HELM / "sluice-lib/values.yaml")["image"]["tag"] == found[1]
    assert chart["appVersion"] == found[1]
    library = load(HELM / "sluice-lib/Chart.yaml")["version"]
    for path in (HELM / "sluice", *(HELM / "examples").glob("*-sidecar")):
        assert load(path / "Chart.yaml")["dependencies"][0]["version"] == library, path.name


@pytest.mark.parametrize(
    ("inside", "outside"),
    [("alerts.yaml", "prometheus/alerts.yaml"), ("sluice.json", "grafana/sluice.json")],
)
def test_the_chart_carries_the_very_files(inside: str, outside: str) -> None:
    path = HELM / "sluice/files" / inside
    assert path.resolve() == ROOT / "deploy" / outside
