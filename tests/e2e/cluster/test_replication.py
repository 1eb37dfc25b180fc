"""Three brokers whose followers fetch through Sluice: a throttled move is even, and harms nobody."""

from __future__ import annotations

import gc
import subprocess
import time
from collections.abc import Iterator

import pytest

from sluice.quotas.replication.limits import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from testkit.clients.kafka_clients import LEAVES_SOCKETS
from testkit.replication.clients import Growth, HotClient, highest_bytes_per_s
from testkit.replication.rig import ReplicationRig, open_rig

RATE = 5_000_000
MOVED_BYTES = 60_000_000
SHORT_BYTES = 20_000_000

pytestmark = [
    pytest.mark.kafka,
    *LEAVES_SOCKETS,
]


@pytest.fixture(scope="module")
def rig() -> Iterator[ReplicationRig]:
    with open_rig() as rig:
        rig.start_sluices(paced=True)
        yield rig
    gc.collect()


def moved(rig: ReplicationRig, topic: str, to: list[list[int]], within_s: float) -> None:
    rig.cluster.await_until(lambda: rig.is_moved(topic, to), f"{topic} moved", within_s)


def check(rig: ReplicationRig) -> subprocess.CompletedProcess[str]:
    """`sluice check --replication`."""
    program, *_, config = rig.sluices[1].command()
    return subprocess.run(
        [program, "check", "--replication", config], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_short_move_takes_as_long_as_its_rate_says_and_everything_arrives(rig: ReplicationRig) -> None:
    """What of the longer ones does not depend on a quiet machine: 20 MB at 5 MB/s."""
    rig.create("beside", [[1, 2, 3]])
    rig.create("short", [[1]])
    rig.fill("short", SHORT_BYTES)
    before = rig.digest("short", 1)
    rig.set_throttle("short", leader={1: RATE}, follower={2: RATE})
    with HotClient(rig, "beside", 1, 10_000) as beside:
        begun_s = time.monotonic()
        rig.begin_move("short", [[2]], RATE)
        acknowledged = len(beside.latencies_ms)
        moved(rig, "short", [[2]], 120.0)
        took_s = time.monotonic() - begun_s
    assert rig.digest("short", 2) == before
    assert took_s >= SHORT_BYTES / RATE - 1.0, "a second's worth may go at once"
    assert len(beside.latencies_ms) > acknowledged, "producers waited until the move had ended"
    assert not beside.failed
    assert rig.isr_shrinks() == 0
    assert [line for sluice in rig.sluices.values() for line in sluice.faults_logged()] == []
    throttled = rig.sluices[1].samples("sluice_replication_throttled_bytes_total")
    assert {labels["side"]: value for labels, value in throttled}["leader"] >= SHORT_BYTES
    assert "is completed" in rig.verify_move("short", [[2]])
    rig.cluster.await_until(
        lambda: not rig.sluices[1].samples("sluice_replication_limit_bytes_per_second"), "throttle gone"
    )


@pytest.mark.slow
def test_a_move_by_kafkas_own_tool_is_held_to_its_rate_and_leaves_producers_alone(
    rig: ReplicationRig,
) -> None:
    """60 MB at 5 MB/s from one broker to another, beside acks=all producers on six other partitions."""
    rig.create("hot", [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2)
    rig.create("moved", [[1]])
    rig.fill("moved", MOVED_BYTES)
    before = rig.digest("moved", 1)
    rig.set_throttle("moved", leader={1: RATE}, follower={2: RATE})
    with HotClient(rig, "hot", 6, 100_000) as hot, Growth(rig, "moved", [2]) as growth:
        rig.begin_move("moved", [[2]], RATE)
        acknowledged = len(hot.latencies_ms)
        moved(rig, "moved", [[2]], 120.0)
    assert rig.digest("moved", 2) == before
    seconds = growth.per_second()
    print(seconds)
    assert len(seconds) >= MOVED_BYTES // RATE - 3
    # Of native throttling the first seconds have five times as much.
    assert highest_bytes_per_s(seconds) <= 1.1 * RATE
    assert len(hot.latencies_ms) > acknowledged, "producers waited until the move had ended"
    assert not hot.failed
    assert rig.isr_shrinks() == 0
    assert [line for sluice in rig.sluices.values() for line in sluice.faults_logged()] == []
    throttled = rig.sluices[1].samples("sluice_replication_throttled_bytes_total")
    assert {labels["side"]: value for labels, value in throttled}["leader"] >= MOVED_BYTES
    failed = check(rig)
    assert failed.returncode == 1
    assert "left_behind: a throttle is left at brokers 1, 2" in failed.stdout
    assert "is completed" in rig.verify_move("moved", [[2]])
    assert check(rig).returncode == 0
    rig.cluster.await_until(
        lambda: not rig.sluices[1].samples("sluice_replication_limit_bytes_per_second"), "throttle gone"
    )


@pytest.mark.slow
def test_a_move_outlives_the_proxy_and_a_changed_throttle(rig: ReplicationRig) -> None:
    """The leader's proxy is killed in mid-move and started again; then the rate is doubled, then gone."""
    rig.create("survivor", [[1], [1]])
    rig.fill("survivor", MOVED_BYTES, 2)
    before = rig.digest("survivor", 1)
    to = [[3], [3]]
    with Growth(rig, "survivor", [3]) as growth:
        rig.begin_move("survivor", to, RATE)
        rig.cluster.await_until(lambda: rig.log_bytes("survivor", 3) > MOVED_BYTES // 8, "under way")
        rig.sluices[1].close()
        time.sleep(1.0)
        rig.sluices[1].start()
        at_restart = rig.log_bytes("survivor", 3)
        rig.cluster.await_until(
            lambda: rig.log_bytes("survivor", 3) > at_restart + MOVED_BYTES // 8, "going on"
        )
        rig.change_throttle("survivor", to, 2 * RATE)
        moved(rig, "survivor", to, 180.0)
    assert rig.digest("survivor", 3) == before
    print(growth.per_second())
    rig.verify_move("survivor", to)
    assert rig.isr_shrinks() == 0


@pytest.mark.slow
def test_throttles_of_the_quota_file_pace_a_move_the_lesser_of_both_sides(rig: ReplicationRig) -> None:
    """The leader may send 20 MB/s, the follower take 3: the brokers themselves know of no throttle."""
    section = {
        "brokers": [
            {"id": "<default>", LEADER_RATE: 4 * RATE, FOLLOWER_RATE: 4 * RATE},
            {"id": 2, FOLLOWER_RATE: 3_000_000},
        ],
        "topics": [{"name": "filed", LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "0:2"}],
    }
    rig.start_sluices(paced=True, section=section)
    rig.create("filed", [[3]])
    rig.fill("filed", MOVED_BYTES // 2)
    before = rig.digest("filed", 3)
    with Growth(rig, "filed", [2]) as growth:
        rig.begin_move("filed", [[2]], None)
        moved(rig, "filed", [[2]], 120.0)
    assert rig.digest("filed", 2) == before
    seconds = growth.per_second()
    print(seconds)
    assert len(seconds) >= 7
    assert highest_bytes_per_s(seconds) <= 1.1 * 3_000_000


@pytest.mark.slow
def test_batches_larger_than_a_seconds_quota_get_through_in_turn(rig: ReplicationRig) -> None:
    """900 kB each at 300 kB/s, all partitions of the topic throttled: each brings three seconds' debt."""
    rate, total = 300_000, 7_200_000
    rig.start_sluices(paced=True)
    rig.create("bulky", [[1], [1]])
    rig.fill("bulky", total, 2, batch_bytes=900_000)
    before = rig.digest("bulky", 1)
    to = [[2], [2]]
    with Growth(rig, "bulky", [2]) as growth:
        rig.begin_move("bulky", to, rate)
        moved(rig, "bulky", to, 90.0)
    assert rig.digest("bulky", 2) == before
    print(growth.per_second())
    assert growth.lasted_s() > 0.7 * total / rate  # the first batch of each comes at once
    assert "is completed" in rig.verify_move("bulky", to)
