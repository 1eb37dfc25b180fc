"""The error codes in a decoded message, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator

from sluice.protocol.codec.wire import Value


def error_codes(body: Value) -> Iterator[int]:
    """Every one, 0 (no error) too, in no order that tells anything."""
    pending: list[Value] = [body]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            code = one.get("errorCode")
            if isinstance(code, int):
                yield code
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)
