"""A process whose event loop answers as a proxy does, beside the access log's writer, or without it.

    python -m bench.access_writer.echo FOLDER WRITER WINDOW_S ROTATE_S

Prints its port. Each 64 bytes that arrive cost a request's worth of Python, and are sent back. With WRITER
`thread` the roll-up of a window at the standard load is offered every WINDOW_S; with `loop` the same is added
up and encoded in the loop itself, as who would not care; with `none` nothing. Ends when its input does.
"""

import asyncio
import socket
import sys
from itertools import cycle
from pathlib import Path
from typing import Final

import uvloop

from bench.access_log.load import Load
from sluice.proxy.access_log.sinks.sink import DirectorySettings
from sluice.proxy.access_log.writer import AccessWriter, AccessWriterSettings
from sluice.usage.access_record import ROLLUP
from sluice.usage.rollup import Window
from testkit.processes.ports import LOOPBACK

MESSAGE_BYTES: Final = 64
_WORK_STEPS: Final = 150
"""some 20 µs of Python, about what a request costs the proxy"""
_WINDOWS: Final = 3


async def main(folder: Path, kind: str, window_s: float, rotate_s: float) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server((LOOPBACK, 0))
    listener.setblocking(False)
    load = Load(_WINDOWS) if kind != "none" else None
    writer = None
    if kind == "thread":
        writer = AccessWriter(AccessWriterSettings(DirectorySettings(folder), "bench", rotate_s=rotate_s))
        writer.start()
        await asyncio.to_thread(writer.ready.wait)
    if kind == "loop":
        from sluice.proxy.access_log.columns import warm_up

        warm_up()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    print(listener.getsockname()[1], flush=True)
    client, _ = await loop.sock_accept(listener)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setblocking(False)

    def answer() -> None:
        data = client.recv(65536)
        if not data:
            loop.remove_reader(client.fileno())
            return
        for _ in range(len(data) // MESSAGE_BYTES):
            total = 0
            for step in range(_WORK_STEPS):
                total += step
        client.send(data)

    loop.add_reader(client.fileno(), answer)
    windows = cycle([] if load is None else load.windows)
    while not ended.is_set():
        try:
            await asyncio.wait_for(ended.wait(), window_s)
        except TimeoutError:
            if writer is not None:
                writer.offer_window(next(windows))
            elif kind == "loop":
                _encode_here(next(windows))
    loop.remove_reader(sys.stdin.fileno())
    if writer is not None:
        await asyncio.to_thread(writer.close, 10.0)
        print(writer.counters.rows_written, writer.counters.rows_dropped, flush=True)
    client.close()
    listener.close()


def _encode_here(window: Window) -> None:
    from sluice.proxy.access_log.columns import FilePart, encoded
    from sluice.proxy.access_log.sums import WindowSums

    part = FilePart(ROLLUP)
    sums = WindowSums().sum_up(window)
    part.add_sums(window, sums)
    encoded(ROLLUP, part.finish())


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
