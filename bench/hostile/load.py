"""Hostile connections at a steady pace: damaged requests, garbage, half-open ones, slow drips.

    python -m bench.hostile.load PORTS FRAMES_FILE SEED DAMAGED OTHERS SECONDS

A process of its own. PORTS: comma between; FRAMES_FILE: requests behind one another, each with its size. Says
"ready" when all is drawn, attacks from then on for SECONDS, and ends with one line of JSON: what became of
the connections as seen from here. Each connection ends in order, or with a reset, by turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import uvloop

from bench.hostile.frames import Attack, damaged, garbage
from testkit.processes.ports import LOOPBACK

ANSWER_S: Final = 1.0  # how long an attack waits for an answer or the end
HOLD_S: Final = 6.0  # how long half-open and dripping connections stay, unless they are ended
DRIP_S: Final = 0.25  # between two bytes
CHUNK_PAUSE_S: Final = 0.002
HALF_OPEN: Final = "half-open"
DRIP: Final = "slow drip"
READY: Final = "ready"


class Load:
    """All connections of one run and what became of them."""

    def __init__(self, ports: Sequence[int], frames: Sequence[bytes], random: Random) -> None:
        self._ports = ports
        self._frames = frames
        self._random = random
        self.began: Counter[str] = Counter()
        self.ended_by_other: Counter[str] = Counter()
        self.not_connected = 0
        self.latest_s = 0.0  # by how much the latest connection was begun too late

    def plan(self, damaged_count: int, others: int, seconds: float) -> list[tuple[float, Attack]]:
        """When what is begun, in order of time; the others are a third each of garbage, half-open, drips."""
        attacks = [damaged(self._frames, self._random) for _ in range(damaged_count)]
        for index in range(others):
            if index % 3 == 0:
                attacks.append(garbage(self._random))
            else:
                frame = self._random.choice(self._frames)
                some = frame[: self._random.choice((0, 1, 3, 4, len(frame) - 1))]
                attacks.append(Attack(HALF_OPEN, (some,)) if index % 3 == 1 else Attack(DRIP, (frame,)))
        self._random.shuffle(attacks)
        return [(seconds * index / len(attacks), attack) for index, attack in enumerate(attacks)]

    async def run(self, plan: Sequence[tuple[float, Attack]]) -> None:
        """Begin each attack when it is due; returns when the last has ended."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for index, (due_s, attack) in enumerate(plan):
                await asyncio.sleep(start_s + due_s - time.monotonic())
                self.latest_s = max(self.latest_s, time.monotonic() - start_s - due_s)
                port = self._ports[index % len(self._ports)]
                tasks.create_task(self._attack(port, attack, reset=bool(index // len(self._ports) % 2)))

    async def _attack(self, port: int, attack: Attack, *, reset: bool) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, (LOOPBACK, port))
        except OSError:
            self.not_connected += 1
            sock.close()
            return
        self.began[attack.kind] += 1
        end = loop.create_task(_until_end(sock))
        try:
            with contextlib.suppress(OSError):
                if attack.kind == DRIP:
                    await _drip(sock, attack.chunks[0], end)
                else:
                    for chunk in attack.chunks:
                        await loop.sock_sendall(sock, chunk)
                        await asyncio.sleep(CHUNK_PAUSE_S)
                    await asyncio.wait([end], timeout=HOLD_S if attack.kind == HALF_OPEN else ANSWER_S)
            if end.done():
                self.ended_by_other[attack.kind] += 1
        finally:
            end.cancel()
            await asyncio.wait([end])
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()


async def _until_end(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while await loop.sock_recv(sock, 65536):
            pass


async def _drip(sock: socket.socket, frame: bytes, end: asyncio.Task[None]) -> None:
    """A byte at a time; how long it takes is not the frame's length but HOLD_S."""
    for at in range(min(len(frame), int(HOLD_S / DRIP_S))):
        await asyncio.get_running_loop().sock_sendall(sock, frame[at : at + 1])
        await asyncio.wait([end], timeout=DRIP_S)
        if end.done():
            return


def split(data: bytes) -> list[bytes]:
    """The frames of a FRAMES_FILE."""
    frames = []
    pos = 0
    while pos < len(data):
        end = pos + 4 + int.from_bytes(data[pos : pos + 4])
        frames.append(data[pos:end])
        pos = end
    return frames


def main(argv: Sequence[str]) -> None:
    ports, frames_file, seed, damaged_count, others, seconds = argv
    frames = split(Path(frames_file).read_bytes())
    load = Load([int(port) for port in ports.split(",")], frames, Random(int(seed)))
    plan = load.plan(int(damaged_count), int(others), float(seconds))
    print(READY, flush=True)
    uvloop.run(load.run(plan))
    used = resource.getrusage(resource.RUSAGE_SELF)
    result = {
        "began": dict(sorted(load.began.items())),
        "ended_by_other_side": dict(sorted(load.ended_by_other.items())),
        "not_connected": load.not_connected,
        "latest_s": round(load.latest_s, 4),
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
