"""moto's server with one request at a time, so that a condition and the write that hangs on it are one step.

moto's own looks for the object and makes it behind (`moto.s3.responses`, If-None-Match), in a thread for each
connection: between the two another thread may make it too, and both are told that they did. S3 itself lets
one (Amazon S3, "Conditional writes").
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple


class OneAtATime:
    """A WSGI application that answers one request after the other, whichever thread brings it."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The whole answer, made."""
        with self._lock:
            return list(self._app(environ, start_response))


def main(host: str, port: int) -> None:
    """Serves until the process is ended."""
    app = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple(host, port, app, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
