"""What libraries log is written like ours, and cannot be flooded."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
import structlog

from sluice.proxy.config.log import LogOptions
from sluice.proxy.runtime.log import configure_logging


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logging(LogOptions(format="json"), stream)
        yield stream
        logging.captureWarnings(False)
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


def log(name: str, created_s: float) -> None:
    """As the library of this name, at this time."""
    record = {"name": name, "levelno": logging.WARNING, "msg": "no HTTP from %s", "args": ("a",)}
    logging.getLogger(name).handle(logging.makeLogRecord(record | {"levelname": "W", "created": created_s}))


def test_lines_of_a_library_have_a_budget(stream: io.StringIO) -> None:
    for at in range(1000):
        log("uvicorn.error", 5.0 + at / 1000.0)
    log("another", 5.9)
    log("uvicorn.error", 6.1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["uvicorn.error"] * 20 + ["another", "uvicorn.error"]
    assert [line.get("lines_suppressed") for line in lines] == [None] * 21 + [980]
    assert lines[0]["event"] == "no HTTP from a"


class Fails:
    def __del__(self) -> None:
        raise RuntimeError("at its end")


def test_what_python_would_write_itself_is_a_line(stream: io.StringIO) -> None:
    """It would write to standard error directly, and wait for its reader."""
    Fails()
    thread = threading.Thread(target=lambda: 1 // 0, name="worker")
    thread.start()
    thread.join()
    warnings.warn("old", stacklevel=1)
    unraisable, failed, warning = map(json.loads, stream.getvalue().splitlines())
    assert (unraisable["event"], failed["event"], failed["where"]) == (
        "unraisable_exception",
        "thread_failed",
        "worker",
    )
    assert "Fails.__del__" in unraisable["where"]
    assert "RuntimeError: at its end" in unraisable["exception"]
    assert "ZeroDivisionError" in failed["exception"]
    assert "UserWarning: old" in warning["event"]
