"""The examples without a login as they stand: an application's sidecar, and new producer ids."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.examples.bite import MIB, least_s, produced_exactly, throttled_s
from testkit.examples.stage import Stage

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
IDS_AT_ONCE, IDS = 10, 12


def test_a_sidecar_holds_its_application_to_its_quota_and_nobody_else(stage: Stage, unique: Unique) -> None:
    records = numbered(3_000, size_bytes=1_000)
    with stage.proxy("sidecar") as proxy:
        took_s = produced_exactly(stage.broker, proxy, unique("orders"), records, client_id="orders")
        assert took_s > least_s(3_000_000, MIB)
        delayed_s = throttled_s(proxy, client_id="orders")
        assert delayed_s > 0
        produced_exactly(stage.broker, proxy, unique("others"), records, client_id="reports")
        assert throttled_s(proxy) == delayed_s


def test_a_sidecar_puts_its_own_address_in_the_place_of_the_brokers(stage: Stage) -> None:
    with stage.proxy("sidecar") as proxy:
        port = proxy.gateway_ports["application"]
        told = AdminClient({"bootstrap.servers": proxy.first_bootstrap}).list_topics(timeout=20.0).brokers
        assert {(one.id, str(one.host), one.port) for one in told.values()} == {(0, "localhost", port)}


def test_the_sidecars_readme_shows_what_it_says(stage: Stage) -> None:
    with stage.proxy("sidecar") as proxy:
        sent = stage.run_readme("sidecar", proxy)
        assert sent.records == 6_000
        assert sent.took_s > least_s(6_000_000, MIB)
        assert throttled_s(proxy, client_id="orders") > 0
        shown = proxy.top()
        assert "orders" in shown
        assert "client" in shown


@pytest.mark.long
def test_new_producer_ids_beyond_those_at_once_wait_for_their_turn_and_lose_nothing(
    stage: Stage, unique: Unique
) -> None:
    """Ten go at once; the other two one each three seconds."""
    topics = [create_topic(stage.broker, unique("ids")) for _ in range(IDS)]
    records = numbered(3)
    with stage.proxy("producer-ids") as proxy:
        with ThreadPoolExecutor(IDS) as pool:
            running = [
                pool.submit(CONFLUENT.produce, proxy.first_bootstrap, topic, records, Options())
                for topic in topics
            ]
            proxy.wait_until(
                lambda: proxy.metric("sluice_producer_ids_new_total") >= IDS_AT_ONCE, "ten ids admitted"
            )
            proxy.wait_until(  # the last of twelve clients may have begun after ten ids were in
                lambda: proxy.metric("sluice_producer_ids_tokens") < 0, "others waiting for their turn"
            )
            assert sum(one.done() for one in running) < IDS
            for one in running:
                one.result()
        for topic in topics:
            assert_exactly(records, stored(stage.broker, topic))
        assert proxy.metric("sluice_producer_ids_new_total") == IDS
        assert proxy.metric("sluice_producer_ids_throttle_time_seconds_total") > 3.0
        assert proxy.stop() == 0
        assert (proxy.folder / "producer-ids.snapshot").stat().st_size > 0
        proxy.start()
        assert proxy.metric("sluice_producer_ids_snapshots_total", outcome="restored") == 1
