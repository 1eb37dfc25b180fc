"""A broker's name that leads to several addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from testkit.processes.ports import LOOPBACK

NAME: Final = ("kafka.test", 9092)


class Names:
    """The loop of a test, for which NAME leads to some ports of this machine in the place of addresses."""

    def __init__(self, *ports: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.ports = list(ports)
        self.dialled: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def getaddrinfo(self, host: str, *_: Any, **__: Any) -> Any:
        assert host == NAME[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (LOOPBACK, port)) for port in self.ports]
