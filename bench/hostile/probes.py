"""Silent connections held at the admin port, and the orchestrator's questions meanwhile, once a second.

Who holds them connects again as soon as one is closed. A question is answered when 200 comes within
ANSWER_S, the kubelet's own default; the probe port's failures count, the admin port's are told besides.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from testkit.processes.ports import LOOPBACK

SILENT: Final = 1_000
ANSWER_S: Final = 1.0
EVERY_S: Final = 1.0
PATHS: Final = ("/livez", "/readyz")
PROBE_PORT: Final = "probe port"
ADMIN_PORT: Final = "admin port"
_AT_ONCE: Final = 50  # connections that are being opened
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """What the questions met, by port."""

    silent: int
    held: int
    """of them, open at the end"""
    asked: Mapping[str, int]
    failures: Mapping[str, int]

    def summary(self) -> dict[str, object]:
        """For the last line."""
        return {
            "probe_failures": self.failures[PROBE_PORT],
            "probes_asked": self.asked[PROBE_PORT],
            "probe_failures_at_the_admin_port": self.failures[ADMIN_PORT],
            "silent_admin_connections": self.silent,
        }

    def shown(self) -> dict[str, object]:
        """For the results' file."""
        return asdict(self)


async def ask_under_silence(
    admin_port: int, probe_port: int, seconds: float, silent: int = SILENT
) -> ProbeRun:
    """Hold the connections for so long and ask. Returns when all of them are closed."""
    asked: Counter[str] = Counter({PROBE_PORT: 0, ADMIN_PORT: 0})
    failures: Counter[str] = Counter(asked)
    held: set[int] = set()
    opening = asyncio.Semaphore(_AT_ONCE)
    holders = [
        asyncio.get_running_loop().create_task(_hold(admin_port, number, held, opening))
        for number in range(silent)
    ]
    end_s = time.monotonic() + seconds
    try:
        while (begun_s := time.monotonic()) < end_s:
            questions = [
                (where, _is_answered(port, path))
                for where, port in ((PROBE_PORT, probe_port), (ADMIN_PORT, admin_port))
                for path in PATHS
            ]
            answers = await asyncio.gather(*(question for _, question in questions))
            for (where, _), answered in zip(questions, answers, strict=True):
                asked[where] += 1
                failures[where] += not answered
            await asyncio.sleep(max(0.0, begun_s + EVERY_S - time.monotonic()))
        return ProbeRun(silent, len(held), dict(asked), dict(failures))
    finally:
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)


async def _hold(port: int, number: int, held: set[int], opening: asyncio.Semaphore) -> None:
    """One silent connection, and the next when it is closed, until cancelled."""
    while True:
        with suppress(OSError):
            async with opening:
                reader, writer = await asyncio.open_connection(LOOPBACK, port)
            held.add(number)
            try:
                while await reader.read(1024):
                    pass
            finally:
                held.discard(number)
                writer.transport.abort()
        await asyncio.sleep(_PAUSE_S)


async def _is_answered(port: int, path: str) -> bool:
    """Whether 200 comes in time, connecting included."""
    writer = None
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nConnection: close\r\n\r\n".encode())
            return (await reader.readline()).split()[1:2] == [b"200"]
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.transport.abort()
