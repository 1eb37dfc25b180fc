"""The names of all metrics, in one table: docs/metrics.md comes from it, collector.py exports nothing else.

Prometheus' rules: base units, `_total` on counters, ratios 0–1, no label whose values clients can invent.
`user` and `client_id` are names from the quota file, or `other`; `user` also one of those under `<default>`
that a limit counts (user_names.py); empty where the level does not look at them.
"""

from __future__ import annotations

from typing import Final

from sluice.proxy.metrics.definition import MetricDefinition

_ENTITY: Final = ("quota", "user", "client_id")
_CLIENT: Final = ("user", "client_id")
_USER: Final = ("user",)
_SIDE: Final = ("listener", "side")

_ROWS: Final = (
    MetricDefinition(
        "sluice_quota_bytes_total", "counter", _ENTITY, "bytes",
        "Bytes of Produce requests that went on, each whole when it began to, and of answers to fetches, "
        "also of clients without a limit; not what is held, or was given up while it was.",
    ),
    MetricDefinition(
        "sluice_request_time_seconds_total", "counter", _CLIENT, "seconds",
        "Time of broker threads that request_percentage charged; its rate times 100 is that percentage.",
    ),
    MetricDefinition(
        "sluice_exempt_request_time_seconds_total", "counter", ("reason",), "seconds",
        "Time of broker threads that no limit counts: between brokers (cluster_action: of declared ones, or "
        "by an answer of 16 KiB at most with error codes, none of them 31), or of exempt clients (rule).",
    ),
    MetricDefinition(
        "sluice_unnamed_have_lowest_limit", "gauge", ("quota",), "",
        "1: no limit is configured for users whose name is not known (<delegation-token>, <unknown>), and "
        "so they share the lowest of any user.",
    ),
    MetricDefinition(
        "sluice_followers_total", "counter", ("treated",), "connections",
        "Connections whose Fetches name a replica: exempt, for the section inter_broker (or replication) "
        "says that they are a broker's; or charged as a client's, since nothing does.",
    ),
    MetricDefinition(
        "sluice_controller_mutations_total", "counter", _CLIENT, "partitions",
        "Partitions created and deleted that controller_mutation_rate charged.",
    ),
    MetricDefinition(
        "sluice_quota_limit_bytes_per_second", "gauge", (*_ENTITY, "rule"), "bytes per second",
        "The limit in force, of entities with traffic in the last hour; rule: the level it was found at.",
    ),
    MetricDefinition(
        "sluice_quota_limit_request_ratio", "gauge", (*_CLIENT, "rule"), "ratio",
        "The request_percentage in force, as a share of one broker thread.",
    ),
    MetricDefinition(
        "sluice_quota_limit_controller_mutations_per_second", "gauge", (*_CLIENT, "rule"),
        "partitions per second", "The controller_mutation_rate in force.",
    ),
    MetricDefinition(
        "sluice_quota_utilization_ratio", "gauge", _ENTITY, "ratio",
        "Rate over the last 10 to 20 s, divided by the limit; of the buckets behind `other`, the highest.",
    ),
    MetricDefinition(
        "sluice_quota_warning", "gauge", _ENTITY, "limits",
        "Limits that are nearly used up: 1 from when utilization has stayed at or above quotas.warning_share "
        "for 10 s until it falls below nine tenths of it; behind `other` there may be several.",
    ),
    MetricDefinition(
        "sluice_quota_warnings_total", "counter", _ENTITY, "warnings", "Times that such a warning began."
    ),
    MetricDefinition(
        "sluice_quota_warning_share_ratio", "gauge", (), "ratio",
        "quotas.warning_share, the share of a limit at which a warning begins; 0: there are none.",
    ),
    MetricDefinition(
        "sluice_over_quota_bytes_total", "counter", _ENTITY, "bytes",
        "Bytes that went on and that their limit had not paid for at the end of their request's delay, which "
        "is bounded; each once: as long as a debt lasts, what was forwarded less burst and rate by time.",
    ),
    MetricDefinition(
        "sluice_throttled_requests_total", "counter", _ENTITY, "requests", "Requests delayed by their quota.",
    ),
    MetricDefinition(
        "sluice_throttled_seconds_total", "counter", _ENTITY, "seconds",
        "Delays by quotas, held, muted and told together; delays of several connections add up.",
    ),
    MetricDefinition(
        "sluice_delayed_seconds_total", "counter", _ENTITY, "seconds",
        "Time in which a connection was held, muted or told to wait by this quota, however many at once: "
        "its rate is the share of time, as `sluice top` and the status page tell it of the last minute.",
    ),
    MetricDefinition(
        "sluice_refused_requests_total", "counter", (*_ENTITY, "reason"), "requests",
        "Produce requests refused by a limit with over_budget: refuse, of entities that had any: their turn "
        "did not come in time (over_budget), or an earlier batch of the same producer has not come again "
        "(sequence_gate).",
    ),
    MetricDefinition(
        "sluice_shadow_throttled_requests_total", "counter", _ENTITY, "requests",
        "Requests that a limit in shadow mode would have delayed; of entities that have or had one.",
    ),
    MetricDefinition(
        "sluice_shadow_throttled_seconds_total", "counter", _ENTITY, "seconds",
        "Delays that limits in shadow mode would have made: how much longer one connection would have taken.",
    ),
    MetricDefinition(
        "sluice_throttle_time_seconds", "histogram", ("quota",), "seconds",
        "Delay of each request that was delayed by its quota, held, muted and told together.",
    ),
    MetricDefinition(
        "sluice_delay_queue_size", "gauge", ("quota",), "connections",
        "Connections held or muted now.",
    ),
    MetricDefinition(
        "sluice_quota_forgiven_bytes_total", "counter", ("quota",), "bytes",
        "Debt beyond pacing.max_debt_s that was forgiven.",
    ),
    MetricDefinition(
        "sluice_exempt_bytes_total", "counter", ("quota",), "bytes",
        "Bytes of clients that an exempt rule covers; they are in sluice_quota_bytes_total too.",
    ),
    MetricDefinition(
        "sluice_quota_overflows_total", "counter", (), "look-ups",
        "Look-ups that got a shared overflow bucket: clients brought more names than limits.* allows.",
    ),
    MetricDefinition(
        "sluice_producer_ids_new_total", "counter", _USER, "producer ids",
        "New producer ids that went to the broker; their rate is KIP-936's ProducerIds rate.",
    ),
    MetricDefinition(
        "sluice_producer_ids_resumed_total", "counter", _USER, "producer ids",
        "Those of them that were alive before this process saw them, as far as a request tells.",
    ),
    MetricDefinition(
        "sluice_producer_ids_forced_total", "counter", _USER, "producer ids",
        "Those of them that came beyond the rate because they had waited for long.",
    ),
    MetricDefinition(
        "sluice_producer_ids_over_total", "counter", _USER, "buckets overdrawn",
        "Times that new ids came beyond a limit that is not enforced: shadow mode, exempt.",
    ),
    MetricDefinition(
        "sluice_transactional_ids_new_total", "counter", _USER, "transactional ids",
        "New transactional ids that went to the broker, of users with producer_ids_rate.",
    ),
    MetricDefinition(
        "sluice_transactional_ids_over_total", "counter", _USER, "transactional ids",
        "Those of them that went beyond producer_ids.transactional_ids_per_hour after their wait.",
    ),
    MetricDefinition(
        "sluice_producer_ids_throttle_time_seconds_total", "counter", _USER, "seconds",
        "For which requests with new ids were held; those of several connections add up.",
    ),
    MetricDefinition(
        "sluice_producer_ids_refused_total", "counter", (*_USER, "reason"), "requests",
        "Requests refused: their turn did not come in time (producer_ids_rate), an earlier batch of the same "
        "producer has not come again (sequence_gate), or the user's gates are full (gate_share_full).",
    ),
    MetricDefinition(
        "sluice_producer_ids_limit_per_hour", "gauge", _USER, "producer ids per hour",
        "The limit in force; not of `other`, whose limits may differ.",
    ),
    MetricDefinition(
        "sluice_producer_ids_tokens", "gauge", _USER, "producer ids",
        "New ids that may come at once, less the requests that wait: below 0, throttling applies (KIP-936); "
        "of the users behind `other`, the lowest.",
    ),
    MetricDefinition(
        "sluice_producer_ids_held", "gauge", _USER, "requests",
        "Requests that wait for the turn of their new ids.",
    ),
    MetricDefinition(
        "sluice_producer_ids_gates", "gauge", _USER, "gates",
        "Producers and partitions of which a refused batch must come again first.",
    ),
    MetricDefinition(
        "sluice_producer_ids_store_bytes", "gauge", _USER, "bytes",
        "Estimate of the memory that the known ids take here.",
    ),
    MetricDefinition(
        "sluice_producer_ids_layers", "gauge", _USER, "layers",
        "Layers of known ids, one a sample; of the users behind `other`, the most.",
    ),
    MetricDefinition(
        "sluice_producer_ids_pairs", "gauge", _USER, "pairs",
        "Producer ids times partitions that the broker still remembers, also of users whose limit is gone.",
    ),
    MetricDefinition(
        "sluice_producer_ids_pairs_limit", "gauge", (), "pairs",
        "The ceiling for these pairs, over all users; at it no new id is admitted.",
    ),
    MetricDefinition(
        "sluice_producer_ids_broker_heap_bytes", "gauge", (), "bytes",
        "Estimate of what the broker keeps for these pairs: 270 bytes for each.",
    ),
    MetricDefinition(
        "sluice_producer_ids_snapshots_total", "counter", ("outcome",), "snapshots",
        "What became of the snapshot: at the start restored, absent, refused or unreadable; then written or "
        "failed.",
    ),
    MetricDefinition(
        "sluice_producer_ids_snapshot_timestamp_seconds", "gauge", (), "Unix time in seconds",
        "When the state was taken that the snapshot holds; 0: none was written by this process.",
    ),
    MetricDefinition(
        "sluice_requests_total", "counter", ("api_key",), "requests",
        "Requests finished: answered, or forwarded if they want no answer.",
    ),
    MetricDefinition(
        "sluice_request_size_bytes", "histogram", ("api_key",), "bytes",
        "Size of each request on the wire.",
    ),
    MetricDefinition(
        "sluice_upstream_duration_seconds", "histogram", ("api_key",), "seconds",
        "From forwarding a request to the first byte of the broker's answer.",
    ),
    MetricDefinition(
        "sluice_connections", "gauge", (), "connections",
        "Client connections open now, behind their PROXY header and TLS handshake.",
    ),
    MetricDefinition(
        "sluice_connections_opened_total", "counter", (), "connections",
        "Client connections accepted whose PROXY header and TLS handshake are done; those that end before "
        "are in sluice_disconnects_total alone.",
    ),
    MetricDefinition(
        "sluice_connections_over_rate_total", "counter", ("rule", "shadow"), "connections",
        "Client connections above the connection_creation_rate of their address: of the address itself (ip) "
        "or of all (default_ip); refused, or let in where the limit is in shadow mode (true).",
    ),
    MetricDefinition(
        "sluice_kept_bytes", "gauge", (), "bytes",
        "Bytes kept for clients and brokers that do not take them, and of requests that wait.",
    ),
    MetricDefinition(
        "sluice_disconnects_total", "counter", ("cause",), "connections",
        "Client connections that ended, by cause; also those that limits.* refused (too_many_…).",
    ),
    MetricDefinition(
        "sluice_accepts_delayed_total", "counter", (), "pauses",
        "Times that nobody was accepted for a moment: too many had not authenticated, or had used up their "
        "share of a core; who ended for a newer one: sluice_disconnects_total (too_many_unauthenticated).",
    ),
    MetricDefinition(
        "sluice_unauthenticated_seconds_total", "counter", (), "seconds",
        "Processor time of client connections until they authenticated (without a login: until their first "
        "request); its rate is a share of one core.",
    ),
    MetricDefinition(
        "sluice_unauthenticated_delays_total", "counter", (), "reads",
        "Times that such a connection was not read for a while: limits.unauthenticated_cpu_share was gone.",
    ),
    MetricDefinition(
        "sluice_upstream_circuit_open", "gauge", ("upstream",), "",
        "1: a listener's last dial of this address failed; its clients are refused until a probe succeeds.",
    ),
    MetricDefinition(
        "sluice_upstream_dial_failures_total", "counter", ("upstream",), "dials",
        "Dials of this address that failed, or got no connection in time (those are tried again).",
    ),
    MetricDefinition(
        "sluice_upstream_refused_total", "counter", ("upstream",), "dials",
        "Dials of this address that were not tried because it had failed just before.",
    ),
    MetricDefinition(
        "sluice_upstream_silent", "gauge", ("listener",), "",
        "1: the upstream takes connections, and has answered nothing for 30 s, or ends TLS; not ready.",
    ),
    MetricDefinition(
        "sluice_certificate_not_after_timestamp_seconds", "gauge", _SIDE, "Unix time in seconds",
        "When the certificate in force ends that the proxy shows its clients, or the broker, or its chain's "
        "first; less time() it is what is left.",
    ),
    MetricDefinition(
        "sluice_certificate_not_before_timestamp_seconds", "gauge", _SIDE, "Unix time in seconds",
        "When that one began: from then to its end is its life.",
    ),
    MetricDefinition(
        "sluice_task_restarts_total", "counter", ("task",), "restarts",
        "Times that a task or thread of the proxy's own was begun again after a fault; the log has it.",
    ),
    MetricDefinition(
        "sluice_log_lines_dropped_total", "counter", (), "lines",
        "Lines of the log that are lost: nobody read standard error for 1 MiB of lines, or its disk is full.",
    ),
    MetricDefinition(
        "sluice_config_reloads_total", "counter", ("file", "outcome"), "states of the file",
        "What became of each new state of a file (quotas, configuration, certificates, credentials): "
        "success, unchanged, invalid, unreadable, hanging.",
    ),
    MetricDefinition(
        "sluice_config_refused", "gauge", ("file",), "",
        "1: the newest state of the file cannot be used, and what was last found good stays in force.",
    ),
    MetricDefinition(
        "sluice_config_last_success_timestamp_seconds", "gauge", ("file",), "Unix time in seconds",
        "When the file was last found good; of several, the one for which that is longest ago.",
    ),
    MetricDefinition(
        "sluice_config_generation_info", "info", ("file", "hash"), "",
        "The files in force, by the first 12 digits of their SHA-256 (of secrets: keyed, for this process).",
    ),
    MetricDefinition(
        "sluice_quota_changes_total", "counter", (), "changes",
        "Entities whose limits were changed since the start, by file, topic or administrator.",
    ),
    MetricDefinition(
        "sluice_quota_topic_followed", "gauge", (), "",
        "1: the quota topic has been read to its end and is being followed; 0: it is not, or there is none.",
    ),
    MetricDefinition(
        "sluice_quota_topic_records_skipped_total", "counter", (), "records",
        "Records of the quota topic that are no good; the log names them.",
    ),
    MetricDefinition(
        "sluice_access_log_rows_written_total", "counter", (), "rows",
        "Rows of the access log that are in its sink.",
    ),
    MetricDefinition(
        "sluice_access_log_rows_dropped_total", "counter", ("reason",), "rows",
        "Rows that were lost: by the writer, whose sink was slow or failed (writer), or of single requests "
        "for want of room in their window (window_full).",
    ),
    MetricDefinition(
        "sluice_access_log_rows_lost_by_kill_total", "counter", (), "rows",
        "Rows that an earlier process of this instance had taken and did not write before it was killed.",
    ),
    MetricDefinition(
        "sluice_access_log_rows_pending", "gauge", (), "rows",
        "Rows taken and not yet encoded; of a window that is not yet added up, those that it has at most.",
    ),
    MetricDefinition(
        "sluice_access_log_keys_folded_total", "counter", (), "keys",
        "Times that a client, API class and topic had no row of its own in a window: access_log.max_keys.",
    ),
    MetricDefinition(
        "sluice_access_log_files_written_total", "counter", (), "files",
        "Files of the access log that are in its sink.",
    ),
    MetricDefinition("sluice_access_log_written_bytes_total", "counter", (), "bytes", "Their size."),
    MetricDefinition(
        "sluice_access_log_pending_bytes", "gauge", (), "bytes",
        "Size of the files that wait for the sink, and of those that grow.",
    ),
    MetricDefinition(
        "sluice_access_log_failures_total", "counter", (), "failures",
        "Attempts to write that failed; they are made again.",
    ),
    MetricDefinition(
        "sluice_replication_bytes_total", "counter", ("follower",), "bytes",
        "Records that followers have fetched through the proxy, throttled or not; follower: its broker id.",
    ),
    MetricDefinition(
        "sluice_replication_throttled_bytes_total", "counter", ("side", "broker"), "bytes",
        "Those of throttled partitions, in sync or not, by the broker whose side (leader, follower) it is.",
    ),
    MetricDefinition(
        "sluice_replication_limit_bytes_per_second", "gauge", ("side", "broker"), "bytes per second",
        "The rate that followers are held to here: 0.98 of the cluster's; of a follower this leader's share.",
    ),
    MetricDefinition(
        "sluice_replication_lag_records", "gauge", ("follower",), "records",
        "What the follower has not fetched yet, up to the last high watermarks seen (KIP-73: SumReplicaLag).",
    ),
    MetricDefinition(
        "sluice_replication_waiting_partitions", "gauge", ("follower",), "partitions",
        "Throttled partitions of which the follower is behind.",
    ),
    MetricDefinition(
        "sluice_replication_check_failed", "gauge", ("check",), "",
        "1: the cluster's throttles are not as they should be; the log says why (replication_check): "
        "safe_band, response_max_bytes, left_behind.",
    ),
    MetricDefinition(
        "sluice_replication_sessions", "gauge", (), "sessions",
        "Followers' fetch sessions that are mirrored.",
    ),
    MetricDefinition(
        "sluice_replication_unknown_sessions_total", "counter", (), "fetches",
        "Fetches of sessions that began before the proxy did: answered with error 71; another begins then.",
    ),
    MetricDefinition(
        "sluice_principals_named", "gauge", (), "users",
        "Users under `<default>` that are labels of their own; at metrics.max_users the most delayed.",
    ),
    MetricDefinition(
        "sluice_label_overflow_total", "counter", (), "look-ups",
        "Look-ups counted as `other` because metrics.max_series was reached.",
    ),
    MetricDefinition(
        "sluice_event_loop_lag_seconds", "gauge", (), "seconds",
        "How late the event loop was at most in the last 30 to 60 s, as a timer of 0.1 s saw it: so long "
        "what was due had to wait.",
    ),
    MetricDefinition("sluice_build_info", "info", ("version",), "", "The version that runs."),
    MetricDefinition("sluice_pump_info", "info", ("data_path",), "", "The data path: pump or pure (Python)."),
)  # fmt: skip
METRICS: Final = {row.name: row for row in _ROWS}
"""Besides these, /metrics has `process_*` and `python_*`, by the names of prometheus_client."""
