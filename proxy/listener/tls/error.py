"""What OpenSSL says is wrong → what a person should know, in words and as one of a few kinds.

OpenSSL names its reasons by upper-case words (`WRONG_VERSION_NUMBER`) that change little between versions.
"""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Final


class TlsFailure(StrEnum):
    """What is wrong between the two ends of a TLS connection: a closed set, fit for a label."""

    NOT_TLS = "not_tls"
    """the other side speaks something else: Kafka in plain text, HTTP, noise"""
    CLOSED = "closed"
    """the other side closed, mostly before the handshake was done"""
    NO_CERTIFICATE = "no_certificate"
    """a client without a certificate, where one is required"""
    BAD_CERTIFICATE = "bad_certificate"
    """the other side's certificate is refused: expired, of a foreign CA, for another host"""
    REFUSED = "refused"
    """the other side ended it with an alert: mostly it does not like our certificate, or the lack of one"""
    VERSION_OR_CIPHER = "version_or_cipher"
    """there is no version or cipher that both know"""
    OTHER = "other"


class TlsError(ssl.SSLError):
    """TLS failed. `str()` says how, without any secret; the connection is of no more use."""

    def __init__(self, failure: TlsFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message

    def __str__(self) -> str:
        return self.message


_NOT_TLS: Final = frozenset({
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "UNKNOWN_PROTOCOL",
    "BAD_PROTOCOL_VERSION_NUMBER",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_TOO_SMALL",
    "BAD_RECORD_TYPE",
    "RECORD_LAYER_FAILURE",
    "INVALID_CCS_MESSAGE",
})  # fmt: skip
_VERSION_OR_CIPHER: Final = frozenset({
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "NO_SHARED_CIPHER",
    "NO_SUITABLE_SIGNATURE_ALGORITHM",
    "NO_SUITABLE_KEY_SHARE",
    "NO_SHARED_GROUP",
    "TLSV1_ALERT_PROTOCOL_VERSION",
})  # fmt: skip


def explained(error: OSError, *, server_side: bool, shaking_hands: bool = False) -> OSError:
    """`error` as a TlsError, or itself if TLS has no part in it."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, TlsError):
        return error
    reason = error.reason or ""
    peer = "the client" if server_side else "the broker"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        return TlsError(TlsFailure.BAD_CERTIFICATE, f"{peer}'s certificate is refused: {why}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        when = " during the TLS handshake" if shaking_hands else ""
        hint = "; is there TLS on this port?" if shaking_hands and not server_side else ""
        return TlsError(TlsFailure.CLOSED, f"{peer} closed the connection{when}{hint}")
    if reason in _NOT_TLS:
        hint = " (is its security.protocol PLAINTEXT or SASL_PLAINTEXT?)" if server_side else " on this port"
        return TlsError(TlsFailure.NOT_TLS, f"{peer} does not speak TLS{hint}: {_words(reason)}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return TlsError(TlsFailure.NO_CERTIFICATE, f"{peer} sent no certificate, and one is required")
    if reason in _VERSION_OR_CIPHER:
        message = f"no TLS version or cipher that {peer} knows too: {_words(reason)}"
        return TlsError(TlsFailure.VERSION_OR_CIPHER, message)
    if "_ALERT_" in reason:
        alert = _words(reason.partition("_ALERT_")[2])
        return TlsError(TlsFailure.REFUSED, f"{peer} refused the TLS connection with the alert: {alert}")
    if reason == "CALLBACK_FAILED" and server_side:  # ours, which is for names alone, cannot fail by itself
        return TlsError(TlsFailure.OTHER, f"{peer} asks for a server name that is not ASCII")
    what = _words(reason) or error.strerror or "unknown reason"
    return TlsError(TlsFailure.OTHER, f"TLS with {peer} failed: {what}")


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
