"""Brokers' addresses in what administrators are shown: the values of DescribeConfigs, DescribeQuorum's nodes.

Rare and for people, so by the codec and as text, not by offsets. Knows no gateway: the caller says what an
address is shown as. Source: KafkaConfig, SocketServerConfigs, QuorumConfig (which configs are addresses);
DescribeConfigsRequest.json, DescribeQuorumResponse.json 4.3.1.

    listeners, advertised.listeners   every listener of broker N is shown as broker N's own address, also one
                                      that no client knows
    controller.quorum.voters, *.bootstrap.servers, zookeeper.connect
                                      a known broker's address as its own, any other as `elsewhere`
    all other values, error messages  known addresses are replaced where they occur
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.addresses.addresses import spliced
from sluice.protocol.addresses.config_results import BROKER, broker_results, results_at
from sluice.protocol.apis import OFFERED, ApiKey
from sluice.protocol.codec.codec import DecodedFrame, EncodeError, decode_frame, encode_frame
from sluice.protocol.codec.wire import Struct, Value, encode_varint
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from sluice.protocol.headers import SIZE_BYTES
from sluice.protocol.parts import Parts
from sluice.protocol.primitives import (
    INT32,
    Buffer,
    array_count,
    compact_array_count,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
)

QUORUM_WITH_LISTENERS: Final = 2
"""the first version of DescribeQuorum that tells the nodes' listeners"""

_CONFIGS: Final = ApiKey.DESCRIBE_CONFIGS
_FIRST_VERSION, _LAST_VERSION = OFFERED[_CONFIGS]
_OWN: Final = frozenset({"listeners", "advertised.listeners"})
_OF_OTHERS: Final = frozenset({"controller.quorum.voters", "zookeeper.connect"})
_OF_OTHERS_ENDING: Final = "bootstrap.servers"
_ENTRY: Final = re.compile(r"(\s*(?:[^:/@\s]*://|-?\d+@)?)(.*)", re.DOTALL)
"""`NAME://` or `id@`, and the address"""


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown in the place of an address; all text, `host:port`."""

    broker: Callable[[str], str]
    """of the broker with this id, as DescribeConfigs names a resource ("" for the cluster's defaults)"""
    known: Callable[[str], str | None]
    """of this address; None: nobody knows it"""
    elsewhere: str
    """of what nobody knows"""
    hide: Callable[[str], str]
    """a text with every known address in it replaced"""


def asks_for_brokers(buf: Buffer, pos: int, end: int, version: int) -> bool:
    """Does the DescribeConfigs request body `buf[pos:end]`, which is whole, ask for a broker's configs?

    Raises MalformedFrame if the array of resources does not end before `end`, and for more than MAX_PARTS
    resources, keys and tagged fields: Kafka's own clients name no keys.
    """
    flexible = version >= FLEXIBLE[ApiKey.DESCRIBE_CONFIGS]
    skip_text = skip_compact_nullable if flexible else skip_nullable_string
    count_of = compact_array_count if flexible else array_count
    parts = Parts("resources, keys and tags")
    resources, pos = count_of(buf, pos, end, 3)
    parts.add(resources, pos)
    for _ in range(resources):
        name = skip(pos, 1, end)
        if buf[pos] == BROKER:
            return True
        keys, pos = count_of(buf, skip_text(buf, name, end), end, 1)
        parts.add(keys, pos)
        for _ in range(keys):
            pos = skip_text(buf, pos, end)
        if flexible:
            pos = parts.skip_tags(buf, pos, end)
    return False


def show_configs(frame: bytes, version: int, shown: Shown) -> bytes:
    """The whole DescribeConfigs response `frame`, its size included, without a real address in brokers'
    configs; all else stays byte for byte.

    Raises MalformedFrame and UnsupportedVersion as `decode_frame`, MalformedFrame also if a value grows too
    long for its field.
    """
    if not _FIRST_VERSION <= version <= _LAST_VERSION:
        raise UnsupportedVersion("configs cannot be shown", api_key=_CONFIGS, api_version=version)
    found = broker_results(frame, version)
    if not found:
        return frame
    head, flexible = results_at(frame, version), version >= FLEXIBLE[_CONFIGS]
    count = encode_varint(len(found) + 1) if flexible else INT32.pack(len(found))
    parts = b"".join(frame[start:stop] for start, stop in found)
    alone = _shown_alone(frame[:head] + count + parts + b"\0" * flexible, version, shown)
    edits = [
        (start, stop, alone[new_start:new_stop])
        for (start, stop), (new_start, new_stop) in zip(found, broker_results(alone, version), strict=True)
    ]
    told = spliced(frame, SIZE_BYTES, len(frame), edits)
    return INT32.pack(len(told)) + told


def _shown_alone(frame: bytes, version: int, shown: Shown) -> bytes:
    """`show_configs` of an answer that has brokers' results alone."""
    decoded = decode_frame("response", _CONFIGS, version, frame[SIZE_BYTES:])
    for result in _objects(decoded.body["results"]):
        own = shown.broker(cast(str, result["resourceName"]))
        _replace(result, "errorMessage", shown.hide)
        for config in _objects(result["configs"]):
            for entry in (config, *_objects(config.get("synonyms", []))):
                _show_value(entry, own, shown)
    return _encoded(_CONFIGS, version, decoded)


def hide_quorum_listeners(frame: bytes, version: int) -> bytes:
    """The whole DescribeQuorum response `frame`, its size included, with its nodes, not where they listen.

    They are controllers, and clients cannot reach them; where one process is both, it is a broker's host.
    Raises MalformedFrame and UnsupportedVersion as `decode_frame`.
    """
    decoded = decode_frame("response", ApiKey.DESCRIBE_QUORUM, version, frame[SIZE_BYTES:])
    for node in _objects(decoded.body.get("nodes", [])):
        node["listeners"] = []
    return _encoded(ApiKey.DESCRIBE_QUORUM, version, decoded)


def _show_value(entry: Struct, own: str, shown: Shown) -> None:
    name = cast(str, entry["name"])
    if name in _OWN:
        _replace(entry, "value", partial(_each, show=lambda _: own))
    elif name in _OF_OTHERS or name.endswith(_OF_OTHERS_ENDING):
        show = partial(_each, show=lambda address: shown.known(address) or shown.elsewhere)
        _replace(entry, "value", show)
    else:
        _replace(entry, "value", shown.hide)


def _each(value: str, show: Callable[[str], str]) -> str:
    """Each address of a list, with what stands before it."""
    entries: list[str] = []
    for entry in value.split(","):
        found = _ENTRY.fullmatch(entry)
        assert found is not None  # it matches any text
        entries.append(found[1] + show(found[2].strip()) if found[2].strip() else entry)
    return ",".join(entries)


def _replace(entry: Struct, key: str, show: Callable[[str], str]) -> None:
    value = entry.get(key)
    if isinstance(value, str):
        entry[key] = show(value)


def _objects(value: Value) -> Iterator[Struct]:
    assert isinstance(value, list)
    for each in value:
        assert isinstance(each, dict)
        yield each


def _encoded(api_key: int, version: int, decoded: DecodedFrame) -> bytes:
    # Varints that were longer than they need be are counted from the start of the frame, which has changed.
    try:
        frame = encode_frame("response", api_key, version, DecodedFrame(decoded.header, decoded.body))
    except EncodeError as error:
        raise MalformedFrame(str(error)) from None
    return INT32.pack(len(frame)) + frame
