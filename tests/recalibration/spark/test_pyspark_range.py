"""The range of PySpark that the package takes: a night at its lowest end makes the plan of the highest."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from pyarrow import parquet

from sluice.proxy.access_log.columns import encoded
from sluice.quotas.files.variables import JARS_VARIABLE
from sluice.recalibration.spark.spark_jars import fetch_jars, jar_set
from sluice.usage.access_record import ROLLUP
from testkit.access_log.access_logs import DAY, row, write
from testkit.kafka.dist import cache_folder
from testkit.spark.night import Files, NightInput, on_this_machine
from testkit.spark.object_store import ObjectStore
from tools.pyspark_lowest import pyspark_lowest

ROOT: Final = Path(__file__).resolve().parents[3]
QUOTAS: Final = (
    "quotas: [{user: alice, producer_byte_rate: 1000}, {user: <default>, consumer_byte_rate: 5000}]\n"
)
SETTINGS: Final = "policy: {min_traffic_s: 30}\ncompact: false\n"
SMALL: Final = ("spark.sql.shuffle.partitions=4", "spark.driver.memory=512m")
LOWEST_HADOOP: Final = "3.4.1"
DAMAGED: Final = b"neither the beginning nor the end of a Parquet file"


def ends() -> tuple[str, str]:
    """The lowest and the highest version that tests run with, by pyproject.toml."""
    groups = _pyproject()["dependency-groups"]
    (lowest,) = (Requirement(each) for each in groups["pyspark-lowest"])
    (highest,) = (Requirement(each) for each in groups["dev"] if each.startswith("pyspark"))
    return str(lowest.specifier).removeprefix("=="), str(highest.specifier).removeprefix("==")


def _pyproject() -> Mapping[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_ends_that_are_tried_are_those_of_the_range() -> None:
    extra = _pyproject()["project"]["optional-dependencies"]["recalibration"]
    (pyspark_range,) = (Requirement(each).specifier for each in extra if each.startswith("pyspark"))
    bounds = {bound.operator: Version(bound.version) for bound in pyspark_range}
    lowest, highest = map(Version, ends())
    assert bounds.keys() == {">=", "<"}
    assert bounds[">="] == lowest
    assert bounds["<"] == Version(f"{highest.major}.{highest.minor + 1}")
    for name, pin in (("pyspark-lowest", lowest), ("dev", highest), ("recalibration", highest)):
        assert f"\npyspark=={pin} " in (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> NightInput:
    """Two dates, in files encoded as the proxy encodes them, and damaged ones; the first one's night done."""
    folder = tmp_path_factory.mktemp("range")
    (folder / "quotas.yaml").write_text(QUOTAS)
    (folder / "settings.yaml").write_text(SETTINGS)
    for day in (DAY - timedelta(days=1), DAY):
        for index in range(3):
            _write(folder / "logs", day, index)
    first = NightInput(
        DAY - timedelta(days=1), folder / "logs", folder / "quotas.yaml", folder / "settings.yaml"
    )
    on_this_machine(first, folder / "before", *SMALL)
    return replace(first, day=DAY, before=folder / "before")


def _write(logs: Path, day: date, index: int) -> None:
    rows = [
        row(
            index * 40 + window,
            day=day,
            proxy=f"proxy-{index}",
            user=user,
            api_class=("produce", "fetch")[window % 2],
            request_bytes=(window * 7919 + index) % 30_000,
            response_bytes=(window * 104_729 + index) % 90_000,
            mutes=window % 3,
            throttle_ms=(window % 3) * 1_234.567,
        )
        for window in range(40)
        for user in ("alice", "bob", "ünï")
    ]
    path = write(logs, rows, f"{index}.parquet", day=day)
    data = encoded(ROLLUP, parquet.read_table(path, partitioning=None))
    assert b"BYTE_STREAM_SPLIT" in str(_encodings(path, data)).encode()
    path.with_name(f"{index}-damaged.parquet").write_bytes(DAMAGED)


def _encodings(path: Path, data: memoryview) -> set[str]:
    path.write_bytes(data)
    group = parquet.read_metadata(path).row_group(0)
    return {each for at in range(group.num_columns) for each in group.column(at).encodings}


@pytest.mark.slow
def test_a_night_at_the_lowest_end_makes_the_plan_of_the_highest_byte_for_byte(
    night: NightInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over files, and over an object store, where its S3A is another one."""
    lowest, highest = ends()
    assert pyspark.__version__ == highest
    expected = on_this_machine(night, tmp_path / "highest", *SMALL)
    assert b'"user": "alice"' in expected["plan.json"]
    assert b"damaged.parquet" in expected["plan.json"]
    monkeypatch.setenv("PYTHONPATH", str(pyspark_lowest()))
    asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    assert subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip() == lowest
    assert on_this_machine(night, tmp_path / "lowest", *SMALL) == expected
    assert _without_places(over_s3(night, tmp_path), "s3://night") == _without_places(
        expected, str(night.logs.parent)
    )


def over_s3(night: NightInput, folder: Path) -> Files:
    """By a process of its own, with what the environment has."""
    jars = cache_folder() / f"spark-jars-{LOWEST_HADOOP}"
    fetch_jars(jars, jar_set(LOWEST_HADOOP))
    assert night.before is not None
    with ObjectStore(folder) as store:
        night.upload(store)
        store.upload(night.before, "out")
        arguments = [f"--logs={store.uri}/logs", f"--out={store.uri}/out", f"--date={night.day}"]
        arguments += [f"--{name}={store.uri}/given/{name}.yaml" for name in ("quotas", "settings")]
        ended = subprocess.run(
            [sys.executable, "-m", "sluice.recalibration", *arguments, *(f"--conf={each}" for each in SMALL)],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **store.environ, JARS_VARIABLE: str(jars)},
        )
        assert ended.returncode == 0, ended.stderr[-2_000:]
        assert "not locked:" in ended.stderr, "it says what its S3A cannot do"
        plan = ended.stdout.strip().removeprefix(f"{store.uri}/")
        return {name: store.read(f"{plan}/{name}") for name in store.names(plan)}


def _without_places(files: Files, root: str) -> dict[str, bytes]:
    """Damaged files are named by their whole path."""
    return {name: content.replace(root.encode(), b"") for name, content in files.items()}
