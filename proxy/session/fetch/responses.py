"""The answers to Fetches: charged, told of, looked at for the sizes of their batches. Pure."""

from __future__ import annotations

from typing import Final

from sluice.protocol.apis import FETCH
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch import forget_session
from sluice.protocol.fetch_batches import batch_sizes
from sluice.protocol.headers import response_body
from sluice.protocol.throttle_field import raise_at_fixed_offset
from sluice.proxy.session.in_flight import NEW_SESSION, AnswerWork, InFlight
from sluice.proxy.session.throttling import Throttling
from sluice.quotas.sensors.sensor import Sensor

_AROUND_RECORDS_BYTES: Final = 1024
"""what stands around the records of an answer: by so much it may pass its max_bytes, and tells nothing new"""


def charge_fetch(
    throttling: Throttling, buf: bytearray, pos: int, end: int, frame_end: int, entry: InFlight,
    sensor: Sensor, now_ms: float, *, at_boundary: bool,
) -> float:  # fmt: skip
    """Charge a Fetch's answer by its size, and write what is owed into it. Returns the throttle in ms."""
    _, api_key, version, _, _, _, held_ms, reserved, _, _ = entry
    size = frame_end - pos
    limit = min(end, frame_end)
    fetches = throttling.fetches
    is_of_turns = reserved and api_key == FETCH
    is_read = is_of_turns and (fetches.wants_sizes or size > reserved + _AROUND_RECORDS_BYTES)
    if is_read:  # first: what a turn of this connection is, is told by the batches that it brings
        _note_batches(throttling, buf, pos, limit, version, sensor, now_ms)
    throttle_ms = throttling.charge_fetch(
        sensor, api_key, size, now_ms, held_ms=held_ms, reserved=reserved, at_boundary=at_boundary
    )
    if is_of_turns and not is_read and throttle_ms > 0.0:
        _note_batches(throttling, buf, pos, limit, version, sensor, now_ms)
    if throttle_ms > 0.0:
        told_ms = fetches.tell(size, throttle_ms, throttling.left_ms(api_key, held_ms), now_ms)
        written_ms = throttling.written_fetch_throttle_ms(told_ms)
        _tell(buf, pos, limit, api_key, version, written_ms)
        fetches.told(written_ms, throttling.half_session_ms, now_ms)
    fetches.part_from(sensor, now_ms)
    return throttle_ms


def _note_batches(
    throttling: Throttling, buf: bytearray, pos: int, limit: int, version: int, sensor: Sensor, now_ms: float
) -> None:
    body = response_body(buf, pos, limit, FETCH, version)
    throttling.fetches.brought(sensor, batch_sizes(buf, body, limit, version), now_ms)


def tell_of_no_records(
    throttling: Throttling, buf: bytearray, pos: int, limit: int, version: int, work: AnswerWork,
    now_ms: float,
) -> None:  # fmt: skip
    """The answer to a Fetch for nothing. Its client sleeps as it is told, and then its next Fetch is held in
    full: both within half its session. With throttle_time_ms > 0, or Java takes no empty full answer."""
    sleep_ms = throttling.half_session_ms - throttling.delay_limit_ms(FETCH)
    wait_ms = throttling.written_fetch_throttle_ms(min(throttling.fetches.wait_ms(now_ms), sleep_ms))
    _tell(buf, pos, limit, FETCH, version, max(wait_ms, 1))
    if work is NEW_SESSION:
        forget_session(buf, response_body(buf, pos, limit, FETCH, version), limit)


def _tell(buf: bytearray, pos: int, arrived_end: int, api_key: int, version: int, throttle_ms: int) -> None:
    """max(the broker's, ours) into a Fetch or ShareFetch answer of which the beginning has arrived."""
    if not raise_at_fixed_offset(buf, pos, arrived_end, api_key, version, throttle_ms):
        raise MalformedFrame("no room for throttle_time_ms", api_key=api_key, api_version=version)
