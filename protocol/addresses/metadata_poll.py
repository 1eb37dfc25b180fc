"""The proxy's own question for the brokers of a cluster, and what its answer says.

Metadata v12, which Kafka 3.9 knows (v0–12) and 4.3 still knows (v0–13). Knows no connection: the caller
writes and reads. Source: MetadataRequest.json, "topics": an empty array asks for none.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.addresses.addresses import find_addresses
from sluice.protocol.addresses.walks import Address
from sluice.protocol.apis import METADATA
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.wire import Struct
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD, SIZE_BYTES
from sluice.protocol.primitives import INT32, skip_tags

_VERSION: Final = 12


def metadata_request(correlation_id: int, client_id: str) -> bytes:
    """A request, its size included, for the brokers and no topics."""
    header: Struct = {
        "requestApiKey": METADATA,
        "requestApiVersion": _VERSION,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    body: Struct = {"topics": [], "allowAutoTopicCreation": False}
    frame = encode_frame("request", METADATA, _VERSION, DecodedFrame(header, body))
    return INT32.pack(len(frame)) + frame


def brokers_of(frame: bytes, correlation_id: int) -> list[Address]:
    """The brokers in the answer to `metadata_request`: `frame` is whole, its size included.

    Raises MalformedFrame if it is not that answer, or none at all.
    """
    end = len(frame)
    if end < RESPONSE_HEAD.size or RESPONSE_HEAD.unpack_from(frame) != (end - SIZE_BYTES, correlation_id):
        raise MalformedFrame("not the answer to our Metadata", api_key=METADATA, api_version=_VERSION)
    return find_addresses(frame, skip_tags(frame, RESPONSE_HEAD.size, end), end, METADATA, _VERSION)
