"""Why something failed, in words; and of two files that are given none is passed over."""

from __future__ import annotations

import urllib.error

import pytest

from sluice.proxy.cli.options import in_words
from testkit.proxy.sluice_command import Sluice


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")), "connection refused"),
        (urllib.error.URLError("unknown url type: foo"), "unknown url type: foo"),
        (PermissionError(13, "Permission denied", "/etc/.quotas.yaml.new"), "permission denied"),
        (TimeoutError(), "no answer in time"),
        (ValueError("not so"), "not so"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_a_reason_has_no_trace_of_python(error: Exception, told: str) -> None:
    assert in_words(error) == told


@pytest.mark.parametrize("command", ["check", "run", "doctor", "top", "connections", "healthcheck"])
@pytest.mark.parametrize("order", [["--config", "a.yaml", "b.yaml"], ["b.yaml", "-c", "a.yaml"]])
def test_two_files_on_one_command_line_are_refused_and_both_are_named(
    sluice: Sluice, command: str, order: list[str]
) -> None:
    code, out, err = sluice(command, *order)
    assert (code, out) == (2, "")
    assert "two files are given, b.yaml and --config a.yaml" in err


def test_a_file_on_the_command_line_goes_before_that_of_the_environment(sluice: Sluice) -> None:
    for arguments in (["sluice.yaml"], ["--config", "sluice.yaml"]):
        code, out, err = sluice("check", *arguments, environ={"SLUICE_CONFIG": "none.yaml"})
        assert (code, err, out.splitlines()[0]) == (0, "", "OK: sluice.yaml")
    assert sluice("check", environ={"SLUICE_CONFIG": "none.yaml"})[0] == 2
