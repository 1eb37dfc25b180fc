"""From a listener's options to a running listener, and what has to be watched for it: files and brokers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sluice.proxy.calibration.request_cost_file import CostTables
from sluice.proxy.config.config import Config, UpstreamOptions
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.listener import GatewayOptions, ListenerOptions
from sluice.proxy.config.options import host_and_port
from sluice.proxy.config.pacing import PacingOptions
from sluice.proxy.connection.data_path import PURE, DataPath
from sluice.proxy.connection.limits import AcceptRate, ConnectionLimits
from sluice.proxy.connection.rates import ConnectionRates
from sluice.proxy.connection.timeouts import WatchRules, WatchTimeouts
from sluice.proxy.connection.worker import Worker
from sluice.proxy.listener.circuit import Circuits, Rotation
from sluice.proxy.listener.client_upstreams import ClientUpstreams
from sluice.proxy.listener.cluster_watch import ClusterWatch
from sluice.proxy.listener.handshake import Entrance
from sluice.proxy.listener.listener import Listener
from sluice.proxy.listener.route import BrokerRoute, GatewayRoute, Route
from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_watch import UpstreamWatch
from sluice.proxy.quota_store.producer_id_file import ProducerIdFile, scope_of
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.supervision import Work
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.gateway.broker_map import BrokerMap
from sluice.proxy.session.policy import QuotaApi, SessionPolicy, SharedState
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.session import Session
from sluice.quotas.manager import QuotaManager


@dataclass(slots=True)
class Assembled:
    """A listener and the work that runs beside it until the end."""

    listener: Listener
    upstream: UpstreamWatch
    beside: list[Work] = field(default_factory=list)


def assemble(
    worker: Worker,
    options: ListenerOptions,
    shared: SharedState,
    policy: SessionPolicy,
    circuits: Circuits,
    security: ListenerSecurity,
    *,
    limits: LimitsOptions,
    upstream: UpstreamOptions,
    path: DataPath = PURE,
) -> Assembled:
    """Binds its ports. Raises CannotListen if one cannot be had, ConfigError for what cannot be used."""
    way = Upstream(
        worker.loop,
        options,
        circuits,
        dial_timeout_s=upstream.dial_timeout_s,
        dial_total_s=upstream.dial_total_s,
        tls=security.upstream_tls,
        credentials=security.credentials,
    )
    brokers = None if options.gateway is None else _broker_map(options, options.gateway)
    route: Route
    if options.gateway is not None and brokers is not None:
        addresses = map(host_and_port, options.gateway.bootstrap_upstreams)
        route = GatewayRoute(brokers, Rotation(addresses, circuits))
        policy = replace(policy, broker_map=brokers)
    else:
        assert options.upstream_host is not None
        assert options.upstream_port is not None
        route = BrokerRoute((options.upstream_host, options.upstream_port))
    upstreams = ClientUpstreams(worker.loop, way, route)
    rate = None if limits.connections_per_s is None else AcceptRate(limits.connections_per_s)
    listener = Listener(
        worker,
        options,
        shared,
        policy,
        Entrance(worker.loop, options, security.tls),
        upstreams,
        authentication_timeout_s=limits.authentication_timeout_s,
        rate=rate,
        path=path,
    )
    assembled = Assembled(listener, _upstream_watch(worker, way, route, circuits, listener))
    if any(security.followed()):
        assembled.beside.append(security.follow)
    if options.gateway is not None and brokers is not None and way.can_ask:
        refresh_s = options.gateway.metadata_refresh_s
        watch = ClusterWatch(worker.loop, options.name, way, route, brokers, refresh_s)
        upstreams.brokers_known = watch.answered
        assembled.beside.append(watch.run)
    return assembled


def _upstream_watch(
    worker: Worker, way: Upstream, route: Route, circuits: Circuits, listener: Listener
) -> UpstreamWatch:
    def sessions() -> list[Session]:
        return [connection.session for connection in listener.connections]

    return UpstreamWatch(worker.loop, listener.name, way, route, circuits, sessions)


def policy_of(config: Config, options: ListenerOptions, costs: CostTables) -> SessionPolicy:
    """What the sessions of a listener are told. `costs`: of requests to its broker."""
    pacing = config.pacing
    window_s = pacing.window_size_s if pacing.mode == "kafka" else 1
    return SessionPolicy(
        delays=DelayLimits(
            answer_budget_ms=pacing.answer_budget_s * 1000.0,
            patience_s=pacing.client_patience,
            group_max_ms=pacing.group_delay_max_s * 1000.0,
            fetch_default_ms=pacing.fetch_delay_default_s * 1000.0,
            share_fetch_max_ms=pacing.share_fetch_delay_max_s * 1000.0,
            request_max_ms=window_s * 1000.0,
            written_fetch_throttle_max_ms=pacing.written_fetch_throttle_max_s * 1000.0,
        ),
        max_frame_bytes=config.limits.max_frame_bytes,
        max_frame_bytes_before_authentication=config.limits.max_frame_bytes_before_authentication,
        authentication_required=options.has_sasl,
        takes_logins=options.takes_logins,
        pass_unknown_apis=config.unknown_apis == "pass",
        oauthbearer_principal_claim=config.sasl.oauthbearer_principal_claim,
        inter_broker=_inter_broker(config, options),
        quota_api=QuotaApi(frozenset(config.quotas.admins))
        if config.quotas.source != "passthrough"
        else None,
        request_costs=costs.tls if options.upstream_has_tls else costs.plain,
    )


def _inter_broker(config: Config, options: ListenerOptions) -> InterBroker:
    """What a listener takes for a broker's: as is declared, there or in `replication`."""
    declared, replication = config.inter_broker, config.replication
    listeners = set() if declared is None else set(declared.listeners)
    users = set() if declared is None else set(declared.users)
    if replication is not None:
        users.update(replication.users)
        if not replication.users:
            listeners.add(replication.listener)
    return InterBroker(options.name in listeners, frozenset(users) if options.authenticates else frozenset())


def producer_id_file(config: Config) -> ProducerIdFile | None:
    """The one that is named. Raises ConfigError if it could not be written."""
    path = config.producer_ids.snapshot_file
    return None if path is None else ProducerIdFile(path, scope_of(config.listeners))


def watch_rules(limits: LimitsOptions) -> WatchRules:
    """When a connection ends in which nothing moves."""
    return WatchRules(
        WatchTimeouts(
            authentication_s=limits.authentication_timeout_s,
            slow_frame_s=limits.slow_frame_timeout_s,
            stopped_s=limits.stopped_timeout_s,
            idle_s=limits.idle_timeout_s,
        )
    )


def connection_rates(
    pacing: PacingOptions, quotas: QuotaManager, limits: ConnectionLimits, gauges: Gauges
) -> ConnectionRates:
    """How fast addresses may connect, to all listeners together."""
    return ConnectionRates(
        quotas,
        limits.address_key,
        gauges.over_rate,
        delay_max_ms=(pacing.window_size_s if pacing.mode == "kafka" else 1) * 1000.0,
        forget_ms=max(pacing.burst_s, pacing.window_num * pacing.window_size_s) * 1000.0,
    )


def _broker_map(options: ListenerOptions, gateway: GatewayOptions) -> BrokerMap:
    return BrokerMap(
        gateway.advertised_host or "",
        gateway.first_broker_port or 0,
        gateway.first_broker_id,
        gateway.max_brokers,
        bind_port=gateway.advertised_port or options.bind_port,
        sni_domain=gateway.sni_domain,
        bootstrap_upstreams=map(host_and_port, gateway.bootstrap_upstreams),
    )
