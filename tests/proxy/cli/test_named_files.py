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


def test_a_file_that_is_not_there_is_told_so_beside_other_mistakes(folder: Path, sluice: Sluice) -> None:
    (folder / "sluice.yaml").write_text("drian: 1\n" + CONFIG.replace("quotas.yaml", "none.yaml"))
    code, _, err = sluice("check", "sluice.yaml")
    assert code == 2
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        ["sluice.yaml:1", "drian"],
        ["sluice.yaml:4", "quotas.file"],
    ]
