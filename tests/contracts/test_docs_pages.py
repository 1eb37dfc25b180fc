"""What pages show can be used as it stands: configurations load, commands exist, figures hold."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.proxy.admin.status.page import _PRINCIPALS as PAGE_COLUMNS
from sluice.proxy.admin.top.view import _COLUMNS as TOP_COLUMNS
from sluice.proxy.config.file import config_of
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KINDS
from testkit.repository.docs_tables import rows_below

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/quick-start.md")
SLUICE = Path(sys.executable).with_name("sluice")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("page", PAGES)
def test_every_configuration_that_a_page_shows_loads(page: str) -> None:
    shown = [block for block in blocks(page, "yaml") if "listeners:" in block]
    assert shown
    for block in shown:
        config_of(parse_yaml(block, page), page, {})


@pytest.mark.parametrize("page", PAGES)
def test_every_quota_file_that_a_page_shows_loads(page: str) -> None:
    shown = [block for block in blocks(page, "yaml") if "listeners:" not in block]
    assert shown
    for block in shown:
        assert parse_quotas(block, page).entries


@pytest.mark.parametrize("page", ["docs/quick-start.md", "docs/faq.md", "docs/sizing.md"])
def test_every_sluice_command_that_a_page_shows_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`|/)sluice ((?:quotas )?[a-z-]+)(?= |`)", text, re.M))
    for command in named:
        asked = subprocess.run([SLUICE, *command.split(), "--help"], check=False, capture_output=True)
        assert asked.returncode == 0, command


def figure(row: str) -> float:
    """The first number of the planning table's row that begins so."""
    page = (ROOT / "docs/sizing.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(row)}[^|]*\| \+? ?([\d.]+)", page, re.M)
    assert found, row
    return float(found[1])


def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "bench/results/cost.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    ("row", "cases"),
    [
        ("a request and its answer", ["request_50"]),
        ("… with five in flight", ["request_50x5"]),
        ("at 1,000 requests a second", ["low_rate"]),
        ("a GiB in either direction", ["gib_produce_1mib", "gib_fetch_1mib", "gib_fetch_10mib"]),
    ],
)
def test_what_a_request_or_a_byte_is_planned_with_is_not_less_than_was_measured(
    row: str, cases: list[str]
) -> None:
    for placement in measured()["placements"].values():
        for case in cases:
            cost = placement["cases"][case]["cost"]
            assert figure(row) >= max(statistics.median(cost[way]) for way in ("sluice", "pure"))


def test_the_memory_that_is_planned_with_is_not_less_than_was_measured() -> None:
    summary = measured()["summary"]
    assert figure("… with one") >= summary["rss_end_mib"]
    assert figure("… with an access log") >= summary["idle_kib_per_connection"]


def test_the_examples_of_the_sizing_page_add_up() -> None:
    page = (ROOT / "docs/sizing.md").read_text(encoding="utf-8")
    assert round(6_000 * 65e-6 + (150 + 300) / 1024 * 0.9, 2) == 0.79
    assert "0.79 cores" in page
    mib = [90, 5_000 * 26 / 1024, 200 * 2 / 1024, 10_000 * 1 / 1024, 220_000 * 0.1 / 1024]
    assert 248 <= sum(mib) <= 249
    assert "248 MiB" in page


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 900


def pages_of(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    inner = entries.values() if isinstance(entries, dict) else entries
    return [page for entry in inner for page in pages_of(entry)]


def test_every_page_stands_once_in_one_of_the_four_kinds() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    kinds = {kind: pages for entry in nav if isinstance(entry, dict) for kind, pages in entry.items()}
    assert {"Tutorial", "How to", "Reference", "Explanation"} <= kinds.keys()
    named = pages_of(nav)
    assert len(named) == len(set(named))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= set(named)


def test_the_words_of_top_and_status_page_are_those_of_the_page_of_words() -> None:
    table = [row for row in (ROOT / "docs/words.md").read_text(encoding="utf-8").splitlines() if "|" in row]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in table if row.count("|") == 8]
    in_top = {word for row in cells for word in re.findall(r"`([a-z ]+)`", row[1])}
    on_page = {word for row in cells for word in re.split(r"[;(]", row[2].replace("…", ""))}
    assert {column.title for column in TOP_COLUMNS} <= in_top | {"connections"}
    assert {title for title, _, _ in PAGE_COLUMNS} - {"Last minutes"} <= {word.strip() for word in on_page}


def test_the_page_of_words_has_both_names_of_each_quota() -> None:
    found = {(kind, key) for kind, key in rows_below("Three rules", "words.md")}
    assert found == {(f"`{spec.kind.value}`", f"`{spec.config_key}`") for spec in KINDS.values()}


def test_every_number_of_the_wire_semantics_that_is_cited_stands_in_the_page_of_the_wire() -> None:
    """The numbers are of no document in the tree: that table is what they refer to."""
    told = (ROOT / "docs/wire.md").read_text(encoding="utf-8").partition('## What "wire-semantics')[2]
    known = set(re.findall(r"\d(?:\.\d+)?", " ".join(re.findall(r"^\| ([\d., ]+) \|", told, re.M))))
    folders = ("protocol", "quotas", "usage", "proxy", "recalibration", "testkit", "tests", "bench", "docs")
    cited = {}
    for folder in folders:
        for file in (*(ROOT / folder).rglob("*.py"), *(ROOT / folder).glob("*.md")):
            text = " ".join(file.read_text(encoding="utf-8").split())
            for numbers in re.findall(r"wire[- ]semantics,? (?:section )?(\d[\d., ]*)", text):
                cited.update(dict.fromkeys(re.findall(r"\d(?:\.\d+)?", numbers), str(file)))
    assert len(cited) > 15
    assert {number: file for number, file in cited.items() if number not in known} == {}
