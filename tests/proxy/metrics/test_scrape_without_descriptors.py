"""A scrape when clients have taken every descriptor: metrics are what an operator looks at then."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

import pytest

from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder


def test_a_scrape_needs_no_descriptor() -> None:
    quotas = QuotaManager(QuotaLimits())
    collector = SluiceCollector(UsageMeter(Recorder(), quotas, ProducerIds()), quotas, Gauges(), {})
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, before[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        names = [family.name for family in collector.collect()]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in taken:
            os.close(each)
    assert "sluice_build_info" in names
