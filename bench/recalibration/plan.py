"""A plan from states that are there, as a night makes it after its own date is in.

python -m bench.recalibration.plan OUT QUOTAS CORES
"""

import sys
from pathlib import Path

from bench.recalibration.load import DAY
from sluice.quotas.files.load import load_quotas
from sluice.recalibration.job import make_plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.report.publish import write_plan
from sluice.recalibration.spark.session import spark_session
from sluice.recalibration.state.store import StateStore


def main(out: str, quotas: str, cores: str) -> int:
    limits = load_quotas(Path(quotas))
    with spark_session("bench", f"local[{cores}]") as spark:
        plan = make_plan(spark, StateStore(out), DAY, limits, JobSettings(), LogFiles([], {}))
    print(write_plan(plan, out), len(plan.entries))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
