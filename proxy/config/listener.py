"""The options of a listener: where clients connect, what is behind it, and the security of both sides."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from sluice.proxy.config.options import (
    NO_BLANK,
    NO_BOOL,
    Address,
    BindPort,
    File,
    Host,
    Network,
    Options,
    Port,
    Text,
)

SecurityProtocol = Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"]
_SASL: Final = {"SASL_PLAINTEXT", "SASL_SSL"}
_TLS: Final = {"SSL", "SASL_SSL"}


class TlsOptions(Options):
    """TLS towards clients: it ends at the proxy. Files that change are taken for new connections."""

    certificate_file: File = Field(description="PEM: the proxy's certificate, then its intermediate CAs.")
    key_file: File = Field(description="PEM: the private key of that certificate.")
    key_password_file: File | None = Field(
        default=None, description="Holds the private key's password, if it has one."
    )
    client_ca_file: File | None = Field(
        default=None, description="PEM: CAs that client certificates are checked against."
    )
    client_auth: Literal["none", "requested", "required"] = Field(
        default="none", description="Whether clients show a certificate (Kafka: ssl.client.auth)."
    )
    principal_mapping_rules: Text = Field(
        default="DEFAULT",
        description="Distinguished name → principal, as Kafka's ssl.principal.mapping.rules.",
    )
    min_version: Literal["TLSv1.2", "TLSv1.3"] = Field(
        default="TLSv1.2", description="Oldest version accepted; ciphers are OpenSSL's choice."
    )
    reload_interval_s: Annotated[float, Field(ge=0.05, le=3600), NO_BOOL] = Field(
        default=10.0, description="How often these files are looked at for changes."
    )


class UpstreamTlsOptions(Options):
    """TLS towards the broker."""

    ca_file: File | None = Field(
        default=None,
        description="PEM: CAs that the broker's certificate is checked against; else the system's.",
    )
    certificate_file: File | None = Field(
        default=None, description="PEM: a client certificate that the proxy shows to the broker."
    )
    key_file: File | None = Field(default=None, description="PEM: the private key of that certificate.")
    server_name: Host | None = Field(
        default=None, description="Name that the broker's certificate must have; else upstream_host."
    )
    verify_hostname: bool = Field(
        default=True, description="false: any name in the broker's certificate will do."
    )


class UpstreamSaslOptions(Options):
    """How the proxy logs in to the broker, where clients do not do so themselves."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        description="The mechanism."
    )
    credentials_file: File = Field(
        description="YAML: `users:` with credentials for each principal, or `service:` with one for all."
    )


class GatewayOptions(Options):
    """Mode gateway: one bootstrap address, and an address of the proxy for every broker behind it."""

    bootstrap_upstreams: Annotated[tuple[Address, ...], Field(min_length=1)] = Field(
        description="Brokers (host:port) to begin with; the next is tried when one cannot be reached."
    )
    advertised_host: Host | None = Field(
        default=None,
        description="Host that clients are told for every broker; required without sni_domain.",
    )
    first_broker_port: Port | None = Field(
        default=None,
        description="Port of the broker first_broker_id; broker id i has first_broker_port + (i − "
        "first_broker_id), so that it stays the same over restarts. Required without sni_domain.",
    )
    first_broker_id: Annotated[int, Field(ge=0, le=2**31 - 1), NO_BOOL] = Field(
        default=0, description="Lowest broker id."
    )
    max_brokers: Annotated[int, Field(ge=1, le=10_000), NO_BOOL] = Field(
        default=32,
        description="How many broker ids have a port. All are bound at the start; one whose broker is not "
        "known yet leads to a bootstrap upstream.",
    )
    sni_domain: Host | None = Field(
        default=None,
        description="Instead of a port for each broker one TLS port (bind_port): clients are told "
        "broker-<id>.<sni_domain>, which DNS must lead to the proxy.",
    )
    advertised_port: Port | None = Field(
        default=None, description="With sni_domain: the port that clients are told, if it is not bind_port."
    )
    metadata_refresh_s: Annotated[float, Field(ge=0.1, le=3600), NO_BOOL] = Field(
        default=30.0,
        description="How often the proxy asks for the brokers itself; what passes by teaches it too.",
    )


