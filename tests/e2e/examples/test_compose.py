"""The compose example's broker and proxy without Docker, by what their containers would get."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from testkit.clients.kafka_records import numbered
from testkit.examples.bite import MIB, least_s, produced_exactly, throttled_s
from testkit.examples.broker import ExampleBroker
from testkit.examples.compose import FILE, broker_properties
from testkit.examples.proxy import ExampleProxy
from testkit.examples.readme import perf_command, run_perf
from testkit.kafka.dist import KafkaDist

pytestmark = [pytest.mark.kafka, pytest.mark.long]
Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def broker(kafka_dist: KafkaDist) -> Iterator[ExampleBroker]:
    with ExampleBroker(kafka_dist, broker_properties()) as broker:
        yield broker


def test_the_containers_variables_make_a_broker_whose_clients_are_held_to_their_quota(
    broker: ExampleBroker, unique: Unique
) -> None:
    records = numbered(
        6_000, size_bytes=1_000
    )  # of half as many a fresh broker on a busy machine takes 1 MiB/s
    with ExampleProxy(FILE.parent / "sluice", broker.ports) as proxy:
        took_s = produced_exactly(broker, proxy, unique("demo"), records)
        assert took_s > least_s(6_000_000, MIB)
        assert throttled_s(proxy) > 0


def test_the_readme_shows_what_it_says(broker: ExampleBroker) -> None:
    with ExampleProxy(FILE.parent / "sluice", broker.ports) as proxy:
        sent = run_perf(broker, perf_command("compose"), proxy.first_bootstrap, proxy.folder)
        assert sent.records == 6_000
        assert sent.took_s > least_s(6_000_000, MIB)
        assert throttled_s(proxy) > 0
        assert "perf-producer-client" in proxy.top()
