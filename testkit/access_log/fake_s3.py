"""A storage that speaks as much of S3 as putting objects needs, and fails as it is told."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

LOOPBACK = "127.0.0.1"


class FakeS3:
    """Serves in the `with` block, in threads of its own."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        """bucket/key → content"""
        self.access_keys: list[str] = []
        """who has signed, request by request"""
        self.refusals = 0
        self.status = 200
        """what requests are answered; 0: the connection is closed in the middle of the request"""
        self.answers = threading.Event()
        """requests wait for it"""
        self.answers.set()
        self.waiting = threading.Event()
        """one does"""
        fake = self

        class Handler(_Handler):
            storage = fake

        self._server = _Server((LOOPBACK, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.endpoint = f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answers.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients leave when they have waited for long."""


class _Handler(BaseHTTPRequestHandler):
    """One request of pyarrow's client."""

    storage: FakeS3
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        """Keep the object, or fail."""
        storage = self.storage
        credential = self.headers.get("Authorization", "").partition("Credential=")[2]
        storage.access_keys.append(credential.partition("/")[0])
        if storage.status == 0:
            storage.refusals += 1
            self.rfile.read(10)
            self.close_connection = True
            return
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self._body()
        if not storage.answers.is_set():
            storage.waiting.set()
            storage.answers.wait()
        if storage.status == 200:
            storage.objects[unquote(urlsplit(self.path).path).lstrip("/")] = body
            self._answer(200, b"", {"ETag": '"0"'})
            return
        storage.refusals += 1
        code = "AccessDenied" if storage.status == 403 else "SlowDown"
        self._answer(storage.status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode(), {})

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return _unchunked(data) if "aws-chunked" in self.headers.get("Content-Encoding", "") else data

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _unchunked(data: bytes) -> bytes:
    """S3's own chunks within the body: hex size, data, …; a checksum behind them."""
    content = b""
    while True:
        head, _, data = data.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if size == 0:
            return content
        content += data[:size]
        data = data[size + 2 :]
