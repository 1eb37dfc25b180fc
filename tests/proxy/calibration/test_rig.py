"""What a calibration does when its broker fails, or its user has had enough."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from sluice.proxy.calibration.rig import BrokerLink, CalibrationError, Rig


@contextmanager
def silent_broker() -> Iterator[tuple[int, SimpleQueue[bytes]]]:
    """Its port, and the first bytes of each connection; it takes all and answers nothing."""
    heard: SimpleQueue[bytes] = SimpleQueue()
    kept: list[socket.socket] = []

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            kept.append(taken)
            heard.put(taken.recv(64))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1], heard
        listening.shutdown(socket.SHUT_RDWR)
    for one in kept:
        one.close()


class Interrupted(BrokerLink):
    """Ctrl-C while an answer is waited for."""

    def _exchange(self, frame: bytes) -> memoryview:
        self._sock.sendall(frame)
        raise KeyboardInterrupt


def test_at_ctrl_c_it_is_cleaned_up_in_haste_and_told_what_may_be_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.proxy.calibration.rig._IN_HASTE_S", 0.05)
    with silent_broker() as (port, heard):
        with (
            Interrupted("127.0.0.1", port) as link,
            pytest.raises(KeyboardInterrupt),
            Rig(link, "127.0.0.1", port, "run"),
        ):
            pass
        assert [heard.get(timeout=60)[4:6] for _ in range(2)] == [
            b"\0\3",
            b"\0\x14",
        ]  # Metadata; then DeleteTopics
    told = f"sluice-calibration-run… may be left at the broker: 127.0.0.1:{port}: timed out"
    assert told in capsys.readouterr().err


def test_who_fails_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(CalibrationError, match=f"127.0.0.1:{port}: connection refused"):
        BrokerLink("127.0.0.1", port)
