"""Why a client connection ended: a closed set, the label `cause` of sluice_disconnects_total."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class DisconnectCause(StrEnum):
    """Every way in which a client connection can end."""

    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    BROKER_CLOSED = "broker_closed"
    BROKER_RESET = "broker_reset"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    OUT_OF_FILE_DESCRIPTORS = "out_of_file_descriptors"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_CONNECTIONS_OF_ADDRESS = "too_many_connections_of_address"
    TOO_MANY_CONNECTIONS_OF_USER = "too_many_connections_of_user"
    TOO_MANY_UNAUTHENTICATED = "too_many_unauthenticated"
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    AUTHENTICATION_TIMEOUT = "authentication_timeout"
    IDLE = "idle"
    SLOW_FRAME = "slow_frame"
    CLIENT_STOPPED_READING = "client_stopped_reading"
    BROKER_STALLED = "broker_stalled"
    BUFFERED_BYTES_OVER_CAP = "buffered_bytes_over_cap"
    TLS_FAILED = "tls_failed"
    UPSTREAM_LOGIN_FAILED = "upstream_login_failed"
    DRAINED = "drained"
    BROKER_MOVED = "broker_moved"
    DRAIN_DEADLINE = "drain_deadline"
    LEFT_WHILE_HELD = "left_while_held"
    AUTHENTICATION_FAILED = "authentication_failed"
    PRINCIPAL_CHANGED = "principal_changed"
    PRODUCER_ID_REFUSED = "producer_id_refused"
    OWN_TOPIC = "own_topic"
    UNFINISHED_BYTES_OVER_CAP = "unfinished_bytes_over_cap"
    PROXY_PROTOCOL = "proxy_protocol"
    TLS_ON_PLAINTEXT = "tls_on_plaintext"
    FRAME_TOO_LARGE = "frame_too_large"
    MALFORMED_FRAME = "malformed_frame"
    UNMETERED_VERSION = "unmetered_version"
    UNKNOWN_API = "unknown_api"
    PROTOCOL_ERROR = "protocol_error"
    BROKER_CORRELATION = "broker_correlation"
    BROKER_MALFORMED = "broker_malformed"
    INTERNAL_ERROR = "internal_error"


ENDED_BY_BROKER: Final = frozenset({DisconnectCause.BROKER_CLOSED, DisconnectCause.BROKER_RESET})
AT_BROKER: Final = ENDED_BY_BROKER | {
    DisconnectCause.BROKER_STALLED,
    DisconnectCause.BROKER_CORRELATION,
    DisconnectCause.BROKER_MALFORMED,
}
"""what the broker did, or did not do"""
