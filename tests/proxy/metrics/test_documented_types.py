"""docs/metrics.md tells the types that the pages have."""

from __future__ import annotations

import re

from tools.reference import documents


def test_a_metrics_type_is_documented_as_it_is_exposed() -> None:
    """An info is a gauge of 1 on the page, in text and as OpenMetrics."""
    types = dict(re.findall(r"^\| `(sluice_[a-z_]+)` \| (\w+) \|", documents()["metrics.md"], re.MULTILINE))
    assert {types[name] for name in types if name.endswith("_info")} == {"gauge"}
    assert set(types.values()) <= {"counter", "gauge", "histogram"}
