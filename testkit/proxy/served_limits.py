"""A proxy's admin socket that serves limits, in a thread of its own: for commands, which block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.socket import AdminSocket
from sluice.proxy.quota_store.service import FileStore, QuotaDesk, QuotaStore
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.playbook import shared_of


@contextmanager
def served_limits(path: Path, limits: QuotaLimits, store: QuotaStore | None = None) -> Iterator[None]:
    """`path`: of the socket. `store`: where changes go; None: they are refused, as with a quota file."""
    shared = shared_of(limits)
    quotas = QuotaDesk(lambda: limits, store or FileStore(Path("quotas.yaml")))
    socket = AdminSocket(path, AdminDesk(shared.quotas, shared.producer_ids, list, quotas).answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(socket.start(), loop).result(10.0)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_stopped(socket), loop).result(10.0)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10.0)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def _stopped(socket: AdminSocket) -> None:
    await socket.stop()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others, return_exceptions=True)
