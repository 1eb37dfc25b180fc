"""Charts rendered by a real Helm, which the check `chart` finds or builds (deploy/checks/chart.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_tools import helm
from helm_charts import Charts


@pytest.fixture(scope="session")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Charts:
    """A copy of all charts, with their dependencies."""
    program: Path = helm()
    return Charts(program, tmp_path_factory.mktemp("charts"))
