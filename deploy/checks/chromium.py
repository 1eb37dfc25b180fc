"""Debian's Chromium, headless, by its DevTools protocol over a pipe: no driver, no port, no library."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

WITHIN_S: Final = 30.0
NOT_DONE: Final = 3
_READ_BYTES: Final = 1 << 20
_KEYS: Final = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}


class BrowserError(Exception):
    """The browser, or the page in it, did not do what it was asked to."""


class Chromium:
    """One browser process with a profile of its own."""

    def __init__(self, *arguments: str) -> None:
        """Exits with NOT_DONE if there is no Chromium."""
        program = shutil.which("chromium")
        if program is None:
            print("needs Debian's chromium")
            sys.exit(NOT_DONE)
        self._profile = tempfile.mkdtemp(prefix="sluice-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Away from 3 and 4, where the browser expects them: the one must not be put over the other.
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (to_browser, from_browser)]
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        pipes = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(ours, start=3)]
        command = [
            program,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            *arguments,
            "about:blank",
        ]
        self._pid = os.posix_spawn(program, command, os.environ, file_actions=[*nowhere, *pipes])
        for fd in (to_browser, from_browser, *ours):
            os.close(fd)
        self._number = 0
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        """what the browser said without being asked, oldest first"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        with contextlib.suppress(BrowserError, OSError):
            self.call("Browser.close")
        until_s = time.monotonic() + 5.0
        while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > until_s:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                break
            time.sleep(0.05)
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """A command's result. Raises BrowserError."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        until_s = time.monotonic() + WITHIN_S
        while True:
            found = self._next(until_s)
            if found is None:
                raise BrowserError(f"no answer to {method}")
            if found.get("id") == number:
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result

    def listen(self, for_s: float) -> None:
        """Take in events for a while."""
        until_s = time.monotonic() + for_s
        while self._next(until_s) is not None:
            pass

    def _next(self, until_s: float) -> dict[str, Any] | None:
        """The next message; None if none comes in time."""
        while b"\0" not in self._buffer:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([self._read], [], [], left_s)[0]:
                return None
            data = os.read(self._read, _READ_BYTES)
            if not data:
                raise BrowserError("the browser has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def page(self) -> Page:
        """Open a new tab."""
        return Page(self)


class Page:
    """A tab of the browser."""

    def __init__(self, browser: Chromium) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to this tab."""
        return self.browser.call(method, self._session, **params)

    def said(self, method: str) -> list[dict[str, Any]]:
        """The parameters of all events of this name."""
        self.browser.listen(0.05)
        return [event["params"] for event in self.browser.events if event["method"] == method]

    def go(self, address: str) -> None:
        """Load a page. Raises BrowserError if it cannot be."""
        before = len(self.said("Page.loadEventFired"))
        result = self.call("Page.navigate", url=address)
        if "errorText" in result:
            raise BrowserError(f"{address}: {result['errorText']}")
        self.until(lambda: len(self.said("Page.loadEventFired")) > before, f"{address} loaded")

    def run(self, script: str) -> Any:
        """The value of an expression, awaited. Raises BrowserError with what it threw."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return found["result"].get("value")

    def until(self, seen: Callable[[], object], what: str) -> None:
        """Wait until something can be seen. Raises BrowserError if it cannot in time."""
        until_s = time.monotonic() + WITHIN_S
        while not seen():
            if time.monotonic() > until_s:
                raise BrowserError(f"not seen: {what}")
            time.sleep(0.05)

    def until_true(self, script: str) -> None:
        """The same of an expression on the page."""
        self.until(lambda: self.run(script), script)

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key that people press."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        common = {
            "key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key],
            "modifiers": 8 if shift else 0,
        }  # fmt: skip
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """In the middle of an element."""
        where = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1
            )

    def look(self, width: int, height: int, scheme: str = "light", *, forced_colors: bool = False) -> None:
        """What screen it is on. `forced_colors`: as the system's high contrast does it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = {
            "prefers-color-scheme": scheme,
            "prefers-reduced-motion": "reduce",
            "forced-colors": "active" if forced_colors else "none",
        }
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )

    def script(self, *, enabled: bool) -> None:
        """Whether pages loaded from now on may run any."""
        self.call("Emulation.setScriptExecutionDisabled", value=not enabled)

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """As PNG; `whole`: also what is below the screen."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))
