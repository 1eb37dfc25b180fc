"""Requests that the proxy itself sends, and their answers: kafka-python's protocol classes ↔ frames.

The cold path alone: what clients send and are sent is read in place (protocol/) and never given to these.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kafka.protocol.api_message import ApiMessage

from sluice.protocol.errors import MalformedFrame

_BROKEN: Final = (struct.error, ValueError, LookupError, TypeError, ArithmeticError, EOFError)
"""what kafka-python raises on bytes that are no such answer"""


def encoded(request: ApiMessage, version: int, correlation_id: int, client_id: str) -> bytes:
    """Header and body, without the length before them. `request` has that version from now on."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    frame: bytes = request.encode(header=True)
    return frame


def decoded(request: ApiMessage, frame: bytes) -> Any:
    """The answer to `request`, which has been `encoded`, as kafka-python's class of it. `frame`: header and
    body, without the length before them.

    Raises MalformedFrame.
    """
    try:
        return request.header.get_response_class().decode(frame, header=True)
    except _BROKEN as error:
        key, version = request.API_KEY, request.API_VERSION
        reason = f"no answer of this API: {error}"
        raise MalformedFrame(reason, api_key=key, api_version=version) from None
