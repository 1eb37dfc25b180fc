"""Kafka's sensors and metrics beside ours, for docs/metrics.md.

The broker's names are those of ClientQuotaManager, ConnectionQuotas and ReplicationQuotaManager (4.3.1).
"""

from __future__ import annotations

from typing import Final

_INTRO: Final = """\
## Kafka's sensors and metrics, and ours

`<entity>` is `user:client-id`. A sensor of the broker expires after 3,600 s without use; so does a bucket
here, once its debt is paid.

| Kafka's sensor | its metric | ours |
|---|---|---|
"""
_ROWS: Final = (
    (
        "`Produce-<entity>`, `Fetch-<entity>`",
        "`kafka.server:type=Produce`, `Fetch`: `byte-rate`",
        "`sluice_quota_bytes_total`",
    ),
    (
        "`ProduceThrottleTime-<entity>`, `FetchThrottleTime-<entity>`",
        "`throttle-time` of the same",
        "`sluice_throttle_time_seconds`, `sluice_throttled_seconds_total`",
    ),
    (
        "`Produce-delayQueue`, `Fetch-delayQueue`, `Request-delayQueue`, `ControllerMutation-delayQueue`",
        "`queue-size` of the type",
        "`sluice_delay_queue_size`",
    ),
    (
        "`Request-<entity>`",
        "`kafka.server:type=Request`: `request-time`",
        "`sluice_request_time_seconds_total`",
    ),
    (
        "`RequestThrottleTime-<entity>`",
        "its `throttle-time`",
        '`sluice_throttle_time_seconds{quota="request"}`',
    ),
    (
        "`exempt-Request`",
        "its `exempt-request-time`",
        "`sluice_exempt_request_time_seconds_total`",
    ),
    (
        "`ControllerMutation-<entity>`",
        "`kafka.server:type=ControllerMutation`: `mutation-rate`, `tokens`",
        "`sluice_controller_mutations_total`; tokens: `/metrics/kafka`",
    ),
    (
        "`ControllerMutationThrottleTime-<entity>`",
        "its `throttle-time`",
        '`sluice_throttle_time_seconds{quota="controller_mutation"}`',
    ),
    (
        "`LeaderReplication`, `FollowerReplication`",
        "`byte-rate`",
        "`sluice_replication_throttled_bytes_total`",
    ),
    (
        "`AlterLogDirsReplication`",
        "`byte-rate`",
        "none: a move between folders of one broker crosses no network",
    ),
    (
        "`Connection-Accept-Rate`, `Connection-Accept-Rate-<listener>`, `Connection-Accept-Rate-<ip>`",
        "`socket-server-metrics`: `broker-connection-accept-rate`, `connection-accept-rate`",
        "`sluice_connections_opened_total`, `sluice_connections_over_rate_total`",
    ),
    (
        "`ConnectionRateThrottleTime-<listener>`, `ip-ConnectionRateThrottleTime-<listener>`",
        "`connection-accept-throttle-time`, `ip-connection-accept-throttle-time`",
        "`sluice_accepts_delayed_total`; "
        'an address over its rate: `sluice_disconnects_total{cause="connection_creation_rate"}`',
    ),
    (
        "`ProducerIds…` (KIP-936; in no broker)",
        "`rate`, `tokens`, `throttle-time`",
        "`sluice_producer_ids_new_total`, `sluice_producer_ids_tokens`, "
        "`sluice_producer_ids_throttle_time_seconds_total`",
    ),
    (
        "(client) `produce-throttle-time`, `fetch-throttle-time`",
        "`produce-throttle-time-avg`, `-max`, `fetch-throttle-time-avg`, `-max`",
        "the client's own; fed by the `throttle_time_ms` that Sluice writes",
    ),
)


def sensors() -> list[str]:
    """The lines of the section about sensors."""
    return ["", *_INTRO.rstrip("\n").split("\n"), *(f"| {' | '.join(row)} |" for row in _ROWS)]
