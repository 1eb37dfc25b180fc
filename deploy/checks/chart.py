#!/usr/bin/env python3
"""The Helm charts: linted, rendered and tested for a matrix of cases and three Kubernetes versions."""

# limit: 1800 s

from __future__ import annotations

import os
import subprocess
import sys

from check_tools import CACHE, ROOT, Failed, go_build, helm, output_of, prometheus_tool, run_check
from helm_charts import SOURCE, VERSIONS, cases


def main() -> str:
    """The tools first, so that a test never waits for one, or fails for lack of one."""
    print(output_of(helm(), "version", "--short").strip())
    go_build(ROOT / "deploy" / "checks" / "operator_types", CACHE / "bin")
    prometheus_tool("promtool")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", SOURCE / "tests", "-q", "-p", "no:cacheprovider", "-n", "2"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    if done.returncode:
        raise Failed(f"the charts' tests: pytest ended with {done.returncode}")
    return f"{len(list(cases()))} cases for Kubernetes {', '.join(VERSIONS)}"


if __name__ == "__main__":
    run_check(main)
