"""Which data path runs, and what is told of that."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump import choice
from sluice.proxy.pump.choice import PUMP, compiled, data_path
from sluice.quotas.files.config_error import ConfigError
from testkit.proxy.data_paths import path_of


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What was found is not remembered from test to test."""
    compiled.cache_clear()
    yield
    compiled.cache_clear()


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "is_built", lambda: False)


@pytest.fixture
def unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *arguments: Any, **further: Any) -> Any:
        if name == "sluice.proxy.pump.compiled":
            raise ImportError("Pace.gate_ms is no slot")
        return imported(name, *arguments, **further)

    monkeypatch.setattr(choice, "is_built", lambda: True)
    monkeypatch.setattr(builtins, "__import__", without)


def test_it_runs_where_it_is_built() -> None:
    pump = path_of(PUMP)
    assert data_path("auto") is data_path("on")
    assert data_path("auto")[1:] == pump[1:]
    assert data_path("auto").name == PUMP


def test_it_can_be_left_out() -> None:
    assert data_path("off") is PURE


def test_without_it_python_runs(not_built: None) -> None:
    assert data_path("auto") is PURE
    assert data_path("off") is PURE


def test_without_it_on_is_refused(not_built: None) -> None:
    with pytest.raises(ConfigError, match="pump: the compiled data path is not built here"):
        data_path("on")


def test_one_that_cannot_be_used_is_none(unusable: None) -> None:
    assert data_path("auto") is PURE
    with pytest.raises(ConfigError, match=r"cannot be used here \(Pace.gate_ms is no slot\)"):
        data_path("on")
