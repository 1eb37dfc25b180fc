"""What can be wrong with a peer's bytes. Each ends one connection, with one clear log line; none ends the
proxy.

A throttle is never an exception: it is a value (see sluice.quotas).
"""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer broke Kafka's protocol. `cause` is the value of the metric label of the disconnect that
    follows."""

    cause = "protocol_error"

    def __init__(
        self,
        reason: str,
        *,
        api_key: int | None = None,
        api_version: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.reason = reason
        self.api_key = api_key
        self.api_version = api_version
        self.offset = offset
        self.good_end = 0
        """set by who scanned a buffer: what stands before this offset of it was judged, and is good"""
        super().__init__(reason)

    def __str__(self) -> str:
        parts = [self.reason]
        if self.api_key is not None:
            from sluice.protocol.names import api_name

            parts.append(f"api {api_name(self.api_key)} ({self.api_key})")
        if self.api_version is not None:
            parts.append(f"version {self.api_version}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)


class MalformedFrame(ProtocolError):
    """A frame's bytes contradict its layout: a count that cannot fit, a walk that does not end where the
    frame ends."""

    cause = "malformed_frame"


class FrameTooLarge(ProtocolError):
    """A size field beyond the limit (or negative): the connection cannot be resynchronised."""

    cause = "frame_too_large"


class UnsupportedVersion(ProtocolError):
    """A version of a metered API that our tables do not know would go unmetered (wire-semantics, section
    5)."""

    cause = "unmetered_version"
