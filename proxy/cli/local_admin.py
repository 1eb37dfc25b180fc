"""The command's side of a running proxy's admin socket and admin port. Blocking: for commands alone."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from sluice.proxy.admin.status.access import is_one_token
from sluice.proxy.cli.options import CommandFailed, in_words
from sluice.quotas.files.config_error import ConfigError, Problem

_TIMEOUT_S: Final = 30.0
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer that no Sluice gives: it is told as such."""

    def redirect_request(self, *_: Any) -> None:
        """Raises HTTPError, as for any refusal."""


# Not by way of the machine's HTTP proxy (http_proxy): it would have the token in clear, and be asked for what
# is on this machine.
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())


class Snapshots(Protocol):
    """Where snapshots of `sluice top` come from."""

    def top(self, rows: int, *, why: bool) -> dict[str, Any]:
        """The snapshot of `sluice top`. Raises CommandFailed."""
        ...

    def replication(self, rows: int) -> dict[str, Any]:
        """The snapshot of `sluice top --replication`. Raises CommandFailed."""
        ...


class SocketClient:
    """Asks through the admin socket, a connection for each question."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def top(self, rows: int, *, why: bool) -> dict[str, Any]:
        """The snapshot of `sluice top`, as Snapshots.top."""
        return self.ask({"ask": "top", "rows": rows, "why": why})

    def replication(self, rows: int) -> dict[str, Any]:
        """The snapshot of `sluice top --replication`, as Snapshots.replication."""
        return self.ask({"ask": "replication", "rows": rows})

    def connections(self, rows: int, *, user: str, sort: str) -> dict[str, Any]:
        """The snapshot of `sluice connections`. Raises CommandFailed."""
        return self.ask({"ask": "connections", "rows": rows, "user": _as_text(user), "sort": sort})

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer without its `ok`. Raises CommandFailed if there is none, or it is a no."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(_TIMEOUT_S)
                sock.connect(str(self.path))
                sock.sendall(json.dumps(request).encode() + b"\n")
                with sock.makefile("rb") as answers:
                    line = answers.readline(_MAX_ANSWER_BYTES)
        except OSError as error:
            raise CommandFailed(
                f"{self.path}: {in_words(error)}; does the proxy run, with admin.socket set?"
            ) from None
        answer = _parsed(line, str(self.path))
        if not answer.pop("ok", False):
            raise CommandFailed(f"{self.path}: {answer.get('error', 'no answer')}")
        return answer


class PortClient:
    """Asks through the admin port: only for what does not change anything."""

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        """`url`: `http://host:9308`. `token_file`: with the token of admin.status.token_file, which is asked
        for from other machines. Raises ConfigError for another URL."""
        _check_url(url)
        self._url = url.rstrip("/")
        self._token_file = token_file

    def top(self, rows: int, *, why: bool) -> dict[str, Any]:
        """The snapshot of `sluice top`, as Snapshots.top."""
        return self._get(f"{self._url}/top?rows={rows}&why={'true' if why else 'false'}")

    def replication(self, rows: int) -> dict[str, Any]:
        """The snapshot of `sluice top --replication`, as Snapshots.replication."""
        return self._get(f"{self._url}/replication?rows={rows}")

    def connections(self, rows: int, *, user: str, sort: str) -> dict[str, Any]:
        """The snapshot of `sluice connections`. Raises CommandFailed."""
        asked = urllib.parse.urlencode({"rows": rows, "user": _as_text(user), "sort": sort})
        return self._get(f"{self._url}/connections?{asked}")

    def _get(self, url: str) -> dict[str, Any]:
        request = urllib.request.Request(url)  # noqa: S310  _check_url
        if self._token_file is not None:
            token = _read_token(self._token_file)
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with _DIRECT.open(request, timeout=_TIMEOUT_S) as answer:
                return _parsed(answer.read(_MAX_ANSWER_BYTES), self._url)
        except urllib.error.HTTPError as error:
            with error:
                raise CommandFailed(
                    f"{self._url}: {error.code}: {_detail(error.read(_MAX_ANSWER_BYTES))}"
                ) from None
        except (OSError, urllib.error.URLError) as error:
            raise CommandFailed(f"{self._url}: {in_words(error)}; does the proxy run?") from None
        except http.client.HTTPException:
            raise CommandFailed(f"{self._url}: the answer is no HTTP; is this a Sluice?") from None


def _check_url(url: str) -> None:
    """Raises ConfigError unless it is http(s)://HOST:PORT, and a path maybe, of what HTTP can carry."""
    try:
        parts = urllib.parse.urlsplit(url)
        (parts.hostname or "").encode("idna")
        is_port = parts.port != 0
    except ValueError:
        is_port = False
    is_visible = url.isascii() and url.isprintable() and " " not in url
    if not is_port or parts.scheme not in {"http", "https"} or not parts.hostname or not is_visible:
        raise ConfigError([Problem(f"must be such as http://127.0.0.1:9308, is {url!r}", path="--url")])


def _as_text(argument: str) -> str:
    """Bytes that are not UTF-8 as Kafka reads them in a client id: U+FFFD."""
    return argument.encode(errors="surrogateescape").decode(errors="replace")


def _read_token(file: Path) -> str:
    """Raises CommandFailed that names the file."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file}: cannot be read: {in_words(error)}") from None
    if not is_one_token(token):
        raise CommandFailed(f"{file}: must be a token alone: one line of ASCII without blanks")
    return token


def _detail(data: bytes) -> str:
    """What a refusal says to do."""
    try:
        return str(json.loads(data)["detail"])
    except (ValueError, KeyError, TypeError):
        return "is this a Sluice?"


def _parsed(data: bytes, source: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CommandFailed(f"{source}: the answer is no JSON object; is this a Sluice?")
    return found
