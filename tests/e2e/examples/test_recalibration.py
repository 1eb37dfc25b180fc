"""The example of the nightly job as it stands: a log becomes a plan, by the README's own commands."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from testkit.clients.kafka_records import numbered
from testkit.examples.bite import MIB, least_s, produced_exactly, throttled_s
from testkit.examples.proxy import EXAMPLES
from testkit.examples.readme import commands_of
from testkit.examples.stage import Stage
from testkit.proxy.sluice_process import SLUICE

pytestmark = [pytest.mark.kafka, pytest.mark.long]
EXAMPLE: Final = "recalibration"
FOR_FEW_ROWS: Final = (
    "--master=local[1]",
    "--conf=spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "--conf=spark.sql.adaptive.enabled=false",
    "--conf=spark.sql.codegen.wholeStage=false",
    "--conf=spark.sql.codegen.factoryMode=NO_CODEGEN",
    "--conf=spark.sql.shuffle.partitions=1",
)
"""what Spark would spend on compiling is more than what so little takes"""


@pytest.fixture(scope="module")
def folder(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder after the README's traffic, and a little of another client."""
    proxy = stage.proxy(EXAMPLE)
    (proxy.folder / "access-log").mkdir()
    with proxy:
        sent = stage.run_readme(EXAMPLE, proxy)
        assert sent.took_s > least_s(15_000_000, MIB)
        assert throttled_s(proxy, client_id="checkout") > 0
        records = numbered(600, size_bytes=1_000)
        produced_exactly(stage.broker, proxy, "of-reports", records, client_id="reports")
        assert throttled_s(proxy, client_id="reports") == 0.0
        assert proxy.stop() == 0
        kept = shutil.copytree(proxy.folder, tmp_path_factory.mktemp("night") / EXAMPLE)
        proxy.start()  # what the `with` block ends in order
    return kept


def run_of_the_readme(first: str, folder: Path, *more: str) -> str:
    """What its command of `sluice` that begins so prints, run on the folder, whose log tells the date."""
    (words,) = [
        words for words in commands_of(EXAMPLES / EXAMPLE / "README.md") if words[:2] == ["sluice", first]
    ]
    day = max((folder / "access-log/rollup").glob("date=*"))
    today = {"$(date -u +%F)": day.name.removeprefix("date=")}
    command = [str(SLUICE), *(today.get(word, word) for word in words[1:]), *more]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_proxy_writes_down_who_used_what(folder: Path) -> None:
    assert [*(folder / "access-log/rollup").rglob("*.parquet")]


@pytest.fixture(scope="module")
def plan(folder: Path) -> Path:
    """What the night leaves."""
    out = run_of_the_readme("recalibrate", folder, *FOR_FEW_ROWS)
    return folder.parent / out.strip()


def test_what_was_used_becomes_a_plan(folder: Path, plan: Path) -> None:
    assert (plan / "report.html").is_file()
    assert (folder / "nights/LATEST").read_text(encoding="utf-8").strip() == plan.name
    entries = json.loads((plan / "plan.json").read_text(encoding="utf-8"))["entries"]
    proposed = {entry["entity"]["client-id"]: entry for entry in entries}
    assert proposed["checkout"]["reason"] in {"demand", "growth_guard"}
    assert MIB < proposed["checkout"]["proposed"] <= 2 * MIB
    assert proposed["reports"]["proposed"] == proposed["reports"]["current"]


def test_the_plan_can_be_applied_and_names_the_limit_that_it_raises(folder: Path, plan: Path) -> None:
    assert plan.is_dir()
    shown = run_of_the_readme("quotas", folder)
    assert "client-id 'checkout'" in shown, shown
    assert "reports" not in shown, shown
