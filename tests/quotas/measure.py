"""What the quota core costs: `python tests/quotas/measure.py` prints the table of docs/quotas.md."""

from __future__ import annotations

import gc
import statistics
import time
import timeit
import tracemalloc

from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, Tenant
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.sensor import Sensor

REPEATS = 5
CPU = time.process_time  # of this process, so that a busy machine disturbs less
PRODUCE, FETCH = QuotaKind.PRODUCE, QuotaKind.FETCH
NOW_MS = 1e6
GB_PER_S = 1_000_000_000
LEVELS = [
    QuotaEntity(user, client_id)
    for user in ("alice", DEFAULT, None)
    for client_id in ("app", DEFAULT, None)
    if (user, client_id) != (None, None)
]
OTHER_NAMES = [QuotaEntity("alice", "x"), QuotaEntity(DEFAULT, "x"), QuotaEntity(None, "x")]


def limits_of(entities: list[QuotaEntity]) -> QuotaLimits:
    return QuotaLimits((entity, {"producer_byte_rate": GB_PER_S}) for entity in entities)


def line(what: str, values: list[float], unit: str) -> None:
    print(f"| {what} | {statistics.median(values):.0f} {unit} | {min(values):.0f} … {max(values):.0f} |")


def sensor_of(manager: QuotaManager) -> Sensor:
    sensor = manager.sensor(PRODUCE, "alice", "app", NOW_MS)
    assert sensor is not None
    return sensor


def empty(_amount: float, now_ms: float) -> float:
    return now_ms


def hot_path() -> None:
    eight = limits_of(LEVELS)
    worst = limits_of([*OTHER_NAMES, QuotaEntity(None, DEFAULT)])
    manager, worst_manager = QuotaManager(eight), QuotaManager(worst)
    idle = sensor_of(QuotaManager(QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 2**62})])))
    owing = sensor_of(QuotaManager(eight, max_debt_ms=1e18))
    owing.charge(10 * GB_PER_S, NOW_MS)
    kafka_idle, kafka_above = (sensor_of(QuotaManager(eight, pacing="kafka")) for _ in range(2))
    for second in range(20):  # all windows in use
        kafka_idle.charge(1, NOW_MS + second * 1_000)
        kafka_above.charge(10 * GB_PER_S, NOW_MS + second * 1_000)
    kafka_ms = NOW_MS + 19_000
    exempt = QuotaManager(
        QuotaLimits(eight.entries.items(), exempt=[ExemptRule(network=network_of("10.0.0.0/8"))])
    )
    team = QuotaEntity(Tenant("team"), Prefix("a"))
    groups = QuotaManager(
        QuotaLimits([(team, {"producer_byte_rate": GB_PER_S})], tenants={"team": ["alice"]})
    )
    names = {**globals(), **locals()}

    def measure(what: str, statement: str, number: int = 200_000) -> None:
        runs = timeit.repeat(statement, timer=CPU, globals=names, number=number, repeat=REPEATS)
        line(what, [s / number * 1e9 for s in runs], "ns")

    measure("an empty call, for scale", "empty(16_384, NOW_MS)")
    measure("`charge`, in credit", "idle.charge(16_384, NOW_MS)")
    measure("`charge`, in debt", "owing.charge(16_384, NOW_MS)")
    measure("`charge`, `pacing.mode: kafka`, in credit", "kafka_idle.charge(1, kafka_ms)")
    measure("`charge`, `pacing.mode: kafka`, above the limit", "kafka_above.charge(16_384, kafka_ms)")
    measure("`refund`", "owing.refund(1, NOW_MS)")
    measure("`fetch_queue().grant`", "idle.fetch_queue().grant(50_000_000, NOW_MS)")
    measure("`resolve`, first of eight levels", "eight.resolve(PRODUCE, 'alice', 'app')")
    measure("`resolve`, last of eight levels", "worst.resolve(PRODUCE, 'alice', 'app')")
    measure("`resolve`, a kind without limits", "eight.resolve(FETCH, 'alice', 'app')")
    measure("`sensor`, remembered", "manager.sensor(PRODUCE, 'alice', 'app', NOW_MS)")
    anew = "_look_up(PRODUCE, 'alice', 'app', NOW_MS, '')"
    measure("`sensor` anew, first of eight levels", f"manager.{anew}")
    measure("`sensor` anew, last of eight levels", f"worst_manager.{anew}")
    measure("`sensor` anew, a prefix of a tenant", f"groups.{anew}")
    measure("`sensor`, exempt by address", "exempt.sensor(PRODUCE, 'alice', 'app', NOW_MS, '10.1.2.3')")


def full_house() -> None:
    """As many sensors as max_sensors lets clients mint."""
    limits = limits_of([QuotaEntity(DEFAULT, DEFAULT)])
    tracemalloc.start()
    manager = QuotaManager(limits)
    for user in range(90):
        for client in range(1_000):
            manager.sensor(PRODUCE, f"user-{user}", f"client-{client}", NOW_MS)
    kib = tracemalloc.get_traced_memory()[0] / 1024 / len(manager)
    tracemalloc.stop()
    print(f"| memory of one sensor with its names, of {len(manager)} | {kib:.2f} KiB | |")
    gc.collect()
    gc.freeze()  # as the server: what lives is not walked again and again
    steps = []
    for _ in range(REPEATS):
        begun_s, longest_s = CPU(), 0.0
        for _ in manager.reload_in_steps(limits, NOW_MS):
            ended_s = CPU()
            longest_s, begun_s = max(longest_s, ended_s - begun_s), ended_s
        steps.append(longest_s)
    reloads = timeit.repeat(lambda: manager.reload(limits, NOW_MS), timer=CPU, number=1, repeat=REPEATS)
    line("`reload` with 90,000 sensors, in all", [s * 1e3 for s in reloads], "ms")
    line("… its longest step", [s * 1e3 for s in steps], "ms")
    walks = timeit.repeat(lambda: manager.expire(NOW_MS), timer=CPU, number=1, repeat=REPEATS)
    line("`expire` with 90,000 sensors, none idle", [s * 1e3 for s in walks], "ms")


if __name__ == "__main__":
    hot_path()
    full_house()
