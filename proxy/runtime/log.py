"""Structured logs on standard error: what is logged looks the same whoever logs it, and cannot be flooded.

JSON, one object a line, or a console form for people. Client-given names are cut, and made printable on a
console. Lines that clients can cause (throttling, disconnects) go through a LineBudget. Nothing secret is
logged: no caller passes credentials or payloads, and values under a telling key are blotted out besides.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Protocol, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

MAX_VALUE_LENGTH: Final = 256
"""of a text in a log line; a client id may have 32 KiB"""
SECRET_WORDS: Final = frozenset({"password", "secret", "token", "credential", "credentials"})
"""a key of which one of these is a word keeps its value to itself"""


def get_logger() -> FilteringBoundLogger:
    """A logger: `log.info("event_in_snake_case", key=value, …)`, units in the keys. Cheap; call at import."""
    return cast("FilteringBoundLogger", structlog.get_logger())


class LogSettings(Protocol):
    """What is looked at of the section `log` of the configuration."""

    @property
    def level(self) -> str: ...

    @property
    def format(self) -> str: ...


def configure_logging(options: LogSettings, stream: TextIO | None = None) -> None:
    """Send all logs, also those of libraries, to `stream` (default: standard error) from now on."""
    stream = stream if stream is not None else sys.stderr
    as_json = options.format == "json" or (options.format == "auto" and not stream.isatty())
    level = getattr(logging, options.level.upper())
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _cut_and_blot,
    ]
    last: list[Processor]
    if as_json:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        last = [_printable, structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Unfailing(stream))),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))  # libraries are heard when something is wrong


class _Unfailing:
    """A stream that loses what it cannot write: a log whose reader is gone must not cost a connection."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class LineBudget:
    """At most so many log lines a second; what goes beyond is counted, and told with the next line."""

    def __init__(self, lines_per_s: int = 20) -> None:
        self._lines_per_s = lines_per_s
        self._window = 0
        self._used = 0
        self._suppressed = 0

    def has_room(self, now_ms: float) -> bool:
        """Whether a line may be written now; for a line that can wait."""
        window = int(now_ms // 1000)
        if window != self._window:
            self._window, self._used = window, 0
        return self._used < self._lines_per_s

    def take(self, now_ms: float) -> bool:
        """Whether a line may be written now, and then it must be; if not, it is counted as suppressed."""
        if not self.has_room(now_ms):
            self._suppressed += 1
            return False
        self._used += 1
        return True

    def suppress(self) -> None:
        """Count a line that waited and is not worth writing any more."""
        self._suppressed += 1

    def suppressed(self) -> int:
        """Lines left out since the last call; goes into the line that is written."""
        count, self._suppressed = self._suppressed, 0
        return count


def _cut_and_blot(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if not SECRET_WORDS.isdisjoint(key.split("_")):
            event[key] = "[not logged]"
        elif isinstance(value, str) and len(value) > MAX_VALUE_LENGTH and key not in {"event", "exception"}:
            event[key] = f"{value[:MAX_VALUE_LENGTH]}… ({len(value)} characters)"
    return event


def _printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A client id with escape sequences must not steer the terminal."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable() and key != "exception":
            event[key] = value.encode("unicode_escape").decode("ascii")
    return event
