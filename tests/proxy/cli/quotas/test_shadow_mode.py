"""`sluice configs` on a limit that is only tried: what is set stays so in a file, and that is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.proxy.cli.main import main

QUOTAS = """\
quotas:
  - user: alice
    producer_byte_rate: 1000
    consumer_byte_rate: 2000
    shadow: [producer_byte_rate]
  - {user: bob, producer_byte_rate: 1000, shadow: true}
"""


@pytest.fixture
def set_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """`sluice configs -q quotas.yaml --alter …` → the lines that it prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)

    def call(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["sluice", "configs", "-q", "quotas.yaml", "--alter", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out.splitlines()

    return call


def told(keys: str) -> str:
    return (
        f"In shadow mode, so it delays nobody: {keys}. To put it in force, remove `shadow` from its entry in "
        "quotas.yaml, or the key from the list there."
    )


def test_a_limit_that_is_set_in_shadow_mode_is_said_to_stay_so(set_limit: Callable[..., list[str]]) -> None:
    set_rate = ("--user", "alice", "--add-config", "producer_byte_rate=7")
    for done in ("Completed updating", "Nothing to change in"):
        lines = set_limit(*set_rate)
        assert (lines[0], lines[-1]) == (f"{done} config for user alice.", told("producer_byte_rate"))


def test_a_limit_that_joins_an_entry_in_shadow_mode_is_named_too(set_limit: Callable[..., list[str]]) -> None:
    lines = set_limit("--user", "bob", "--add-config", "producer_byte_rate=7,consumer_byte_rate=8")
    assert lines[-1] == told("producer_byte_rate, consumer_byte_rate")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--user", "alice", "--add-config", "consumer_byte_rate=7"),
        ("--user", "bob", "--delete-config", "producer_byte_rate"),
        ("--user", "carol", "--add-config", "producer_byte_rate=7"),
    ],
)
def test_of_a_limit_that_is_in_force_or_gone_nothing_is_said_of_shadow_mode(
    arguments: tuple[str, ...], set_limit: Callable[..., list[str]]
) -> None:
    assert "shadow" not in " ".join(set_limit(*arguments))
