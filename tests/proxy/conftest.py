"""What lies on the way of the bytes is tested twice: over the Python code alone, and over the pump.

The variable TESTS_OVER says `pure` or `pump` where one is enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from testkit.proxy.data_paths import over

PATHS = [PURE.name, PUMP]
ON_THE_WAY = ("session", "connection", "listener")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Not by the fixture's own parameters: a state machine, which is no function, would be refused."""
    folder = Path(__file__).parent
    path = metafunc.definition.path
    if path.is_relative_to(folder) and path.relative_to(folder).parts[0] in ON_THE_WAY:
        paths = [os.environ["TESTS_OVER"]] if "TESTS_OVER" in os.environ else PATHS
        metafunc.parametrize("data_path", paths, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def data_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """What all sessions and connections are made of."""
    with over(getattr(request, "param", PURE.name)):
        yield
