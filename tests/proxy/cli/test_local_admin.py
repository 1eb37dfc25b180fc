"""What a user writes wrong where a running proxy is asked is told by name; exit code 2, or 1 of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.proxy.sluice_command import Sluice


@pytest.mark.parametrize("command", [("top", "--once"), ("connections",)])
@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "http://\udcff", "http://127.0.0.1:1/ x", "http://127.0.0.1:x", "http://127.0.0.1:99999",
        "http://127.0.0.1:0", "http://a..b", "http://a\nb", f"http://{'a' * 64}", "http://", "ftp://x",
        "127.0.0.1:9308",
    ],
)  # fmt: skip
def test_what_is_no_url_is_refused(sluice: Sluice, command: tuple[str, ...], url: str) -> None:
    code, out, err = sluice(*command, "--url", url)
    assert (code, out) == (2, "")
    assert err.startswith("--url: must be such as http://127.0.0.1:9308, is ")


@pytest.mark.parametrize("token", ["a\nb", "€", "a b", "a\tb", "a\u200bb", ""])
def test_a_token_that_no_header_can_have_is_refused(folder: Path, sluice: Sluice, token: str) -> None:
    (folder / "token").write_text(token)
    code, out, err = sluice("top", "--once", "--url", "http://127.0.0.1:1", "--token-file", "token")
    assert (code, out) == (1, "")
    assert err == "token: must be a token alone: one line of ASCII without blanks\n"


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers one asker so: its URL, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10.0)

        def serve() -> None:
            with server.accept()[0] as asker:
                asked.append(asker.recv(65_536))
                asker.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
        thread.join(10.0)


def test_who_does_not_speak_http_is_told(sluice: Sluice) -> None:
    with answering(b"\0\0\0\4\0\0\0\1\n") as (url, _):
        code, out, err = sluice("top", "--once", "--url", url)
    assert (code, out, err) == (1, "", f"{url}: the answer is no HTTP; is this a Sluice?\n")


def test_the_machines_http_proxy_gets_neither_question_nor_token(
    folder: Path, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens where it is said to be: who went by way of it would be refused."""
    (folder / "token").write_text("secret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(b"HTTP/1.0 403 No\r\n\r\n") as (url, asked):
        code, _, err = sluice("top", "--once", "--url", url, "--token-file", "token")
    assert (code, err) == (1, f"{url}: 403: is this a Sluice?\n")
    assert asked[0].startswith(b"GET /top?")
    assert b"Bearer secret" in asked[0]


def test_a_redirect_is_not_followed(sluice: Sluice) -> None:
    with answering(b"HTTP/1.0 302 There\r\nLocation: http://127.0.0.1:1/top\r\n\r\n") as (url, _):
        code, _, err = sluice("top", "--once", "--url", url)
    assert (code, err) == (1, f"{url}: 302: is this a Sluice?\n")
