"""The section `quotas` of the configuration: where limits come from, who may ask for and change them.

docs/quota-store.md explains the sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from sluice.proxy.config.listener import SecurityProtocol, UpstreamTlsOptions
from sluice.proxy.config.options import NO_BLANK, NO_BOOL, Address, File, Options, Text
from sluice.quotas.entity import ANONYMOUS
from sluice.quotas.files.config_error import ConfigError, Problem, why_not_user


class QuotaTopicSaslOptions(Options):
    """The proxy's own login at the brokers in `bootstrap`."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(description="The mechanism.")
    credentials_file: File = Field(description="YAML: `service:` with username and password.")


class TopicOptions(Options):
    """A topic of the proxy's own, and the way to it."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$"), NO_BLANK]
    bootstrap: Annotated[tuple[Address, ...], Field(min_length=1)] = Field(
        description="Brokers (host:port) by a listener of theirs that is not behind a proxy."
    )
    replication_factor: Annotated[int, Field(ge=-1, le=32_767), NO_BOOL] = Field(
        default=-1,
        description="Of the topic when it is made; −1: the brokers' default.replication.factor.",
    )
    security_protocol: SecurityProtocol = Field(
        default="PLAINTEXT", description="Towards the brokers in `bootstrap`."
    )
    tls: UpstreamTlsOptions | None = Field(default=None, description="For SSL and SASL_SSL.")
    sasl: QuotaTopicSaslOptions | None = Field(
        default=None, description="For SASL_PLAINTEXT and SASL_SSL: the proxy's own login."
    )
    request_timeout_s: Annotated[float, Field(ge=1, le=300), NO_BOOL] = Field(
        default=10.0, description="Longest wait for an answer of the topic's brokers."
    )

    @property
    def has_tls(self) -> bool:
        """The brokers speak TLS."""
        return self.security_protocol in {"SSL", "SASL_SSL"}

    @property
    def has_sasl(self) -> bool:
        """The brokers want a login."""
        return self.security_protocol in {"SASL_PLAINTEXT", "SASL_SSL"}


class QuotaTopicOptions(TopicOptions):
    """The compacted topic that holds the limits of all proxies, and the way to it."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$"), NO_BLANK] = Field(
        default="__sluice_quotas",
        description="The topic; made if it is missing: one partition, compacted.",
    )
    request_timeout_s: Annotated[float, Field(ge=1, le=300), NO_BOOL] = Field(
        default=10.0,
        description="Longest wait for the topic's brokers, also of who alters a quota through the proxy.",
    )
    copy_file: File | None = Field(
        default=None,
        description="Where the limits are kept for a start at which the topic cannot be read; if left out, "
        "the proxy then waits for the topic. One file for one process.",
    )


class QuotaOptions(Options):
    """Where the quotas come from."""

    source: Literal["file", "topic", "passthrough"] = Field(
        default="file",
        description="file: the quota file; topic: a Kafka topic that all proxies follow, changed through "
        "Kafka's API; passthrough: the file, while Kafka's API manages the cluster's own quotas.",
    )
    file: File | None = Field(
        default=None,
        description="The quota file; a relative path in the configuration file is relative to that file's "
        "folder, in the environment to the working directory. Required unless source is topic; there it may "
        "hold what Kafka's API cannot: exempt rules, tenants, client-id prefixes.",
    )
    topic: QuotaTopicOptions | None = Field(
        default=None, description="The quota topic; required where source is topic."
    )
    admins: tuple[Text, ...] = Field(
        default=(),
        description="Principals (without `User:`) who may describe and alter quotas through Kafka's API, and "
        "read and write the quota topic through the proxy. Of no meaning with passthrough.",
    )
    reload_interval_s: Annotated[float, Field(ge=0.05, le=3600), NO_BOOL] = Field(
        default=1.0,
        description="How often the quota file is looked at for changes; on a disk of the machine, of which "
        "the kernel tells, at most so often.",
    )

    warning_share: Annotated[float, Field(ge=0, le=1), NO_BOOL] = Field(
        default=0.8,
        description="Share of a limit at which a warning is logged and counted, before anything is delayed "
        "(sluice_quota_warning); 0: never.",
    )

    def named_file(self) -> Path:
        """The quota file. Raises ConfigError if none is named."""
        if self.file is None:
            raise ConfigError([Problem("missing; the limits come from a topic", path="quotas.file")])
        return self.file


def quota_contradictions(
    options: QuotaOptions, *, authenticates: bool
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is fine by itself but not together: (path of the key to change, what is wrong and the remedy).

    `authenticates`: some listener does, so that clients may have principals.
    """
    for index, admin in enumerate(options.admins):
        if (reason := why_not_user(admin)) is not None:
            yield ("quotas", "admins", index), reason
        elif not authenticates and admin != ANONYMOUS:
            yield (
                ("quotas", "admins", index),
                f"no listener authenticates, so that everybody is {ANONYMOUS} and nobody {admin!r}",
            )
    if options.source != "topic":
        if options.file is None:
            yield ("quotas", "file"), "missing; it is required: the quota file"
        if options.topic is not None:
            yield (
                ("quotas", "topic"),
                f"is for source: topic, and would not be used; source is {options.source}",
            )
        return
    topic = options.topic
    if topic is None:
        yield ("quotas", "topic"), "missing; it is required for source: topic"
        return
    if topic.tls is not None and not topic.has_tls:
        yield (
            ("quotas", "topic", "tls"),
            f"security_protocol is {topic.security_protocol}; make it SSL or SASL_SSL",
        )
    if topic.tls is not None and topic.tls.server_name is not None:
        yield (
            ("quotas", "topic", "tls", "server_name"),
            "cannot be told here: the certificate must be for the host that is dialled",
        )
    if topic.has_sasl != (topic.sasl is not None):
        message = (
            f"missing; it is required for {topic.security_protocol}"
            if topic.sasl is None
            else f"security_protocol is {topic.security_protocol}, without SASL"
        )
        yield ("quotas", "topic", "sasl"), message
