"""A DescribeConfigs response → where the results of brokers stand in it. Pure.

By a walk over offsets, so that those of topics, of which a request may name hundreds, are neither decoded nor
written anew: a tenth of the time. Knows nothing of addresses. Source: DescribeConfigsResponse.json 4.3.1.

    v1–v2  throttle int32, [error int16, message nullable, type int8, name, [config name, value nullable,
           read_only bool, source int8, sensitive bool, [synonym name, value nullable, source int8]]]
    v3     each config has a type int8 and a nullable documentation behind its synonyms
    v4     the same, compact, each level closed by tagged fields
"""

from __future__ import annotations

from typing import Final

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import ApiKey
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES
from sluice.protocol.primitives import (
    array_count,
    compact_array_count,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
    skip_tags,
)

BROKER: Final = 4
"""ConfigResource.Type; BROKER_LOGGER (8) has names of classes and log levels, the others no addresses"""
_FIRST_FLEXIBLE: Final = FLEXIBLE[ApiKey.DESCRIBE_CONFIGS]
_FIRST_WITH_TYPE: Final = 3
_RESULT_MIN_BYTES: Final = 6
_CONFIG_MIN_BYTES: Final = 6
_SYNONYM_MIN_BYTES: Final = 3


def results_at(frame: bytes, version: int) -> int:
    """Offset of the array of results in the response `frame`, its size included."""
    end = len(frame)
    body = skip(0, RESPONSE_HEAD_BYTES, end)
    if version >= _FIRST_FLEXIBLE:
        body = skip_tags(frame, body, end)
    return skip(body, 4, end)  # throttle


def broker_results(frame: bytes, version: int) -> list[tuple[int, int]]:
    """Begin and end of each result whose resource is a broker, in the response `frame`, which is whole.

    Raises MalformedFrame if the walk does not end where the frame does.
    """
    end = len(frame)
    flexible = version >= _FIRST_FLEXIBLE
    count_of = compact_array_count if flexible else array_count
    skip_text = skip_compact_nullable if flexible else skip_nullable_string
    found: list[tuple[int, int]] = []
    results, pos = count_of(frame, results_at(frame, version), end, _RESULT_MIN_BYTES)
    for _ in range(results):
        start = pos
        kind = skip_text(frame, skip(pos, 2, end), end)
        pos = skip_text(frame, skip(kind, 1, end), end)
        is_broker = frame[kind] == BROKER
        configs, pos = count_of(frame, pos, end, _CONFIG_MIN_BYTES)
        for _ in range(configs):
            pos = _skip_config(frame, pos, end, version)
        if flexible:
            pos = skip_tags(frame, pos, end)
        if is_broker:
            found.append((start, pos))
    if flexible:
        pos = skip_tags(frame, pos, end)
    if pos != end:
        raise MalformedFrame(f"response ends {end - pos} bytes before its frame", offset=pos)
    return found


def _skip_config(frame: bytes, pos: int, end: int, version: int) -> int:
    flexible = version >= _FIRST_FLEXIBLE
    count_of = compact_array_count if flexible else array_count
    skip_text = skip_compact_nullable if flexible else skip_nullable_string
    pos = skip_text(frame, skip_text(frame, pos, end), end)
    synonyms, pos = count_of(frame, skip(pos, 3, end), end, _SYNONYM_MIN_BYTES)
    for _ in range(synonyms):
        pos = skip(skip_text(frame, skip_text(frame, pos, end), end), 1, end)
        if flexible:
            pos = skip_tags(frame, pos, end)
    if version >= _FIRST_WITH_TYPE:
        pos = skip_text(frame, skip(pos, 1, end), end)
    return skip_tags(frame, pos, end) if flexible else pos
