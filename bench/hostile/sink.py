"""Takes connections, reads what they say and answers nothing: where the attackers' own part is measured.

    python -m bench.hostile.sink PORT

Ends a connection at its first ApiVersions, as a broker does at a damaged one: by that Sluice, too, learns
that nothing answers here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import uvloop

from bench.hostile.load import READY
from testkit.processes.ports import LOOPBACK

_API_VERSIONS_KEY = bytes((0, 18))


class Taken(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._is_first = True

    def data_received(self, data: bytes) -> None:
        if self._is_first and data[4:6] == _API_VERSIONS_KEY:
            self._transport.close()
        self._is_first = False


async def serve(port: int) -> None:
    """Until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Taken, LOOPBACK, port, backlog=1000)
    print(READY, flush=True)
    await server.serve_forever()


def main(argv: Sequence[str]) -> None:
    (port,) = argv
    uvloop.run(serve(int(port)))


if __name__ == "__main__":
    main(sys.argv[1:])
