"""What a user writes wrong where a running proxy is asked is told by name; exit code 2, or 1 of an answer."""

from __future__ import annotations

import socket
import threading
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


def test_who_does_not_speak_http_is_told(sluice: Sluice) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10.0)

        def answer() -> None:
            with server.accept()[0] as asker:
                asker.recv(65_536)
                asker.sendall(b"\0\0\0\4\0\0\0\1\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        code, out, err = sluice("top", "--once", "--url", url)
        thread.join(10.0)
    assert (code, out, err) == (1, "", f"{url}: the answer is no HTTP; is this a Sluice?\n")
