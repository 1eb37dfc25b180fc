"""What lies on the way of the bytes is tested twice: over the Python code alone, and over the pump.

The variable TESTS_OVER says `pure` or `pump` where one is enough. What takes seconds each time is in
`make test` over the pump alone, where there is one, and over Python in `make test-long`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.built import is_built
from sluice.proxy.pump.choice import PUMP
from testkit.proxy.data_paths import over

ON_THE_WAY = ("session", "connection", "listener")
LONG_TWICE = (
    "connection/",
    "listener/",
    "session/gateway/test_address_rewrite.py",
    "session/producer_ids/test_gate_model.py",
    "session/replication/test_mirror.py",
    "session/sasl_observer/test_sasl_event_order.py",
    "session/test_rate.py",
    "session/test_splits.py",
    "session/test_stateful.py",
)
"""real sockets and their waits, exhaustive, or of many drawn examples"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Not by the fixture's own parameters: a state machine, which is no function, would be refused."""
    folder = Path(__file__).parent
    path = metafunc.definition.path
    if path.is_relative_to(folder) and path.relative_to(folder).parts[0] in ON_THE_WAY:
        paths: list[str | ParameterSet] = [os.environ.get("TESTS_OVER", PURE.name)]
        if "TESTS_OVER" not in os.environ:
            is_long = str(path.relative_to(folder)).startswith(LONG_TWICE) and is_built()
            paths = [pytest.param(PURE.name, marks=pytest.mark.long if is_long else ()), PUMP]
        metafunc.parametrize("data_path", paths, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def data_path(request: pytest.FixtureRequest) -> Iterator[None]:
    """What all sessions and connections are made of."""
    with over(getattr(request, "param", PURE.name)):
        yield
