"""From the configuration to what all listeners share: quotas, connection limits, the page of Kafka's metrics.

What belongs to one listener is made in assembly.py.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Final

from sluice.proxy.config.config import Config
from sluice.proxy.config.gaps import gaps
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.options import MAX_INT32
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.metrics.collector import DISTRIBUTION
from sluice.proxy.metrics.kafka_page import KafkaPage, KafkaWindows
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.open_files import allowed, connections_of, files_of, for_clients
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager

_log = get_logger()
_FEW: Final = 16
"""places that a small limit of all connections leaves nonetheless"""


def quota_manager_of(config: Config, limits: QuotaLimits) -> QuotaManager:
    """Make the keeper of all quotas. `limits`: those in force at the start."""
    return QuotaManager(
        limits,
        burst_s=config.pacing.burst_s,
        max_debt_ms=config.pacing.max_debt_s * 1000.0,
        pacing=config.pacing.mode,
        window_num=config.pacing.window_num,
        window_size_s=config.pacing.window_size_s,
        controller_window_num=config.controller_mutations.window_num,
        controller_window_size_s=config.controller_mutations.window_size_s,
        max_client_ids_per_user=config.limits.max_client_ids_per_user,
        max_sensors=config.limits.max_sensors,
    )


def connection_limits_of(options: LimitsOptions) -> ConnectionLimits:
    """Make the counts of connections, with the bounds that hold at the start."""
    limits = ConnectionLimits()
    follow_connection_limits(limits, options)
    return limits


def follow_connection_limits(
    limits: ConnectionLimits, options: LimitsOptions, open_files: float | None = None
) -> None:
    """Put the bounds of a changed configuration in force, for new connections.

    What nobody has set fits what is set, and the descriptors that the process may have (`open_files`).
    """
    files = allowed()[0] if open_files is None else open_files
    by_files = max(1, connections_of(files))
    limits.spare.most = for_clients(files)
    wanted = MAX_INT32 if options.max_connections is None else options.max_connections
    limits.max_connections = most = min(wanted, by_files)
    limits.guests.share = options.unauthenticated_cpu_share
    limits.max_connections_per_address = options.max_connections_per_ip
    limits.max_connections_per_user = options.max_connections_per_user
    limits.max_unauthenticated = options.max_unauthenticated_connections
    limits.caps_shared_names = options.is_set("max_connections_per_user")
    if not limits.caps_shared_names and limits.max_connections_per_user is not None:
        limits.max_connections_per_user = min(limits.max_connections_per_user, max(_FEW, most // 2))
    if not options.is_set("max_unauthenticated_connections") and limits.max_unauthenticated is not None:
        limits.max_unauthenticated = min(limits.max_unauthenticated, max(_FEW, most // 4))
    if by_files < wanted and options.max_connections is not None:
        _log.warning(
            "open_files_bound_connections",
            max_connections=wanted,
            in_force=by_files,
            remedy=f"raise the limit of open files (ulimit -n) to {files_of(wanted)}",
        )


def kafka_page_of(
    config: Config, meter: UsageMeter, gauges: Gauges, replication: Replication | None
) -> KafkaPage | None:
    """Make the page of metrics by Kafka's names; None if `metrics.kafka_page` is false."""
    if not config.metrics.kafka_page:
        return None
    pacing, ids = config.pacing, config.producer_ids
    windows = KafkaWindows(pacing.window_num, pacing.window_size_s, ids.window_num, ids.window_size_s)
    return KafkaPage(meter, gauges, windows, replication)


def warn_of_gaps(config: Config, limits: QuotaLimits) -> None:
    """Say in the log what nobody has declared, and what follows from that."""
    for gap in gaps(config, limits):
        _log.warning(gap.event, **gap.fields, remedy=gap.remedy)


def tell_start(config: Config, file: Path | None, limits: QuotaLimits) -> None:
    """Say in the log what starts. `limits`: those in force at the start."""
    _log.info(
        "starting",
        version=version(DISTRIBUTION),
        mode=config.mode,
        configuration=None if file is None else str(file),
        limits=len(limits.entries),
        pid=os.getpid(),
    )
