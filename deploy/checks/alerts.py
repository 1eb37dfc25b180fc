#!/usr/bin/env python3
"""Alert rules are well-formed, fire where they should and nowhere else, by promtool; a bad one is seen."""

# limit: 300 s

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from check_tools import ROOT, Failed, output_of, prometheus_tool, run_check

FOLDER: Final = ROOT / "deploy" / "prometheus"


def main() -> str:
    promtool = prometheus_tool("promtool")
    print(output_of(promtool, "check", "rules", FOLDER / "alerts.yaml"))
    print(output_of(promtool, "test", "rules", "alerts_test.yaml", cwd=FOLDER))
    _see_a_rule_that_never_fires(promtool)
    rules = (FOLDER / "alerts.yaml").read_text(encoding="utf-8").count("- alert: ")
    return f"{rules} alert rules pass their tests"


def _see_a_rule_that_never_fires(promtool: Path) -> None:
    """The tests must be able to fail: with one threshold out of reach they do."""
    with tempfile.TemporaryDirectory() as folder:
        text = (FOLDER / "alerts.yaml").read_text(encoding="utf-8")
        changed = text.replace("sluice_producer_ids_tokens < 0", "sluice_producer_ids_tokens < -1000")
        if changed == text:
            raise Failed("the rule that is to be spoilt is gone; change this check")
        Path(folder, "alerts.yaml").write_text(changed, encoding="utf-8")
        tests = (FOLDER / "alerts_test.yaml").read_text(encoding="utf-8")
        Path(folder, "alerts_test.yaml").write_text(tests, encoding="utf-8")
        done = subprocess.run(
            [promtool, "test", "rules", "alerts_test.yaml"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode == 0 or "SluiceProducerIdStorm" not in done.stdout + done.stderr:
            raise Failed(f"a rule that never fires is not noticed: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    run_check(main)
