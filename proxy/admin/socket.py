"""A Unix socket for the machine's own administrator: JSON lines, a request and an answer each.

    → {"ask": "top", "rows": 20, "why": true}
    ← {"ok": true, "at": "…", "rows": […]}
    → {"ask": "alter", "entries": []}
    ← {"ok": false, "error": "…"}

Who may connect is the file system's business: the socket's mode is 0600, so it is the proxy's own user and
root. What a client sends, and how many there are, is bounded; one that does not read its answer is let go.
What requests mean is handlers.py's.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from sluice.proxy.admin.questions import BadRequest, refuse_half_pairs
from sluice.proxy.runtime.json_pieces import pieces_of
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.private_file import unusable
from sluice.quotas.files.config_error import ConfigError, Problem

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_CLIENTS: Final = 16
_IDLE_S: Final = 300.0
_TAKES_S: Final = 10.0
_MODE: Final = 0o600
_MAX_PATH_BYTES: Final = 107
"""sun_path of Linux, less its end"""

Answer: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
_log = get_logger()


class AdminSocket:
    """The server of the admin socket."""

    def __init__(self, path: Path, answer: Answer) -> None:
        """`answer`: a request → what to add to `{"ok": true}`. Raises BadRequest."""
        self.path = path
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._inode: tuple[int, int] | None = None

    async def start(self) -> None:
        """Bind and serve; a socket that a process left behind is replaced.

        Raises OSError if the path cannot be bound: another process serves it, it is no socket, too long.
        """
        listening = bound(self.path)
        found = os.lstat(self.path)
        self._inode = (found.st_dev, found.st_ino)
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_LINE_BYTES)

    async def stop(self) -> None:
        """Close, and remove the socket if it is still ours; fine if not started."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._clients):
            task.cancel()
        self._server = None
        with suppress(OSError):
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self._inode:
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._clients) >= MAX_CLIENTS:
                await _send(writer, {"ok": False, "error": f"{MAX_CLIENTS} clients are connected already"})
                return
            self._clients.add(task)
            while await self._serve_one(reader, writer):
                pass
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # it has gone, or is let go
        finally:
            self._clients.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """False: no more will come."""
        try:
            async with asyncio.timeout(_IDLE_S):
                line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return False
        except asyncio.LimitOverrunError:
            await _send(writer, {"ok": False, "error": f"a line has at most {MAX_LINE_BYTES} bytes"})
            return False
        try:
            answer = {"ok": True, **await self._answer(await _request(line))}
        except BadRequest as error:
            answer = {"ok": False, "error": str(error)}
        except Exception:
            _log.exception("admin_request_failed")
            answer = {"ok": False, "error": "an internal error; see the proxy's log"}
        await _send(writer, answer)
        return True


def refuse_path(path: Path) -> None:
    """Raises ConfigError if no socket can ever be made there."""
    problem = unusable(path)
    if not problem and len(os.fsencode(path)) > _MAX_PATH_BYTES:
        problem = f"{path} has more than the {_MAX_PATH_BYTES} bytes that a socket's path may have"
    if not problem and path.exists() and not path.is_socket():
        problem = f"{path} is there already, and is no socket"
    if problem:
        raise ConfigError([Problem(problem, path="admin.socket")])


def bound(path: Path) -> socket.socket:
    """A listening socket at `path`, of mode 0600 from the begin. Raises OSError."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(f"{path} is there already, and is no socket")
        if _is_served(path):
            raise FileExistsError(f"another process serves {path}")
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        mask = os.umask(0o777 & ~_MODE)  # bind makes the file: nobody may connect before a later chmod
        try:
            made.bind(str(path))
        finally:
            os.umask(mask)
        made.listen(MAX_CLIENTS)
    except BaseException:
        made.close()
        raise
    return made


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(1.0)
        try:
            sock.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # it cannot be told, so it stays
        return True


async def _request(line: bytes) -> Mapping[str, Any]:
    """Large ones are read in a thread. Raises BadRequest."""
    return _read(line) if len(line) <= 65_536 else await asyncio.to_thread(_read, line)


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig"))  # of bytes it would take surrogates, too
    except (ValueError, RecursionError):
        raise BadRequest("not JSON in UTF-8; a request is one object on one line") from None
    if not isinstance(found, dict):
        raise BadRequest("a request is one object on one line")
    if b"\\u" in line:
        refuse_half_pairs(found)
    return found


async def _send(writer: asyncio.StreamWriter, answer: Mapping[str, Any]) -> None:
    line = bytearray()
    for piece in pieces_of(answer, ensure_ascii=False):
        line += piece.encode(errors="replace")
        await asyncio.sleep(0)
    writer.write(line + b"\n")
    async with asyncio.timeout(_TAKES_S):
        await writer.drain()
