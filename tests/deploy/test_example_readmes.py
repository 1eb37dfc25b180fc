"""The examples' READMEs are short, of one form, and name what exists: files, commands, metrics, users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sluice.proxy.config.file import config_of
from sluice.proxy.metrics.table import METRICS
from sluice.quotas.files.load import load_quotas
from sluice.quotas.files.yaml_lines import parse_yaml
from testkit.examples.broker import USERS, properties_of
from testkit.examples.proxy import EXAMPLES
from testkit.examples.readme import commands_of
from testkit.repository.tracked_files import tracked_files
from tools.check_docs import check_shell

ROOT: Final = EXAMPLES.parents[1]
FOLDERS: Final = sorted(path.name for path in EXAMPLES.iterdir() if (path / "README.md").is_file())
MAX_LINES: Final = 40
HEADINGS: Final = ["Run it", "What you should see", "Take it down"]
SELF: Final = ("README.md", "compose.yaml")
"""what is found without being named"""
MADE: Final = {"certificates", "broker-data", "access-log", "nights"}
"""what lies beside the examples once they were run"""


def readme(folder: str) -> str:
    return (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")


def configurations() -> list[Path]:
    return [ROOT / path for path in tracked_files(ROOT, "deploy/examples") if path.endswith("sluice.yaml")]


def test_every_folder_has_one_and_the_index_leads_to_it() -> None:
    folders = {path.split("/")[2] for path in tracked_files(ROOT, "deploy/examples") if path.count("/") > 2}
    assert folders == set(FOLDERS)
    assert set(re.findall(r"^\| \[([\w-]+)\]\(\1/README\.md\)", readme("."), re.M)) == folders


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_readme_is_short_and_says_what_to_run_to_see_and_to_take_down(folder: str) -> None:
    text = readme(folder)
    assert len(text.splitlines()) <= MAX_LINES
    assert re.findall(r"^## (.*)", text, re.M) == HEADINGS
    assert text.startswith("# ")
    assert commands_of(EXAMPLES / folder / "README.md")


@pytest.mark.parametrize("folder", [".", *FOLDERS])
def test_every_link_of_a_readme_leads_to_a_file(folder: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", readme(folder)):
        assert (EXAMPLES / folder / target).is_file(), target


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_command_and_metric_that_a_readme_mentions_exists(folder: str) -> None:
    for code in re.findall(r"`([^`\n]+)`", readme(folder)):
        if re.match(r"(?:sluice|curl) ", code):
            check_shell(code.partition(" | grep")[0])
        for name in re.findall(r"\bsluice_[a-z_]+", code):
            assert any(metric.startswith(name) for metric in METRICS), name


@pytest.mark.parametrize("path", configurations(), ids=lambda path: path.parent.name)
def test_every_configuration_loads_and_so_do_its_quotas(path: Path) -> None:
    config = config_of(parse_yaml(path.read_text(encoding="utf-8"), str(path)), str(path), {})
    assert load_quotas(path.parent / str(config.quotas.file)).entries


def test_no_file_lies_beside_the_examples_that_nothing_names() -> None:
    for path in tracked_files(ROOT, "deploy/examples"):
        others = [
            (ROOT / other).read_text(encoding="utf-8")
            for other in tracked_files(ROOT, "deploy/examples")
            if other != path
        ]
        assert any(Path(path).name in text for text in others) or path.endswith(SELF), path


def test_the_users_whom_the_index_makes_are_those_that_the_examples_log_in_as() -> None:
    (made,) = [
        words for words in commands_of(EXAMPLES / "README.md") if words[:2] == ["kafka-storage.sh", "format"]
    ]
    scram = [re.findall(r"(\w+)=([\w-]+)[,\]]", word) for word in made if word.startswith("SCRAM-SHA-512=")]
    assert {dict(pairs)["name"]: dict(pairs)["password"] for pairs in scram} == dict(USERS)
    for path in tracked_files(ROOT, "deploy/examples"):
        if path.endswith(".password"):
            assert (ROOT / path).read_text(encoding="utf-8").strip() in USERS.values()
        if path.endswith(".properties"):
            entry = properties_of((ROOT / path).read_text(encoding="utf-8")).get("sasl.jaas.config", "")
            login: Any = re.search(r'username="(\w+)" password="([\w-]+)"', entry)
            assert login is None or USERS[login[1]] == login[2]


def test_what_the_examples_leave_behind_is_ignored_by_git() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert {Path(line).name for line in ignored if line.startswith("deploy/examples/")} >= MADE


def test_every_broker_mode_example_stands_where_the_broker_leads_its_clients() -> None:
    """The advertised port is Sluice's, the listener's own is its upstream; and the protocols are the same."""
    properties = properties_of((EXAMPLES / "broker.properties").read_text(encoding="utf-8"))
    own, told = (
        dict(re.findall(r"(\w+)://localhost:(\d+)", properties[key]))
        for key in ("listeners", "advertised.listeners")
    )
    protocols = dict(re.findall(r"(\w+):(\w+)", properties["listener.security.protocol.map"]))
    for folder in ("tenants", "producer-ids", "recalibration", "mtls"):
        (listener,) = yaml.safe_load((EXAMPLES / folder / "sluice.yaml").read_text(encoding="utf-8"))[
            "listeners"
        ]
        (name,) = (each for each, port in own.items() if port == str(listener["upstream_port"]))
        assert told[name] == str(listener["bind_port"])
        upstream = listener.get("upstream_security_protocol", listener.get("security_protocol", "PLAINTEXT"))
        assert protocols[name] == upstream