class ListenerOptions(Options):
    """One port that clients connect to, and the broker (or, in mode gateway, the cluster) behind it."""

    name: Annotated[str, Field(max_length=63), NO_BLANK] = Field(
        description="Names the listener in logs; unique."
    )
    bind_host: Host = Field(
        default="0.0.0.0", description="Address to listen on; `::` listens on IPv6 and IPv4."
    )
    bind_port: BindPort = Field(description="Port to listen on; 0 lets the system choose one.")
    upstream_host: Host | None = Field(
        default=None, description="Mode broker: host name or address of the broker behind this listener."
    )
    upstream_port: Port | None = Field(
        default=None, description="Mode broker: port of the broker behind this listener."
    )
    gateway: GatewayOptions | None = Field(
        default=None, description="Mode gateway: the cluster behind this listener."
    )
    security_protocol: SecurityProtocol = Field(
        default="PLAINTEXT",
        description="Towards clients. With SASL the principal is observed as clients authenticate with the "
        "broker; with SSL it is the certificate's; without either everybody is User:ANONYMOUS.",
    )
    tls: TlsOptions | None = Field(default=None, description="For SSL and SASL_SSL.")
    proxy_protocol_from: tuple[Network, ...] = Field(
        default=(),
        description="Networks whose connections begin with a PROXY protocol v2 header that tells the "
        "client's address; from others none is read.",
    )
    upstream_security_protocol: SecurityProtocol | None = Field(
        default=None,
        description="Towards the broker; if left out SASL_PLAINTEXT where clients use SASL, else PLAINTEXT.",
    )
    upstream_tls: UpstreamTlsOptions | None = Field(
        default=None, description="For an upstream_security_protocol of SSL or SASL_SSL."
    )
    upstream_sasl: UpstreamSaslOptions | None = Field(
        default=None,
        description="The proxy's own login, for an upstream_security_protocol with SASL where clients do not "
        "log in themselves; in mode gateway also for asking for the brokers.",
    )
    upstream_proxy_protocol: bool = Field(
        default=False, description="Begin connections to the broker with a PROXY protocol v2 header."
    )
    accept_shared_upstream_identity: bool = Field(
        default=False,
        description="true: that the broker sees one identity, the proxy's, whoever the client is, is meant: "
        "its ACLs cannot tell clients apart.",
    )

    @property
    def has_tls(self) -> bool:
        """Whether clients speak TLS to it."""
        return self.security_protocol in _TLS

    @property
    def has_sasl(self) -> bool:
        """Clients log in with SASL, at the broker."""
        return self.security_protocol in _SASL

    @property
    def upstream_protocol(self) -> str:
        """The security protocol towards the broker."""
        return self.upstream_security_protocol or ("SASL_PLAINTEXT" if self.has_sasl else "PLAINTEXT")

    @property
    def upstream_has_tls(self) -> bool:
        """The broker speaks TLS."""
        return self.upstream_protocol in _TLS

    @property
    def upstream_identity(self) -> Hashable:
        """Equal for listeners that a broker takes for the same, and that check it alike, before a login."""
        tls = (self.upstream_tls or UpstreamTlsOptions()) if self.upstream_has_tls else None
        return tls, self.upstream_proxy_protocol

    @property
    def authenticates(self) -> bool:
        """A client may have a principal of its own: by SASL, or by a certificate."""
        return self.has_sasl or (self.tls is not None and self.tls.client_auth != "none")

    @property
    def upstream_has_sasl(self) -> bool:
        """The broker wants a login."""
        return self.upstream_protocol in _SASL

    @property
    def logs_in(self) -> bool:
        """The proxy logs in to the broker for its clients."""
        return self.upstream_has_sasl and not self.has_sasl

    @property
    def takes_logins(self) -> bool:
        """A client's own login may pass to the broker: nothing else says who he is, neither a certificate nor
        a login of the proxy's for him."""
        return self.has_sasl or not (self.logs_in or self.authenticates)

    @property
    def broker_ports(self) -> range:
        """A gateway's ports, one for each broker, in the order of the brokers' ids; else empty."""
        gateway = self.gateway
        if gateway is None or gateway.sni_domain is not None or gateway.first_broker_port is None:
            return range(0)
        return range(gateway.first_broker_port, gateway.first_broker_port + gateway.max_brokers)

    @property
    def upstream(self) -> str:
        """What is behind it, for people."""
        if self.gateway is not None:
            return ", ".join(self.gateway.bootstrap_upstreams)
        return f"{self.upstream_host}:{self.upstream_port}"


