"""Bounds on what clients can make the proxy keep and do: the section `limits`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from sluice.proxy.config.options import MAX_INT32, NO_BOOL, Options

DEFAULT_CONNECTIONS: Final = 10_000
DEFAULT_CONNECTIONS_PER_USER: Final = 5_000
DEFAULT_UNAUTHENTICATED: Final = 1_000


class LimitsOptions(Options):
    """Bounds on what a client can make the proxy keep and do."""

    yielding: ClassVar[frozenset[str]] = frozenset(
        {"max_connections_per_user", "max_unauthenticated_connections"}
    )

    max_frame_bytes: Annotated[int, Field(ge=1024, le=MAX_INT32), NO_BOOL] = Field(
        default=104_857_600,
        description="Largest request accepted (Kafka: socket.request.max.bytes).",
    )
    max_frame_bytes_before_authentication: Annotated[int, Field(ge=1024, le=MAX_INT32), NO_BOOL] = Field(
        default=524_288,
        description="Largest request accepted on a SASL listener until the broker has said yes.",
    )
    unfinished_bytes_per_user: Annotated[int, Field(ge=0), NO_BOOL] = Field(
        default=16_777_216,
        description="Bytes of acks=0 requests that clients of one user left behind while muted, still "
        "forwarded at the user's quota; beyond it they are dropped and counted.",
    )
    max_client_ids_per_user: Annotated[int, Field(ge=1), NO_BOOL] = Field(
        default=1000,
        description="Client ids of one user that get a bucket of their own under a default-client quota; "
        "those beyond it share one overflow bucket of that user.",
    )
    max_sensors: Annotated[int, Field(ge=1), NO_BOOL] = Field(
        default=100_000,
        description="Buckets kept in all; beyond it new ones share their user's overflow bucket.",
    )
    max_connections: Annotated[int, Field(ge=1, le=MAX_INT32), NO_BOOL] | None = Field(
        default=DEFAULT_CONNECTIONS,
        description="Client connections at a time, over all listeners (Kafka: max.connections), at most half "
        "of the files that the process may open; further ones are closed at once.",
    )
    max_connections_per_ip: Annotated[int, Field(ge=1, le=MAX_INT32), NO_BOOL] | None = Field(
        default=None, description="Of one address, or one IPv6 /64 (Kafka: max.connections.per.ip)."
    )
    max_connections_per_user: Annotated[int, Field(ge=1, le=MAX_INT32), NO_BOOL] | None = Field(
        default=DEFAULT_CONNECTIONS_PER_USER,
        description="Of one principal, once it is known. The default is at most half of max_connections, and "
        "not for ANONYMOUS and other names that many share.",
    )
    max_unauthenticated_connections: Annotated[int, Field(ge=1, le=MAX_INT32), NO_BOOL] | None = Field(
        default=DEFAULT_UNAUTHENTICATED,
        description="Of which the principal is not known yet. Beyond it the oldest that has had 1 s and is "
        "to speak, or to read its answers, is ended for a newer one, or newer ones wait to be accepted. The "
        "default is at most a quarter of max_connections. One address may have a quarter of the places "
        "where it is surely a client's (PROXY protocol, or max_connections_per_ip is set).",
    )
    connections_per_s: Annotated[float, Field(gt=0, le=MAX_INT32), NO_BOOL] | None = Field(
        default=None,
        description="New connections a second of one listener (Kafka: max.connection.creation.rate); "
        "further ones wait to be accepted.",
    )
    idle_timeout_s: Annotated[float, Field(gt=0, le=86_400), NO_BOOL] | None = Field(
        default=None,
        description="Ends connections on which nothing happens for so long; if left out the broker does "
        "(connections.max.idle.ms), and one that never asked for anything ends after 10 minutes.",
    )
    stopped_timeout_s: Annotated[float, Field(gt=0, le=86_400), NO_BOOL] = Field(
        default=600.0,
        description="Ends connections whose client or broker takes nothing of what waits for it for so long.",
    )
    authentication_timeout_s: Annotated[float, Field(gt=0, le=3600), NO_BOOL] = Field(
        default=30.0,
        description="Longest that a client may take from its connection to its login, PROXY header and TLS "
        "handshake included.",
    )
    slow_frame_timeout_s: Annotated[float, Field(gt=0, le=3600), NO_BOOL] = Field(
        default=30.0,
        description="Ends a client that began a request and sent less than 1 KiB of it in so long; time in "
        "which it was not read does not count.",
    )
    max_buffered_bytes: Annotated[int, Field(ge=1_048_576), NO_BOOL] = Field(
        default=268_435_456,
        description="Bytes kept for clients and brokers that do not take them; beyond it connections are "
        "read in small pieces.",
    )
    max_buffered_bytes_per_user: Annotated[int, Field(ge=65_536), NO_BOOL] = Field(
        default=134_217_728, description="The share of one principal: half of max_buffered_bytes at most."
    )
    unauthenticated_cpu_share: Annotated[float, Field(gt=0, le=1), NO_BOOL] = Field(
        default=0.25,
        description="Share of one core that connections may take until they authenticate (without a login: "
        "until their first request); beyond it they wait, to be accepted and to be read. What those "
        "took that did authenticate does not count.",
    )
