"""`sluice top` on a terminal: looked at again and again, and what its keys change."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sluice.proxy.admin.top.order import MAX_ROWS, Sort, chosen
from sluice.proxy.cli.options import CommandFailed
from sluice.quotas.files.config_error import USER_TYPE

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console, RenderableType

    from sluice.proxy.cli.local_admin import Snapshots

_QUIT: Final = "q"
_SORT: Final = "s"
_WHY: Final = "w"
_FILTER: Final = "f"
_ENTER: Final = frozenset("\r\n")
_ESCAPE: Final = "\x1b"
_ERASE: Final = frozenset("\x7f\b")
_ORDERS: Final = list(Sort)


@dataclass(slots=True)
class Look:
    """What is asked for, and how it is shown."""

    source: Snapshots
    rows: int
    user: str = ""
    sort: Sort = Sort.THROTTLED
    why: bool = False
    replication: bool = False
    typed: str | None = None
    """of the filter that is being typed; None: none is"""

    def snapshot(self) -> dict[str, Any]:
        """Raises CommandFailed if there is no answer."""
        if self.replication:
            return self.source.replication(self.rows)
        is_plain = not self.user and self.sort is Sort.THROTTLED
        found = self.source.top(self.rows if is_plain else MAX_ROWS, why=self.why)
        return chosen(found, user=self.user, sort=self.sort, rows=self.rows)

    def rendered(self, width: int) -> RenderableType:
        """For people. Raises CommandFailed."""
        from sluice.proxy.admin.top.replication_view import replication_view
        from sluice.proxy.admin.top.view import view

        if self.replication:
            return replication_view(self.snapshot())
        return view(self.snapshot(), why=self.why, width=width, searched=self.user)

    def pressed(self, key: str) -> None:
        """A key of the terminal."""
        if self.typed is not None:
            self._typed(key)
        elif key.lower() == _SORT:
            self.sort = _ORDERS[(_ORDERS.index(self.sort) + 1) % len(_ORDERS)]
        elif key.lower() == _WHY:
            self.why = not self.why
        elif key.lower() == _FILTER and not self.replication:
            self.typed = ""

    def _typed(self, key: str) -> None:
        """One more character of the filter, or its end."""
        assert self.typed is not None
        if key in _ENTER:
            name = self.typed.removeprefix(USER_TYPE)
            is_pattern = any(character in "*?" for character in name)
            self.user = name if is_pattern or not name else f"*{name}*"
            self.typed = None
        elif key == _ESCAPE:
            self.typed = None
        elif key in _ERASE:
            self.typed = self.typed[:-1]
        elif key.isprintable():
            self.typed += key

    @property
    def keys(self) -> str:
        """What they do, in a line."""
        if self.replication:
            return f"{_QUIT} quit"
        if self.typed is not None:
            return (
                f"filter: {self.typed}▏ · a part of the name · Enter takes it · Esc leaves it"  # 40 columns
            )
        why = "on" if self.why else "off"
        keys = f"{_QUIT} quit · {_SORT} sort: {self.sort} · {_WHY} why: {why}"
        return f"{keys} · {_FILTER} filter: {self.user or 'off'}"


def watch(look: Look, console: Console, interval_s: float) -> None:
    """Until Ctrl-C or `q`. Raises CommandFailed if the first look fails."""
    from rich.live import Live
    from rich.text import Text

    def shown() -> RenderableType:
        return framed(look.rendered(console.width), look.keys, console)

    # Python leaves it ignored where it was so at the start, as in a shell's background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ends in (signal.SIGTERM, signal.SIGHUP):  # else the terminal stays as `top` has made it
        signal.signal(ends, _end)
    try:
        first = shown()  # if there is no proxy, it ends here
        with _keys_at_once(), Live(first, console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.refresh()
                for key in _keys_within(interval_s):
                    if key.lower() == _QUIT and look.typed is None:
                        return
                    look.pressed(key)
                try:
                    live.update(shown())
                except CommandFailed as error:  # it may come back
                    live.update(Text(str(error), style="red"))
    except KeyboardInterrupt:
        return


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def framed(body: RenderableType, keys: str, console: Console) -> RenderableType:
    """As much of it as the screen is high; on the line behind it what the keys do, and what is left out."""
    from rich.console import Group
    from rich.segment import Segment, Segments
    from rich.text import Text

    lines = console.render_lines(body, pad=False)
    room = max(console.height - 1, 1)
    left_out = max(len(lines) - room, 0)
    more = f" · {left_out:,} more lines: a taller window, --user, or --once" if left_out else ""
    segments = [segment for line in lines[:room] for segment in (*line, Segment.line())]
    return Group(Segments(segments), Text(keys + more, style="dim", no_wrap=True, overflow="ellipsis"))


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """The terminal gives each key without waiting for a line, and does not show it; Ctrl-C stays a signal."""
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _keys_within(interval_s: float) -> str:
    """The next keys, at once; empty: none in this time. Of a key that is no character, Escape."""
    if not sys.stdin.isatty():
        time.sleep(interval_s)
        return ""
    fd = sys.stdin.fileno()
    if not select.select([fd], [], [], interval_s)[0]:
        return ""
    typed = os.read(fd, 64).decode(errors="replace")
    if not typed:  # the terminal has gone
        raise KeyboardInterrupt
    return _ESCAPE if typed.startswith(_ESCAPE) else typed
