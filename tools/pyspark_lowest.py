"""The lowest PySpark that the extra `recalibration` takes, beside the highest, which the environment has.

    python -m tools.pyspark_lowest

Prints a folder that has it; with the folder in PYTHONPATH, Python takes the PySpark there. It is installed
once for all checkouts, into the cache that they share, as requirements/pyspark-lowest.txt pins it: half a
gigabyte.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from testkit.kafka.dist import cache_folder

REQUIREMENTS: Final = Path(__file__).resolve().parents[1] / "requirements/pyspark-lowest.txt"


def pyspark_lowest() -> Path:
    """The folder. Raises CalledProcessError if it cannot be installed; pip has said why."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:8]
    folder = cache_folder() / f"pyspark-lowest-{digest}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        print("PySpark: installing the lowest version of the range", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="pyspark-", dir=folder.parent) as scratch:
            target = Path(scratch, "target")
            pip = [sys.executable, "-m", "pip", "install", "-q", "--progress-bar", "off", "--no-compile"]
            options = ["--target", str(target), "--require-hashes", "-r", str(REQUIREMENTS)]
            subprocess.run([*pip, *options], check=True, stdout=sys.stderr)
            target.rename(folder)  # whole, or not there
    return folder


if __name__ == "__main__":
    print(pyspark_lowest())
