"""Sessions and connections over one data path or the other, for tests that name neither."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sluice.proxy.connection.data_path import PURE, DataPath
from sluice.proxy.pump.choice import PUMP, compiled
from sluice.proxy.session.session import Session

_current = [PURE]


def path_of(name: str) -> DataPath:
    """Skips the test where there is no pump."""
    if name == PURE.name:
        return PURE
    assert name == PUMP
    found = compiled()
    if found is None:
        pytest.skip("the pump is not built here")
    return found


def current() -> DataPath:
    """What LocalProxy and others assemble."""
    return _current[-1]


@contextmanager
def over(name: str) -> Iterator[DataPath]:
    """Every Session made meanwhile has the sides of this data path, and every listener makes its own."""
    path = path_of(name)
    before = Session.request_side, Session.answer_side
    Session.request_side, Session.answer_side = path.session.request_side, path.session.answer_side
    _current.append(path)
    try:
        yield path
    finally:
        Session.request_side, Session.answer_side = before
        _current.pop()
