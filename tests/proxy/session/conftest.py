"""Every test of the session runs twice: over the Python code alone, and over the pump."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from testkit.proxy.data_paths import over


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Not by the fixture's own parameters: a state machine, which is no function, would be refused."""
    metafunc.parametrize("data_path", [PURE.name, PUMP], indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def data_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """What all sessions are made of."""
    with over(getattr(request, "param", PURE.name)):
        yield
