"""A real broker, `sluice run` in front of it, and names that no other test has."""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections.abc import Callable, Iterator

import pytest

from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def sluice(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    """One proxy for a module, at both doors of the broker: SLUICE and SLUICE_SASL.

    Its quota file belongs to the test that runs: `sluice.set_quotas(…)` exchanges it as a whole.
    """
    with SluiceProcess(doors_of(kafka)) as process:
        yield process


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make a name of a topic, group, client id or transactional id that is this test's alone."""
    test = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60]

    def name(what: str) -> str:
        return f"{what}-{test}-{os.getpid()}-{next(_numbers)}"

    return name


@pytest.fixture
def collect_sockets() -> Iterator[None]:
    """What a test's clients left open ends with the test (kafka_clients.LEAVES_SOCKETS)."""
    yield
    gc.collect()
