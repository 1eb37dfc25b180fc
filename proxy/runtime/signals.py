"""What signals do to the proxy: SIGTERM and SIGINT end it, SIGHUP does not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from sluice.proxy.runtime.log import get_logger

_log = get_logger()


def take_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """From now on. A hang-up, which many daemons take as "read your files anew", is told and does nothing: by
    default it would end the process at once, with all its connections."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, _tell_hang_up)


def _tell_hang_up() -> None:
    _log.info("hang_up_ignored", because="files are followed without it")
