"""Structured logs on standard error: what is logged looks the same whoever logs it, and cannot be flooded.

JSON, one object a line, or a console form for people. Client-given names are cut, and made printable on a
console. Lines that clients can cause (throttling, disconnects) go through a LineBudget. Nothing secret is
logged: no caller passes credentials or payloads, and values under a telling key are blotted out besides.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import MutableMapping
from typing import Any, Final, Protocol, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from sluice.proxy.runtime.log_writer import LogWriter

MAX_VALUE_LENGTH: Final = 256
"""of a text in a log line; a client id may have 32 KiB"""
SECRET_WORDS: Final = frozenset({"password", "secret", "token", "credential", "credentials"})
"""a key of which one of these is a word keeps its value to itself"""
STANDARD_ERROR: Final = 2
"""its descriptor"""
_FINISH_WITHIN_S: Final = 1.0


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
    """Send all logs, also those of libraries, to `stream` (default: standard error) from now on.

    Standard error is written by a thread, which the end of the process waits for.
    """
    stream = stream if stream is not None else sys.stderr
    is_terminal = stream.isatty()
    own = sys.__stderr__
    is_standard_error = own is not None and stream is own and own.fileno() == STANDARD_ERROR
    out = cast("TextIO", _standard_error if is_standard_error else _Unfailing(stream))
    as_json = options.format == "json" or (options.format == "auto" and not is_terminal)
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
        last = [_printable, structlog.dev.ConsoleRenderer(colors=is_terminal)]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.addFilter(_LibraryLines())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, _add_suppressed, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(level, logging.WARNING))  # libraries are heard when something is wrong
    logging.captureWarnings(True)
    if sys.unraisablehook is sys.__unraisablehook__:  # else its owner knows better what is worth a line
        sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_failed_thread


def _log_unraisable(raised: sys.UnraisableHookArgs) -> None:
    _tell_traceback("unraisable_exception", raised.err_msg or repr(raised.object), raised.exc_value)


def _log_failed_thread(raised: threading.ExceptHookArgs) -> None:
    _tell_traceback("thread_failed", "" if raised.thread is None else raised.thread.name, raised.exc_value)


def _tell_traceback(event: str, where: str, error: BaseException | None) -> None:
    """What Python itself would write to standard error, and wait there for its reader."""
    get_logger().error(event, where=where, exc_info=error)


def dropped_log_lines() -> int:
    """Lines that standard error did not take, since the process began."""
    return _standard_error.dropped_lines


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


class _LibraryLines(logging.Filter):
    """Each library's logger has a budget: anybody can send the admin port what is no HTTP, and uvicorn writes
    a line for each."""

    def __init__(self) -> None:
        super().__init__()
        self._budgets: defaultdict[str, LineBudget] = defaultdict(LineBudget)

    def filter(self, record: logging.LogRecord) -> bool:
        budget = self._budgets[record.name]
        if not budget.take(record.created * 1000.0):
            return False
        record.lines_suppressed = budget.suppressed()
        return True


def _add_suppressed(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if lines := event["_record"].lines_suppressed:
        event["lines_suppressed"] = lines
    return event


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


def _tell_dropped(lines: int) -> None:
    get_logger().warning("log_lines_dropped", lines=lines, reason="nobody read standard error, or it is full")


_standard_error: Final = LogWriter(STANDARD_ERROR, _tell_dropped)
atexit.register(_standard_error.finish, _FINISH_WITHIN_S)
