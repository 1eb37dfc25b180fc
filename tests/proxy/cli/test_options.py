"""Why something failed, in words."""

from __future__ import annotations

import urllib.error

import pytest

from sluice.proxy.cli.options import in_words


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
