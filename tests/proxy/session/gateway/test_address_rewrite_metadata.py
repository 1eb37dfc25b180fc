"""Of an answer to Metadata a gateway keeps no more than the brokers; the topics pass as they arrive."""

from __future__ import annotations

import pytest

from sluice.protocol.codec.wire import Value
from sluice.protocol.errors import ProtocolError
from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import METADATA, answer
from testkit.proxy.gateway import REAL, asking, gateway, rewritten


def metadata_head(version: int = 12, topics_bytes: int = 100_000_000) -> tuple[bytes, bytes]:
    """Metadata up to the end of its brokers, of a frame with `topics_bytes` behind; and as rewritten."""
    brokers: list[Value] = [{"nodeId": i, "host": f"real-{i}.internal", "port": 19_000 + i} for i in range(3)]
    frame = answer(METADATA, version, {"brokers": brokers}, correlation_id=7)
    expected = rewritten(METADATA, version, frame)
    behind = len(frame) - frame.rindex(REAL) - len(REAL) - 4

    def grown(whole: bytes) -> bytes:
        head = whole[: len(whole) - behind]
        return (len(head) - 4 + topics_bytes).to_bytes(4, "big") + head[4:]

    return grown(frame), grown(expected)


@pytest.mark.parametrize("version", [0, 8, 9, 12, 13])
def test_the_topics_of_metadata_are_cut_through_whatever_they_weigh(version: int) -> None:
    """100 MB behind three brokers: the head goes on as soon as they have come, its size as it will be."""
    head, expected = metadata_head(version)
    rack_and_tags = 2 if version >= 9 else (2 if version else 0)
    shell = gateway()
    shell.client_sends(asking(METADATA, version))
    shell.broker_sends(head + bytes(rack_and_tags))
    assert shell.to_client == expected + bytes(rack_and_tags)
    assert shell.session.in_flight == 0
    piece = REAL * 10_000
    for _ in range(3):
        before = len(shell.to_client)
        shell.broker_sends(piece)
        assert shell.to_client[before:] == piece, "topics are not looked at"


def test_metadata_waits_for_its_brokers_byte_by_byte_and_keeps_nothing_behind_them() -> None:
    head, expected = metadata_head(0)
    shell = gateway()
    shell.client_sends(asking(METADATA, 0))
    for at in range(len(head) - 1):
        shell.broker_sends(head[at : at + 1])
        assert shell.to_client == b""
    shell.broker_sends(head[-1:])
    assert shell.to_client == expected


def test_brokers_without_an_end_are_not_kept_for_ever() -> None:
    """A count of 40,000 brokers whose hosts fill more than 512 KiB."""
    shell = gateway()
    shell.client_sends(asking(METADATA, 0))
    nodes: list[Value] = [{"nodeId": i, "host": "h" * 1000, "port": 1} for i in range(1000)]
    frame = answer(METADATA, 0, {"brokers": nodes}, correlation_id=7)
    shell.broker_sends(frame[:500_000])
    with pytest.raises(ProtocolError) as raised:
        shell.broker_sends(frame[500_000:900_000])
    assert DisconnectCause(raised.value.cause) is DisconnectCause.BROKER_MALFORMED
    assert shell.to_client == b""
