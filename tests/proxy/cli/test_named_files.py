"""A file that cannot be used as a whole is told by what names it: key, and line or variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.proxy.sluice_command import CONFIG, Sluice


@pytest.mark.parametrize("command", [["check", "sluice.yaml"], ["run", "--config", "sluice.yaml"]])
def test_a_file_that_is_not_there_is_told_by_the_variable_that_names_it(
    sluice: Sluice, command: list[str]
) -> None:
    code, _, err = sluice(*command, environ={"SLUICE_QUOTAS__FILE": "./none.yaml"})
    told = (
        "SLUICE_QUOTAS__FILE: quotas.file: none.yaml: cannot read the quota file: no such file or directory"
    )
    assert (code, err) == (2, f"{told}\n")


FOLDERS = [".", "/", "..", "./", "/tmp"]


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("path", FOLDERS)
def test_a_folder_where_a_file_is_to_be_written_is_refused_by_its_option(
    folder: Path, sluice: Sluice, command: str, path: str
) -> None:
    named = {
        "admin.socket": f"admin: {{socket: {path}}}\n",
        "producer_ids.snapshot_file": f"producer_ids: {{snapshot_file: {path}}}\n",
    }
    for key, text in named.items():
        (folder / "sluice.yaml").write_text(CONFIG + text)
        code, _, err = sluice(command, "sluice.yaml")
        (told,) = (line for line in err.splitlines() if not line.startswith("{"))  # no line of the log
        assert code == 2
        assert f"{key}: " in told
        assert "is a folder; name a file in it" in told


@pytest.mark.parametrize("path", FOLDERS)
def test_a_folder_where_the_copy_of_the_quota_topic_is_to_be_is_refused_by_its_option(
    folder: Path, sluice: Sluice, path: str
) -> None:
    topic = f"topic: {{bootstrap: ['127.0.0.1:9'], copy_file: {path}}}"
    quotas = f"{{source: topic, admins: [ANONYMOUS], {topic}}}"
    (folder / "sluice.yaml").write_text(CONFIG.replace("{file: quotas.yaml}", quotas))
    code, _, err = sluice("check", "sluice.yaml")
    assert (code, err.count("\n")) == (2, 1), err
    assert "quotas.topic.copy_file: " in err
    assert "is a folder; name a file in it" in err


def test_a_file_that_is_not_there_is_told_so_beside_other_mistakes(folder: Path, sluice: Sluice) -> None:
    (folder / "sluice.yaml").write_text("drian: 1\n" + CONFIG.replace("quotas.yaml", "none.yaml"))
    code, _, err = sluice("check", "sluice.yaml")
    assert code == 2
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        ["sluice.yaml:1", "drian"],
        ["sluice.yaml:4", "quotas.file"],
    ]
