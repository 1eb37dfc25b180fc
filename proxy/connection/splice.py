"""Large frames go on through the kernel, once the session has seen what it needs of them.

When a read has ended within a large frame, the rest of the frame is moved (kernel_pipe.py), and of the next
frame only the beginning is read, for it will be as large. The last byte of a frame comes the ordinary way: so
all that happens at a frame's end happens where it always does.
"""

from __future__ import annotations

import socket
from typing import Final

from sluice.proxy.connection.peer import Peer
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.worker import Worker
from sluice.proxy.session.session import Passing

_BEGIN_BYTES: Final = 1024 * 1024
"""What is to come of a frame when it is moved: 10 MiB frames take 0.5 to 0.7 of the CPU time then, but 1 MiB
ones 1.0 to 1.5 times as much, for what the other side is sent in pages leaves it a smaller window."""
_GO_ON_BYTES: Final = 64 * 1024
"""less is copied sooner: two more calls to the system cost as much as 30 kB"""


def can_pass(one: Stream, other: Stream) -> bool:
    """Between plain sockets alone."""
    return type(one) is socket.socket and type(other) is socket.socket


def expect(peer: Peer, frames: Passing, worker: Worker) -> None:
    """After a read of as much as there was room for: is there a frame to be moved?"""
    if frames.passing_bytes > _BEGIN_BYTES and worker.pipe.is_worth_a_try():
        peer.passing = True
        peer.view = worker.head_view
    elif peer.view is worker.head_view:
        peer.view = worker.view


def move(source: Peer, target: Peer, frames: Passing, worker: Worker) -> bool:
    """Move what has come. False: it is the turn of a read.

    What `target` does not take is kept there (`target.out`), and no more is to be brought then. Raises
    BlockingIOError and OSError of `source`.
    """
    limit = frames.passing_bytes - 1
    if limit < _GO_ON_BYTES or target.out is not None or target.gone:
        source.passing = False
        return False
    taken, rest = worker.pipe.move(source.sock.fileno(), target.sock.fileno(), limit)
    frames.passed(taken)
    if rest and not target.send(memoryview(rest)):
        return True
    source.passing = 0 < taken < limit
    return source.passing