def contradictions(listener: ListenerOptions, mode: str) -> Iterator[tuple[str, str]]:
    """What is fine by itself but not together: (key to change, what is wrong and the remedy)."""
    yield from _place(listener, mode)
    yield from _client_tls(listener)
    yield from _login(listener)
    yield from _upstream_tls(listener)
    yield from _upstream_identity(listener)


def _place(listener: ListenerOptions, mode: str) -> Iterator[tuple[str, str]]:
    gateway = listener.gateway
    if mode == "broker":
        if gateway is not None:
            yield "gateway", "is for mode gateway; set mode: gateway, or give upstream_host and upstream_port"
        for key in ("upstream_host", "upstream_port"):
            if getattr(listener, key) is None and gateway is None:
                yield key, f"missing; it is required: {ListenerOptions.model_fields[key].description}"
        return
    for key in ("upstream_host", "upstream_port"):
        if getattr(listener, key) is not None:
            yield key, "is for mode broker; in mode gateway give gateway.bootstrap_upstreams"
    if gateway is None:
        yield "gateway", f"missing; it is required: {ListenerOptions.model_fields['gateway'].description}"
    elif gateway.sni_domain is not None:
        if not listener.has_tls:
            yield "gateway.sni_domain", "only TLS tells which name a client wants; use SSL or SASL_SSL"
    else:
        for key in ("advertised_host", "first_broker_port"):
            if getattr(gateway, key) is None:
                yield f"gateway.{key}", "missing; it is required without sni_domain"
        if gateway.first_broker_port and gateway.first_broker_port + gateway.max_brokers > 65536:
            last = gateway.first_broker_port + gateway.max_brokers - 1
            yield "gateway.max_brokers", f"the last broker's port would be {last}; there is none above 65535"


def _client_tls(listener: ListenerOptions) -> Iterator[tuple[str, str]]:
    tls = listener.tls
    if listener.has_tls and tls is None:
        yield "tls", f"missing; it is required for {listener.security_protocol}"
    if tls is not None and not listener.has_tls:
        yield "tls", f"security_protocol is {listener.security_protocol}; make it SSL or SASL_SSL"
    if tls is not None and (tls.client_auth != "none") != (tls.client_ca_file is not None):
        if tls.client_ca_file is None:
            yield "tls.client_ca_file", f"missing; it is required for client_auth: {tls.client_auth}"
        else:
            yield "tls.client_auth", "is none, so client_ca_file would not be used; make it required"


def _login(listener: ListenerOptions) -> Iterator[tuple[str, str]]:
    """Who logs in at the broker: the clients themselves, or the proxy."""
    if listener.has_sasl and not listener.upstream_has_sasl:
        yield (
            "upstream_security_protocol",
            "clients log in with SASL, and only the broker can say yes; make it SASL_PLAINTEXT or SASL_SSL",
        )
    if listener.logs_in and listener.upstream_sasl is None:
        yield "upstream_sasl", "missing; clients do not log in, so the proxy has to"
    if listener.upstream_sasl is not None:
        if not listener.upstream_has_sasl:
            yield "upstream_sasl", f"upstream_security_protocol is {listener.upstream_protocol}, without SASL"
        elif listener.has_sasl and listener.gateway is None:
            yield "upstream_sasl", "would not be used: clients log in themselves; leave it out"


def _upstream_tls(listener: ListenerOptions) -> Iterator[tuple[str, str]]:
    tls = listener.upstream_tls
    if tls is None:
        return
    if not listener.upstream_has_tls:
        yield (
            "upstream_tls",
            f"upstream_security_protocol is {listener.upstream_protocol}; make it SSL or SASL_SSL",
        )
    if (tls.certificate_file is None) != (tls.key_file is None):
        missing = "key_file" if tls.key_file is None else "certificate_file"
        yield f"upstream_tls.{missing}", "missing; a certificate and its key go together"


def _upstream_identity(listener: ListenerOptions) -> Iterator[tuple[str, str]]:
    """Credentials for each principal are in a file: looked at when that is loaded (listener/security.py)."""
    if listener.has_sasl or listener.accept_shared_upstream_identity or listener.upstream_sasl is not None:
        return
    has_certificate = listener.upstream_tls is not None and listener.upstream_tls.certificate_file is not None
    if has_certificate or (listener.tls is not None and listener.tls.client_auth != "none"):
        yield (
            "accept_shared_upstream_identity",
            "the broker would see one identity whoever the client is, so that its ACLs cannot tell clients "
            "apart; give upstream_sasl with credentials for each user, or say true here",
        )
