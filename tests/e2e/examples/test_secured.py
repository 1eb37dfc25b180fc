"""The examples with logins and certificates as they stand: a gateway with SASL_SSL, mutual TLS, tenants."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from testkit.clients.client_security import Login, Security, confluent_security
from testkit.clients.kafka_records import numbered
from testkit.examples.bite import MIB, least_s, produced_exactly, throttled_s
from testkit.examples.proxy import ExampleProxy
from testkit.examples.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.long]
Unique = Callable[[str], str]
RECORDS = numbered(3_000, size_bytes=1_000)
TOTAL_BYTES = 3_000_000


def reach_error(proxy: ExampleProxy, security: Security) -> int:
    """The error that a client is left with who cannot get in; raises AssertionError if it could."""
    seen: list[int] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": proxy.first_bootstrap,
        "error_cb": lambda error: seen.append(error.code()),
        "log_level": 0,
        **confluent_security(security),
    }
    client = AdminClient(settings)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3.0)
    client.poll(0.1)
    return seen[0] if seen else 0


@pytest.mark.parametrize(
    ("example", "labelled"), [("gateway-sasl-ssl", "alice"), ("mtls", "alice"), ("tenants", "tenant:team-a")]
)
def test_the_readme_shows_what_it_says(stage: Stage, example: str, labelled: str) -> None:
    """Kafka's own tool, with the properties file beside the example; and who is throttled."""
    with stage.proxy(example) as proxy:
        sent = stage.run_readme(example, proxy)
        assert sent.records == 6_000
        assert sent.took_s > least_s(6_000_000, MIB)
        assert throttled_s(proxy, user=labelled) > 0
        assert throttled_s(proxy) == throttled_s(proxy, user=labelled)
        shown = proxy.top()
        assert labelled.replace(":", " ") in shown
        assert "CN=" not in shown


def test_a_gateway_counts_by_the_login_that_the_broker_accepted(stage: Stage, unique: Unique) -> None:
    example = "gateway-sasl-ssl"
    with stage.proxy(example) as proxy:
        alice = stage.security(example, "alice")
        took_s = produced_exactly(stage.broker, proxy, unique("alice"), RECORDS, security=alice)
        assert took_s > least_s(TOTAL_BYTES, MIB)
        delayed_s = throttled_s(proxy, user="alice")
        assert delayed_s > 0
        bob = stage.security(example, "bob")
        produced_exactly(stage.broker, proxy, unique("bob"), RECORDS, security=bob)
        assert throttled_s(proxy) == delayed_s, "bob has five times as much"
        wrong = Security(Login("SCRAM-SHA-512", "alice", "not-hers"), alice.tls)
        assert reach_error(proxy, wrong) == KafkaError._AUTHENTICATION


def test_a_certificate_of_the_right_department_is_a_user_and_no_other_gets_in(
    stage: Stage, unique: Unique
) -> None:
    with stage.proxy("mtls") as proxy:
        alice = stage.security("mtls", "alice")
        took_s = produced_exactly(stage.broker, proxy, unique("alice"), RECORDS, security=alice)
        assert took_s > least_s(TOTAL_BYTES, MIB)
        assert throttled_s(proxy, user="alice") > 0
        reach_error(proxy, stage.security("mtls", "mallory"))
        proxy.wait_until(lambda: proxy.disconnects("upstream_login_failed") > 0, "mallory refused")
        assert alice.tls is not None
        reach_error(proxy, Security(tls=type(alice.tls)(alice.tls.ca_file)))
        proxy.wait_until(lambda: proxy.disconnects("tls_failed") > 0, "who has no certificate refused")


def test_members_of_a_tenant_share_one_limit_and_who_is_of_none_has_his_own(
    stage: Stage, unique: Unique
) -> None:
    def send(proxy: ExampleProxy, user: str) -> float:
        security = stage.security("tenants", user)
        return produced_exactly(stage.broker, proxy, unique(user), RECORDS, security=security)

    with stage.proxy("tenants") as proxy, ThreadPoolExecutor(3) as pool:
        alice, bob, carol = (pool.submit(send, proxy, user) for user in ("alice", "bob", "carol"))
        assert max(alice.result(), bob.result()) > least_s(2 * TOTAL_BYTES, MIB)
        carol.result()
        assert throttled_s(proxy, user="tenant:team-a") > 0
        assert throttled_s(proxy) == throttled_s(proxy, user="tenant:team-a")


def test_client_ids_of_a_tenant_with_one_prefix_share_a_smaller_limit(stage: Stage, unique: Unique) -> None:
    records = RECORDS[:600]
    with stage.proxy("tenants") as proxy:

        def send(user: str) -> float:
            security = stage.security("tenants", user)
            return produced_exactly(
                stage.broker, proxy, unique(user), records, client_id=f"etl-{user}", security=security
            )

        with ThreadPoolExecutor(2) as pool:
            took_s = max(pool.map(send, ("alice", "bob")))
        assert took_s > least_s(2 * 600_000, MIB / 4)
        assert throttled_s(proxy, user="tenant:team-a", client_id="etl-*") > 0


def test_an_example_that_names_a_port_that_no_broker_has_is_not_taken(stage: Stage, tmp_path: Path) -> None:
    text = "{listeners: [{name: a, bind_port: 9092, upstream_host: localhost, upstream_port: 29092}]}"
    (tmp_path / "sluice.yaml").write_text(text)
    with pytest.raises(KeyError, match="29092"):
        ExampleProxy(tmp_path, stage.broker.ports)
