"""The wheels of earlier versions are of the commits that they are said to be of."""

from __future__ import annotations

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from testkit.releases import FIRST_COMMIT, FIRST_WHEEL

ROOT = Path(__file__).parents[3]
PACKAGES = ("protocol", "proxy", "quotas", "recalibration")


def archived(commit: str) -> dict[str, bytes]:
    """The files of its packages, by their paths in a wheel. Skips where git does not have it."""
    asked = subprocess.run(
        ["git", "archive", commit, *PACKAGES], cwd=ROOT, check=False, capture_output=True, timeout=60
    )
    if asked.returncode:
        pytest.skip(f"no full clone: {asked.stderr.decode().strip()[:100]}")
    with tarfile.open(fileobj=io.BytesIO(asked.stdout)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {f"sluice/{name}": file.read() for name, file in files.items() if file is not None}


def test_the_first_versions_wheel_is_of_its_commit() -> None:
    with zipfile.ZipFile(FIRST_WHEEL) as wheel:
        packed = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == archived(FIRST_COMMIT)
