"""Followers that come as they do in guarded clusters, and those to whom a broker gives no session."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit.clients.kafka_clients import LEAVES_SOCKETS
from testkit.kafka.config import plain_login
from testkit.kafka.node import USERS
from testkit.kafka.secured_kafka import Certificates
from testkit.proxy.tls_doors import MountedSecret, secret_of, tls_of
from testkit.replication.clients import Growth, HotClient, highest_bytes_per_s
from testkit.replication.rig import ReplicationRig, Way, open_rig

RATE = 5_000_000
MOVED_BYTES = 40_000_000
BROKER = "alice"

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    *LEAVES_SOCKETS,
]


def login_of_brokers(listener: str) -> dict[str, str]:
    """They log in to each other as BROKER."""
    return {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{listener.lower()}.plain.sasl.jaas.config": plain_login(USERS, BROKER),
    }


def with_login(_folder: Path) -> Way:
    return Way("REPLICAS_SASL", login_of_brokers("REPLICAS_SASL"), users=[BROKER])


def with_login_and_tls(folder: Path) -> Way:
    """TLS ends at Sluice and begins anew; the login goes through."""
    certificates = Certificates(folder)
    secret = MountedSecret(folder / "tls", secret_of(certificates.authority.server()))
    listener = "REPLICAS_SASL_SSL"
    options = {
        "security_protocol": "SASL_SSL",
        "tls": tls_of(secret),
        "upstream_security_protocol": "SASL_SSL",
        "upstream_tls": {"ca_file": str(certificates.ca_file)},
    }
    return Way(listener, login_of_brokers(listener), certificates.broker, options, [BROKER])


def without_sessions(_folder: Path) -> Way:
    """A broker whose sessions are all taken, or that has none."""
    return Way(broker={"max.incremental.fetch.session.cache.slots": "0"})


def move(rig: ReplicationRig, topic: str) -> list[int]:
    """MOVED_BYTES from broker 1 to 2 at RATE, by Kafka's tool: what came in each second."""
    rig.create(topic, [[1]] * 4)
    rig.fill(topic, MOVED_BYTES, 4)
    before = rig.digest(topic, 1)
    to = [[2]] * 4
    rig.set_throttle(topic, leader={1: RATE}, follower={2: RATE})
    with Growth(rig, topic, [2]) as growth:
        rig.begin_move(topic, to, RATE)
        rig.cluster.await_until(lambda: rig.is_moved(topic, to), f"{topic} moved", 120.0)
    assert rig.digest(topic, 2) == before
    assert "is completed" in rig.verify_move(topic, to)
    seconds = growth.per_second()
    print(seconds)
    return seconds


@pytest.mark.parametrize("way", [with_login, with_login_and_tls, without_sessions])
def test_a_move_is_held_to_its_rate_whichever_way_followers_come(
    way: Callable[[Path], Way], tmp_path: Path
) -> None:
    with open_rig(way=way(tmp_path)) as rig:
        rig.start_sluices(paced=True)
        rig.create("hot", [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2)
        with HotClient(rig, "hot", 6, 100_000) as hot:
            seconds = move(rig, "moved")
        throttled = rig.sluices[1].samples("sluice_replication_throttled_bytes_total")
        faults = [line for sluice in rig.sluices.values() for line in sluice.faults_logged()]
        shrinks = rig.isr_shrinks()
    gc.collect()
    print(f"p50 {hot.p50_ms():.1f} ms, p99 {hot.p99_ms():.1f} ms of {len(hot.latencies_ms)}")
    assert len(seconds) >= MOVED_BYTES // RATE - 3
    assert highest_bytes_per_s(seconds) <= 1.1 * RATE
    assert {labels["side"]: value for labels, value in throttled}["leader"] >= MOVED_BYTES
    assert not hot.failed
    assert hot.latencies_ms
    assert (shrinks, faults) == (0, [])
