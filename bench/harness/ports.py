"""Free loopback ports for servers that must know their port before they start."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
# Below Linux' ephemeral range (32768 …), or an outgoing connection could take the port before the server
# does.
PORT_RANGE = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback TCP ports that nobody listens on now.

    Nothing reserves them: the chance that another process picks the same one before its use is about 1 in
    10,000. Raises RuntimeError if no free port is found in 1,000 tries.
    """
    held: list[socket.socket] = []
    try:
        for _ in range(1_000):
            if len(held) == count:
                return [held_socket.getsockname()[1] for held_socket in held]
            candidate = socket.socket()
            try:
                candidate.bind((LOOPBACK, random.choice(PORT_RANGE)))
            except OSError:
                candidate.close()
                continue
            held.append(candidate)
        raise RuntimeError(f"no {count} free ports on {LOOPBACK}")
    finally:
        for held_socket in held:
            held_socket.close()


def free_port() -> int:
    """Return one loopback TCP port that nobody listens on now (see free_ports)."""
    return free_ports(1)[0]


def free_port_range(count: int) -> int:
    """Return the first of `count` loopback TCP ports in a row that nobody listens on now (see free_ports).

    Raises RuntimeError if there are none in 1,000 tries.
    """
    for _ in range(1_000):
        first = random.randrange(PORT_RANGE.start, PORT_RANGE.stop - count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"no {count} free ports in a row on {LOOPBACK}")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
