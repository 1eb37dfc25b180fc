"""A configuration → what `sluice run` reads or demands at its start, so that it can be tried without a start.

Each is the server's own, and as there raises ConfigError; none of them listens, connects or writes. What only
the machine or the network can tell (a port that is taken, a broker that is away) is for `sluice doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from sluice.proxy.config.access_log import AccessLogOptions
from sluice.proxy.config.config import Config
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.quotas import QuotaOptions
from sluice.quotas.limits.limits import QuotaLimits


def refusals(config: Config, limits: QuotaLimits | None) -> Iterator[Callable[[], object]]:
    """Each raises ConfigError for what is wrong. `limits`: of the quota file; None: there are none."""
    from sluice.proxy.admin.socket import refuse_path
    from sluice.proxy.admin.status.token import token_file
    from sluice.proxy.assembly import producer_id_file
    from sluice.proxy.calibration.request_cost_file import load_request_costs

    for listener in config.listeners:
        yield from _listener(listener)
    yield partial(producer_id_file, config)
    yield partial(token_file, config.admin.status)
    if config.admin.socket is not None:
        yield partial(refuse_path, config.admin.socket)
    yield partial(load_request_costs, config.request_time.cost_file)
    yield from _quotas(config.quotas, limits)
    if config.replication is not None:
        from sluice.proxy.kafka_client.clients import ClusterAccess

        yield partial(ClusterAccess, config.replication.cluster())
    if config.access_log is not None:
        yield from _access_log(config.access_log)


def _listener(options: ListenerOptions) -> Iterator[Callable[[], object]]:
    from sluice.proxy.listener.handshake import principal_mapping
    from sluice.proxy.listener.security import load_security

    yield partial(load_security, options)
    yield partial(principal_mapping, options)


def _quotas(options: QuotaOptions, limits: QuotaLimits | None) -> Iterator[Callable[[], object]]:
    topic = options.topic
    if topic is None:
        return
    from sluice.proxy.kafka_client.clients import ClusterAccess
    from sluice.proxy.quota_store.source import refuse_both
    from sluice.proxy.quota_store.topic_copy import QuotaCopy

    if limits is not None:
        yield partial(refuse_both, options, limits)
    if topic.copy_file is not None:
        yield partial(QuotaCopy, topic.copy_file, topic.name)
    yield partial(ClusterAccess, topic)


def _access_log(options: AccessLogOptions) -> Iterator[Callable[[], object]]:
    from sluice.proxy.access_log.access_log import sink_settings
    from sluice.proxy.access_log.sinks.make import make_sink, require_pyarrow

    yield require_pyarrow
    yield partial(make_sink, sink_settings(options))
