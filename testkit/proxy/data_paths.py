"""Sessions over one data path or the other, for tests that make them by their plain class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.proxy.connection.data_path import PURE, DataPath
from sluice.proxy.pump.choice import PUMP, compiled
from sluice.proxy.session.session import Session


def path_of(name: str) -> DataPath:
    """Skips the test where there is no pump."""
    if name == PURE.name:
        return PURE
    assert name == PUMP
    found = compiled()
    if found is None:
        pytest.skip("the pump is not built here")
    return found


@contextmanager
def over(name: str) -> Iterator[DataPath]:
    """Every Session made meanwhile has the sides of this data path."""
    path = path_of(name)
    before = Session.request_side, Session.answer_side
    Session.request_side, Session.answer_side = path.session.request_side, path.session.answer_side
    try:
        yield path
    finally:
        Session.request_side, Session.answer_side = before
