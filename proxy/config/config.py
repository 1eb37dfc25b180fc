"""Every option of `sluice run`: its name (with its unit), default, bounds and one line of documentation.

Frozen values, checked when built; reading them from a file and the environment is file.py's work.
docs/configuration.md and docs/config.schema.json are generated from this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from sluice.proxy.config.access_log import AccessLogOptions, access_log_contradictions
from sluice.proxy.config.admin import AdminOptions, admin_contradictions
from sluice.proxy.config.inter_broker import InterBrokerOptions, inter_broker_contradictions
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.listener import ListenerOptions, contradictions
from sluice.proxy.config.log import LogOptions
from sluice.proxy.config.mutations import MutationOptions
from sluice.proxy.config.options import NO_BOOL, Options, Text
from sluice.proxy.config.pacing import PacingOptions
from sluice.proxy.config.ports import port_contradictions
from sluice.proxy.config.producer_ids import ProducerIdOptions
from sluice.proxy.config.quotas import QuotaOptions, quota_contradictions
from sluice.proxy.config.replication import ReplicationOptions, replication_contradictions
from sluice.proxy.config.request_time import RequestTimeOptions
from sluice.quotas.files.yaml_lines import dotted


class UpstreamOptions(Options):
    """The way to the broker."""

    dial_timeout_s: Annotated[float, Field(gt=0, le=300), NO_BOOL] = Field(
        default=5.0,
        description="Longest wait of one try for a connection to the broker, and for a login there; a "
        "connection that is not taken in time is tried again. All addresses of a broker's name share it.",
    )
    dial_total_s: Annotated[float, Field(gt=0, le=300), NO_BOOL] = Field(
        default=20.0,
        description="Longest that a client waits for its connection to the broker, over all tries (64 of one "
        "broker at a time, the others in turn); then its own is closed. At least dial_timeout_s.",
    )


class DrainOptions(Options):
    """What SIGTERM starts: stop accepting, answer what is in flight, close."""

    deadline_s: Annotated[float, Field(ge=0, le=3600), NO_BOOL] = Field(
        default=25.0,
        description="Longest wait for answers in flight; keep it below the pod's "
        "terminationGracePeriodSeconds (30).",
    )


class SaslOptions(Options):
    """How a principal is read from what clients tell the broker."""

    oauthbearer_principal_claim: Text = Field(
        default="sub",
        description="Claim of an OAUTHBEARER token that names the user "
        "(Kafka: sasl.oauthbearer.sub.claim.name).",
    )


class MetricsOptions(Options):
    """What /metrics tells, and its bounds."""

    kafka_page: bool = Field(
        default=False,
        description="Whether there is a second page, /metrics/kafka, with the names that a broker's quotas "
        "have in jmx_exporter (docs/metrics.md).",
    )
    max_series: Annotated[int, Field(ge=100, le=1_000_000), NO_BOOL] = Field(
        default=10_000,
        description="Series with user and client_id labels at most; what is beyond is counted as `other`.",
    )
    max_users: Annotated[int, Field(ge=0, le=100_000), NO_BOOL] = Field(
        default=100,
        description="Users under `<default>`, which no quota names, that are labels of their own: while "
        "there is room each that a limit counts, then the most delayed; the others are counted as `other`.",
    )


class Config(Options):
    """The whole configuration of one proxy process."""

    mode: Literal["broker", "gateway"] = Field(
        default="broker",
        description="broker: a sidecar in the broker's pod, the broker's advertised listener is the proxy; "
        "gateway: in front of a whole cluster, whose addresses are rewritten.",
    )
    listeners: tuple[ListenerOptions, ...] = Field(
        min_length=1, description="At least one port and its broker."
    )
    quotas: QuotaOptions = Field(description="Where the quotas come from.")
    limits: LimitsOptions = Field(
        default=LimitsOptions(), description="Bounds on what a client can make the proxy keep."
    )
    pacing: PacingOptions = Field(
        default=PacingOptions(), description="How a principal over its quota is slowed down."
    )
    producer_ids: ProducerIdOptions = Field(
        default=ProducerIdOptions(), description="How new producer ids are told and limited."
    )
    controller_mutations: MutationOptions = Field(
        default=MutationOptions(), description="How partitions created and deleted are counted."
    )
    request_time: RequestTimeOptions = Field(
        default=RequestTimeOptions(), description="What requests cost the broker's threads."
    )
    unknown_apis: Literal["pass", "close"] = Field(
        default="pass",
        description="pass: a request whose API this proxy does not know goes through unmetered; close: it "
        "ends the connection.",
    )
    pump: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Whether the compiled data path takes what is most of the traffic. auto: where it is "
        "built; on: the start fails where it is not; off: Python alone, which does the same and needs more "
        "processor time (`sluice version` and sluice_pump_info tell which there is and which runs).",
    )
    upstream: UpstreamOptions = Field(default=UpstreamOptions(), description="The way to the broker.")
    drain: DrainOptions = Field(default=DrainOptions(), description="What SIGTERM starts.")
    admin: AdminOptions = Field(default=AdminOptions(), description="The port of metrics and health.")
    log: LogOptions = Field(default=LogOptions(), description="Structured logs on standard error.")
    sasl: SaslOptions = Field(
        default=SaslOptions(), description="How a principal is read from what clients tell the broker."
    )
    metrics: MetricsOptions = Field(
        default=MetricsOptions(), description="What /metrics tells, and its bounds."
    )
    access_log: AccessLogOptions | None = Field(
        default=None, description="The access log; if left out there is none."
    )

    replication: ReplicationOptions | None = Field(
        default=None, description="Replication throttles; if left out Sluice keeps none."
    )

    inter_broker: InterBrokerOptions | None = Field(
        default=None, description="Who is a broker; if left out followers are charged as clients."
    )

    @model_validator(mode="after")
    def _check_across_options(self) -> Config:
        contradictions = list(_contradictions(self))
        if contradictions:
            text = "; ".join(message for _, message in contradictions)
            raise PydanticCustomError(
                "contradictions", "{text}", {"text": text, "contradictions": contradictions}
            )
        return self


LIVE_OPTIONS: Final = frozenset(
    {
        "drain.deadline_s",
        "limits.authentication_timeout_s",
        "limits.idle_timeout_s",
        "limits.max_connections",
        "limits.max_connections_per_ip",
        "limits.max_connections_per_user",
        "limits.max_frame_bytes",
        "limits.max_frame_bytes_before_authentication",
        "limits.max_unauthenticated_connections",
        "limits.slow_frame_timeout_s",
        "limits.stopped_timeout_s",
        "limits.unauthenticated_cpu_share",
        "limits.unfinished_bytes_per_user",
        "log.level",
        "pacing.answer_budget_s",
        "pacing.client_patience",
        "pacing.fetch_delay_default_s",
        "pacing.group_delay_max_s",
        "pacing.share_fetch_delay_max_s",
        "pacing.written_fetch_throttle_max_s",
        "quotas.warning_share",
        "sasl.oauthbearer_principal_claim",
        "unknown_apis",
    }
)
"""Options whose change in the file is put in force while traffic flows; for new connections, where it is a
connection that is told. Quotas, certificates and credentials are files of their own, and followed too."""


def contradictions_of(config: Config) -> list[str]:
    """Why these options cannot be together, each with its key; empty: they can. For a configuration that was
    put together of others, which is not checked when it is built."""
    return [f"{dotted(path)}: {message}" for path, message in _contradictions(config)]


def _contradictions(config: Config) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is fine by itself but not together: (path of the key to change, what is wrong and the remedy)."""
    names: set[str] = set()
    for index, listener in enumerate(config.listeners):
        at: tuple[str | int, ...] = ("listeners", index)
        if listener.name in names:
            yield (*at, "name"), f"{listener.name!r} names an earlier listener too; names must be unique"
        names.add(listener.name)
        for key, message in contradictions(listener, config.mode):
            yield (*at, *key.split(".")), message
    yield from port_contradictions(config.listeners, config.admin, config.quotas)
    yield from admin_contradictions(config.admin)
    listeners = {listener.name: listener.authenticates for listener in config.listeners}
    has_file = config.quotas.file is not None
    yield from replication_contradictions(config.replication, config.mode, listeners, has_quota_file=has_file)
    authenticates = any(listeners.values())
    yield from quota_contradictions(config.quotas, authenticates=authenticates)
    yield from inter_broker_contradictions(config.inter_broker, config.mode, list(listeners), authenticates)
    yield from access_log_contradictions(config.access_log)
    limits, pacing = config.limits, config.pacing
    if limits.max_frame_bytes_before_authentication > limits.max_frame_bytes:
        yield (
            ("limits", "max_frame_bytes_before_authentication"),
            f"must be at most max_frame_bytes ({limits.max_frame_bytes}), "
            f"is {limits.max_frame_bytes_before_authentication}",
        )
    if 2 * limits.max_buffered_bytes_per_user > limits.max_buffered_bytes:
        yield (
            ("limits", "max_buffered_bytes_per_user"),
            f"must be at most half of max_buffered_bytes ({limits.max_buffered_bytes}), or one user could "
            f"use up all; is {limits.max_buffered_bytes_per_user}",
        )
    if pacing.max_debt_s < pacing.answer_budget_s:
        yield (
            ("pacing", "max_debt_s"),
            f"must be at least answer_budget_s ({pacing.answer_budget_s:g}), or requests would go before "
            f"their turn; is {pacing.max_debt_s:g}",
        )
