"""A night by spark-submit at a master and two workers, with an object store alone, against one on files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyarrow import parquet

from testkit.access_log.access_logs import DAY, row, write
from testkit.spark.cluster import SMALL, SparkCluster
from testkit.spark.night import (
    Files,
    NightInput,
    by_command,
    client_mode,
    cluster_mode,
    node_environ,
    on_this_machine,
)
from testkit.spark.object_store import ObjectStore

QUOTAS = """
quotas:
  - user: <default>
    producer_byte_rate: 1000
    consumer_byte_rate: 2500
"""
SETTINGS = "policy: {min_traffic_s: 30}\ncompact: false\n"
TENANT_QUOTAS = """
tenants:
  - name: big
    members: [big-0, big-1, big-2]
quotas:
  - tenant: big
    producer_byte_rate: 20000
    consumer_byte_rate: 50000
  - user: <default>
    producer_byte_rate: 1000
    consumer_byte_rate: 2500
"""
TENANT = [(f"big-{index % 3}", f"app-{index}") for index in range(27)]
"""the pairs of user and client id of one tenant, beside three that are not its"""
USERS = 12
PROXIES = 3
FILES_OF_A_DAY = 6
WINDOWS_OF_A_FILE = 60
HERE = [f"{key}={value}" for key, value in SMALL.items() if "executor" not in key]


@dataclass
class Place:
    """Two dates of log, the first one's night done, a cluster, and what the second makes on files alone."""

    night: NightInput
    cluster: SparkCluster
    store: ObjectStore
    driver: Path
    expected: Files


def write_log(logs: Path, seed: int) -> None:
    """Both dates. Fractions of milliseconds, which do not sum up to the same in another order."""
    numbers = random.Random(seed)
    for day in (DAY - timedelta(days=1), DAY):
        for index in range(FILES_OF_A_DAY):
            rows = [
                row(
                    index * WINDOWS_OF_A_FILE + window,
                    day=day,
                    proxy=f"proxy-{index % PROXIES}",
                    user=f"user-{user}",
                    client_id=f"app-{numbers.randrange(3)}",
                    api_class=numbers.choice(["produce", "fetch"]),
                    request_bytes=numbers.randrange(1_000 * (user + 1)),
                    response_bytes=numbers.randrange(2_000 * (user + 1)),
                    mutes=(mutes := int(user % 4 == 3 and numbers.random() < 0.5)),
                    throttle_ms=mutes * numbers.random() * 7_000.0,
                )
                for window in range(WINDOWS_OF_A_FILE)
                for user in range(USERS)
            ]
            write(logs, rows, f"{index}.parquet", day=day)


def write_tenants_log(logs: Path, seed: int) -> int:
    """One date, nine rows in ten of one tenant, throttled in every other window; returns how many rows."""
    numbers = random.Random(seed)
    clients = TENANT + [(f"user-{index}", "app") for index in range(3)]
    count = 0
    for index in range(FILES_OF_A_DAY):
        rows = [
            row(
                index * WINDOWS_OF_A_FILE + window,
                proxy=f"proxy-{index % PROXIES}",
                user=user,
                client_id=client_id,
                api_class=numbers.choice(["produce", "fetch"]),
                request_bytes=numbers.randrange(20_000),
                response_bytes=numbers.randrange(40_000),
                mutes=(mutes := window % 2),
                throttle_ms=mutes * numbers.random() * 7_000.0,
            )
            for window in range(WINDOWS_OF_A_FILE)
            for user, client_id in clients
        ]
        write(logs, rows, f"{index}.parquet")
        count += len(rows)
    return count


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("cluster")
    driver = root / "driver"
    driver.mkdir()
    (driver / "quotas.yaml").write_text(QUOTAS)
    (driver / "settings.yaml").write_text(SETTINGS)
    write_log(driver / "logs", seed=11)
    before = NightInput(
        DAY - timedelta(days=1), driver / "logs", driver / "quotas.yaml", driver / "settings.yaml"
    )
    on_this_machine(before, driver / "before", *HERE)
    night = replace(before, day=DAY, before=driver / "before")
    expected = on_this_machine(night, driver / "expected", *HERE)
    with ObjectStore(root) as store:
        night.upload(store)
        with SparkCluster(root, hidden=[driver], environ=node_environ(store)) as cluster:
            yield Place(night, cluster, store, driver, expected)


def differing(found: Files, expected: Files) -> list[str]:
    return sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))


@pytest.mark.slow
def test_a_night_in_client_mode_makes_the_same_plan_byte_for_byte(place: Place) -> None:
    """The driver here, executors at workers that have neither its files, nor its jars, nor a Python."""
    assert place.cluster.seen_by_worker(0, place.driver) == []
    found = client_mode(place.night, place.cluster, place.store, "client", place.driver)
    assert {"plan.json", "plan.parquet", "usage.parquet", "report.html"} <= found.keys()
    assert differing(found, place.expected) == []
    for index in range(2):
        executors = list(place.cluster.worker_folder(index).glob("work/app-*/[0-9]*"))
        assert executors, "each worker had one"


@pytest.mark.slow
def test_a_night_in_cluster_mode_makes_the_same_plan_byte_for_byte(place: Place) -> None:
    """The driver at a worker, which has what is in the store and what its machine has installed."""
    assert place.cluster.seen_by_worker(1, place.driver) == []
    found = cluster_mode(place.night, place.cluster, place.store, "cluster", place.driver)
    assert differing(found, place.expected) == []
    drivers = [
        each for index in range(2) for each in place.cluster.worker_folder(index).glob("work/driver-*/stdout")
    ]
    assert f"{place.store.uri}/cluster/plans/{DAY}-1" in "".join(each.read_text() for each in drivers)


@pytest.mark.slow
def test_the_command_itself_takes_a_cluster_and_hands_out_its_jars(place: Place) -> None:
    found = by_command(place.night, place.cluster, place.store, "command", place.driver)
    assert differing(found, place.expected) == []


@pytest.mark.slow
def test_with_nine_rows_in_ten_of_one_tenant_the_plan_is_the_same_byte_for_byte(
    place: Place, tmp_path: Path
) -> None:
    """One key has nearly all; what is summed up before it is sent, and in which order, must not show."""
    folder = place.driver / "tenant"
    folder.mkdir()
    (folder / "quotas.yaml").write_text(TENANT_QUOTAS)
    rows = write_tenants_log(folder / "logs", seed=12)
    of_tenant = sum(
        parquet.read_table(file, columns=["user"])["user"].to_pylist().count(user)
        for file in folder.glob("logs/rollup/*/*/*.parquet")
        for user in {user for user, _ in TENANT}
    )
    assert of_tenant / rows == 0.9
    night = NightInput(DAY, folder / "logs", folder / "quotas.yaml", place.night.settings)
    expected = on_this_machine(night, folder / "expected", *HERE)
    assert b'{"tenant": "big"}' in expected["plan.json"]
    with ObjectStore(tmp_path) as store:
        night.upload(store)
        found = client_mode(night, place.cluster, store, "tenant", folder)
    assert differing(found, expected) == []
