#!/usr/bin/env python3
"""hadolint finds nothing in the Dockerfile, and something in a bad one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HADOLINT: Final = Path(sys.executable).with_name("hadolint")
BAD: Final = "FROM debian\nRUN cd /tmp && sudo apt-get install x\nENTRYPOINT sh -c y\n"
EXPECTED: Final = {"DL3006", "DL3004", "DL3025"}
"""an image without a tag, sudo, an entry point through a shell"""


def lint(path: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """hadolint over a file, or over a text if `path` is `-`."""
    command: list[str | Path] = [HADOLINT, "--no-color", "--failure-threshold", "style", path]
    return subprocess.run(command, cwd=ROOT, input=text, check=False, capture_output=True, text=True)


def main() -> None:
    bad = lint("-", BAD)
    unseen = {rule for rule in EXPECTED if rule not in bad.stdout}
    if unseen or bad.returncode == 0:
        sys.exit(f"hadolint does not see {', '.join(sorted(unseen)) or 'mistakes'}: {bad.stdout}{bad.stderr}")
    ours = lint("Dockerfile")
    if ours.returncode or ours.stdout:
        sys.exit(f"{ours.stdout}{ours.stderr}")
    print("hadolint: nothing found, style included")


if __name__ == "__main__":
    main()
