"""What every test may ask for: a real Kafka, and uvloop under each async test."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
import structlog
import uvloop
from hypothesis import HealthCheck, settings

from testkit.kafka.dist import KafkaDist, ensure_kafka
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.spark.one_process import OneSparkScheduling, uses_spark
from testkit.thorough import cases

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from xdist.remote import Producer


# Speed is shown in benchmarks, not in tests: a slow or busy machine is no failure.
settings.register_profile(
    "untimed", deadline=None, max_examples=cases(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")

# Warnings are errors; these come from other people's code, which we cannot mend.
FOREIGN_WARNINGS = (
    # kafka-python reads its message descriptions by functions that Python 3.11 and 3.12 call deprecated.
    "ignore:read_text is deprecated:DeprecationWarning:kafka.protocol.schemas.load_json",
    "ignore:open_text is deprecated:DeprecationWarning:importlib.resources._legacy",
)


def pytest_configure(config: pytest.Config) -> None:
    """Let pass the warnings that no change of ours would end."""
    for warning in FOREIGN_WARNINGS:
        config.addinivalue_line("filterwarnings", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the above, which hold from the collection on
        from testkit.clients.kafka_python_leaks import close_what_is_left
    close_what_is_left()


def pytest_collection_finish() -> None:
    """16,000 tests stay for good: a sixth of the suite's processor time went into walking through them."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    """Run async tests on the loop that Sluice runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """What a test configures of the log ends with it: its stream is closed by then."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def log_lines() -> Iterator[list[structlog.typing.EventDict]]:
    """What is logged from now on, and written nowhere."""
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.fixture(scope="session")
def kafka_dist() -> KafkaDist:
    """Kafka's jars and a Java, for tests that run Java but need no broker."""
    return ensure_kafka()


@pytest.fixture(scope="session")
def kafka(kafka_dist: KafkaDist) -> Iterator[KafkaNode]:
    """One real broker for the whole test run (one for each xdist worker), started when first asked for.

    Native listeners: `kafka.bootstrap`, `kafka.bootstrap_sasl`. For a Sluice in front of it, listen where
    `kafka.advertised(name)` says and dial `kafka.address(name)`, name SLUICE or SLUICE_SASL: one Sluice
    at a time. Tests share it, so each uses topics, groups and principals of its own.

    It is not taken for dead when a test or a busy machine has halted it: there is none to take its place.
    """
    sluice_port, sluice_sasl_port = free_ports(2)
    advertised = {"SLUICE": (LOOPBACK, sluice_port), "SLUICE_SASL": (LOOPBACK, sluice_sasl_port)}
    config = {"broker.session.timeout.ms": "120000"}
    with KafkaNode(kafka_dist, advertised=advertised, native=["SASL"], config=config) as node:
        yield node


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSparkScheduling | None:
    """With `--dist loadfile` a Spark is in one of the processes."""
    return OneSparkScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `kafka` on every test that asks for the broker, so that `-m 'not kafka'` needs no second list.

    Those that share a Spark come first: together they take a process the longest. Files of real clients,
    which wait more than they work, are spread among the others, so that they never wait all at once.
    """
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
    items.sort(key=place_of(items))


def place_of(items: list[pytest.Item]) -> Callable[[pytest.Item], tuple[bool, float]]:
    """Where a test comes: Spark's, then the files in their order, those of tests/e2e among the first three
    quarters of the others, for the last of them may take a minute."""
    places: dict[str, float] = {}
    for share, are_clients in ((1.0, False), (0.75, True)):
        files = {file_of(item): None for item in items if ("/e2e/" in file_of(item)) is are_clients}
        places.update({file: share * number / len(files) for number, file in enumerate(files)})
    return lambda item: (not uses_spark(item.nodeid), places[file_of(item)])


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
