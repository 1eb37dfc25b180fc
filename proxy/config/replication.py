"""The section `replication` of the configuration: followers behind a listener (docs/replication.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from sluice.proxy.config.listener import SecurityProtocol, UpstreamTlsOptions
from sluice.proxy.config.options import NO_BOOL, Address, Options, Text
from sluice.proxy.config.quotas import QuotaTopicOptions, QuotaTopicSaslOptions
from sluice.quotas.entity import ANONYMOUS
from sluice.quotas.files.config_error import why_not_user


class ReplicationOptions(Options):
    """Replication throttles (KIP-73): followers that catch up are held to the cluster's own settings, evenly.

    Rates and replicas are followed live, by default from the brokers' and topics' dynamic configs.
    """

    source: Literal["cluster", "quotas"] = Field(
        default="cluster",
        description="cluster: the brokers' and topics' dynamic configs, so that Kafka's tools set them; "
        "quotas: the section `replication` of the quota file, while the brokers have no throttle.",
    )
    listener: Text = Field(
        description="The name of the listener that followers come through; its broker is the leader."
    )
    leader_id: Annotated[int, Field(ge=0, le=2**31 - 1), NO_BOOL] = Field(
        description="The id of the broker behind that listener."
    )
    bootstrap: Annotated[tuple[Address, ...], Field(min_length=1)] = Field(
        description="Brokers (host:port) that are asked for the settings, by a listener that is not behind a "
        "proxy. The login may describe the cluster's brokers and topics."
    )
    security_protocol: SecurityProtocol = Field(
        default="PLAINTEXT", description="Towards the brokers in `bootstrap`."
    )
    tls: UpstreamTlsOptions | None = Field(default=None, description="For SSL and SASL_SSL.")
    sasl: QuotaTopicSaslOptions | None = Field(
        default=None, description="For SASL_PLAINTEXT and SASL_SSL: the proxy's own login."
    )
    request_timeout_s: Annotated[float, Field(ge=1, le=300), NO_BOOL] = Field(
        default=10.0, description="Longest wait for an answer of theirs."
    )
    refresh_interval_s: Annotated[float, Field(ge=0.1, le=3600), NO_BOOL] = Field(
        default=2.0, description="How often they are asked; a changed throttle is in force after so long."
    )
    users: tuple[Text, ...] = Field(
        default=(),
        description="Principals (without `User:`) that are brokers; if left out, whoever calls itself a "
        "replica is taken for one, and the broker refuses whom it does not know.",
    )
    network_bytes_per_s: Annotated[float, Field(gt=0), NO_BOOL] | None = Field(
        default=None,
        description="What a broker's network carries, for the upper end of KIP-73's safe band; if left out "
        "it is not looked at.",
    )
    window_num: Annotated[int, Field(ge=2, le=1000), NO_BOOL] = Field(
        default=11,
        description="Samples of the rate that the brokers keep (Kafka: replication.quota.window.num).",
    )
    window_size_s: Annotated[int, Field(ge=1, le=3600), NO_BOOL] = Field(
        default=1,
        description="Span of a sample (Kafka: replication.quota.window.size.seconds).",
    )

    def cluster(self) -> QuotaTopicOptions:
        """The way to the brokers, as the clients of the quota topic take it."""
        return QuotaTopicOptions(
            bootstrap=self.bootstrap,
            security_protocol=self.security_protocol,
            tls=self.tls,
            sasl=self.sasl,
            request_timeout_s=self.request_timeout_s,
        )


def replication_contradictions(
    options: ReplicationOptions | None, mode: str, listeners: Mapping[str, bool], *, has_quota_file: bool
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is fine by itself but not together: (path of the key to change, what is wrong and the remedy).

    `listeners`: the name of each → whether it authenticates.
    """
    if options is None:
        return
    if mode != "broker":
        yield ("replication",), "is for mode broker: one proxy before each broker"
    if options.source == "quotas" and not has_quota_file:
        yield ("replication", "source"), "needs a quota file (quotas.file); or make it cluster"
    if options.listener not in listeners:
        names = ", ".join(listeners)
        yield ("replication", "listener"), f"{options.listener!r} is none of the listeners ({names})"
    has_sasl = options.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}
    if has_sasl != (options.sasl is not None):
        yield (
            ("replication", "sasl"),
            f"missing; it is required for {options.security_protocol}"
            if has_sasl
            else f"security_protocol is {options.security_protocol}, without SASL",
        )
    if options.tls is not None and options.security_protocol not in {"SSL", "SASL_SSL"}:
        yield (
            ("replication", "tls"),
            f"security_protocol is {options.security_protocol}; make it SSL or SASL_SSL",
        )
    for index, user in enumerate(options.users):
        at = ("replication", "users", index)
        if (reason := why_not_user(user)) is not None:
            yield at, reason
        elif user == ANONYMOUS:
            yield at, "is whoever did not log in, and so anybody; leave users out instead"
    if options.users and not listeners.get(options.listener, True):
        yield (
            ("replication", "users"),
            f"the listener {options.listener!r} does not authenticate, so that nobody has a principal there",
        )
