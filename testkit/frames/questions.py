"""Whether a proxy's client is served, by the first question that real ones ask."""

from __future__ import annotations

from testkit.frames.frames import API_VERSIONS, request
from testkit.frames.wire import Wire


async def is_served(client: Wire) -> bool:
    """ApiVersions is answered. False: the connection is closed instead."""
    await client.send(request(API_VERSIONS, 0, correlation_id=4))
    try:
        return (await client.frame())[4:8] == (4).to_bytes(4, "big")
    except (EOFError, ConnectionError):
        return False
