"""A night of request rows on files and `local[*]`, and the same on a cluster that has an object store alone.

What is compared is the bytes of the plans' files. The cluster is a master and two workers on this machine,
its log, state and plans lie in a store that speaks S3, and its workers do not see the driver's folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.recalibration.load import DAY, Load, write_quotas, write_requests
from testkit.processes.process import BenchError
from testkit.spark.cluster import SMALL, SparkCluster
from testkit.spark.night import (
    Files,
    NightError,
    NightInput,
    client_mode,
    cluster_mode,
    node_environ,
    on_this_machine,
)
from testkit.spark.object_store import ObjectStore

ROWS: Final = 60_000
LOAD: Final = Load(ROWS, proxies=3)
_HEAP: Final = "256m"
_SETTINGS: Final = {**SMALL, "spark.driver.memory": _HEAP, "spark.executor.memory": _HEAP}
"""two heaps of an executor, one of a driver, the daemons': less than 1 GB"""


@dataclass(frozen=True, slots=True)
class ClusterNight:
    """One way of spark-submit."""

    deploy_mode: str
    wall_s: float
    """from spark-submit's start to its end"""
    differing: list[str]
    """the plan's files that are not, byte for byte, those of `local[*]`"""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def cluster_nights(scratch: Path) -> list[ClusterNight]:
    """In both deploy modes. Raises BenchError where a night makes no plan."""
    driver = scratch / "driver"
    driver.mkdir()
    night = NightInput(DAY, driver / "logs", driver / "quotas.yaml", driver / "settings.yaml")
    write_requests(LOAD, night.logs)
    write_quotas(night.quotas)
    night.settings.write_text("compact: false\n", encoding="utf-8")  # each night reads the same files
    try:
        expected = on_this_machine(night, driver / "out")
        with ObjectStore(scratch) as store:
            night.upload(store)
            with SparkCluster(scratch, hidden=[driver], environ=node_environ(store)) as cluster:

                def client() -> Files:
                    return client_mode(night, cluster, store, "client", driver, _SETTINGS)

                def submitted() -> Files:
                    return cluster_mode(night, cluster, store, "cluster", driver, _SETTINGS)

                return [_compared("client", client, expected), _compared("cluster", submitted, expected)]
    except NightError as error:
        raise BenchError(f"the night on a cluster: {error}") from None


def _compared(deploy_mode: str, run: Callable[[], Files], expected: Files) -> ClusterNight:
    begun = time.monotonic()
    found = run()
    wall_s = time.monotonic() - begun
    names = found.keys() | expected.keys()
    differing = sorted(name for name in names if found.get(name) != expected.get(name))
    return ClusterNight(deploy_mode, round(wall_s, 1), differing)
