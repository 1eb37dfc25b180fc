"""What a proxy loads at its start: memory and time of every pod."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import sluice.proxy.cli.main, sluice.proxy.assembly, sluice.proxy.server
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return told.stdout.split()


@pytest.mark.parametrize(
    "library", ["kafka", "aiokafka", "pyspark", "pyarrow", "duckdb", "boto3", "matplotlib"]
)
def test_a_proxy_that_asks_no_broker_by_itself_loads_no_library_for_that(
    loaded: list[str], library: str
) -> None:
    """The quota topic, the access log's topic and replication throttles load aiokafka and kafka-python
    where they are configured: 10 MiB and 0.1 s."""
    assert "sluice" in loaded
    assert library not in loaded
