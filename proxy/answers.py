"""What is written into answers on their way to the client: throttle times, and version ranges that we can
meter.

Whole frames `buf[pos:end]`, size prefix included, patched in place.
"""

from __future__ import annotations

from sluice.protocol._tables import VERSIONS
from sluice.protocol.api_versions import cap_versions
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import PRODUCE, RESPONSE_HEAD_BYTES, response_body
from sluice.protocol.throttle_field import at_fixed_offset, raise_throttle, throttle_offset


def write_produce_throttle(buf: bytearray, pos: int, end: int, version: int, throttle_ms: int) -> None:
    """max(the broker's, ours) into a whole Produce answer."""
    offset = throttle_offset(buf, pos, end, PRODUCE, version)
    if offset is not None:
        raise_throttle(buf, offset, throttle_ms)


def write_fetch_throttle(
    buf: bytearray, pos: int, arrived_end: int, api_key: int, version: int, throttle_ms: int
) -> None:
    """max(the broker's, ours) into a Fetch or ShareFetch answer of which at least the beginning has
    arrived."""
    offset = at_fixed_offset(api_key, version)
    if offset is None:
        return
    field = response_body(buf, pos, arrived_end, api_key, version) + offset
    if field + 4 > arrived_end:
        raise MalformedFrame("no room for throttle_time_ms", offset=field - pos)
    raise_throttle(buf, field, throttle_ms)


def cap_api_versions(buf: bytearray, pos: int, end: int, version: int) -> None:
    """Lower the version maxima of an ApiVersions answer to what our tables know (its header is always v0)."""
    cap_versions(buf, pos + RESPONSE_HEAD_BYTES, end, version, VERSIONS)
