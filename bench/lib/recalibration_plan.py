"""A plan from states that are there, as a night makes it after its own date is in.

python -m bench.lib.recalibration_plan OUT QUOTAS CORES
"""

import sys
from pathlib import Path

from bench.lib.recalibration_load import DAY
from sluice.quotas.quota_file import load_quotas
from sluice.recalibration.job import make_plan
from sluice.recalibration.log_reader import LogFiles
from sluice.recalibration.publish import write_plan
from sluice.recalibration.settings import JobSettings
from sluice.recalibration.spark import spark_session
from sluice.recalibration.state_store import StateStore


def main(out: str, quotas: str, cores: str) -> int:
    limits = load_quotas(Path(quotas))
    with spark_session("bench", f"local[{cores}]") as spark:
        plan = make_plan(spark, StateStore(out), DAY, limits, JobSettings(), LogFiles([], {}))
    print(write_plan(plan, out), len(plan.entries))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
