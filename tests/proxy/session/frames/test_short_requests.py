"""Requests other than Produce and Fetch go on when they are whole, if a broker can read them."""

from __future__ import annotations

from sluice.protocol.request_layout import MAX_BYTES
from testkit.frames.frames import METADATA, request
from testkit.proxy.playbook import Shell, session_of


def metadata(topics: int) -> bytes:
    return request(METADATA, 1, {"topics": [{"name": f"topic-{number:03}"} for number in range(topics)]})


def test_a_short_request_goes_on_when_it_is_whole_and_a_long_one_as_it_comes() -> None:
    short, long = metadata(300), metadata(500)
    assert len(short) < MAX_BYTES < len(long)
    shell = Shell(session_of())
    shell.client_sends(short[:-1])
    assert shell.to_broker == b""
    shell.client_sends(short[-1:] + long[:100])
    assert shell.to_broker == short + long[:100]
    shell.client_sends(long[100:])
    assert shell.to_broker == short + long
