"""Kafka requests → precomputed answers: the cheapest broker that a proxy cannot tell from a real one.

Answers ApiVersions v3, Produce v12, Metadata v12 and Fetch up to v14 in order, with the right correlation id.
A Fetch is answered with a frame of as many bytes as its max_bytes asks for, or with the one that was made for
that max_bytes; Metadata with this broker alone. It stores nothing and checks no record.
"""

import socket
import struct
from collections.abc import Mapping
from typing import Final

from bench.lib.poller import BUFFER, VIEW, Outbox, Poller
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError

_HEADER: Final = struct.Struct(">ihhih")  # size, api key, api version, correlation id, client id length
_INT32: Final = struct.Struct(">i")
_PROBE_ID: Final = b"sluice"


class FakeBroker:
    """Listens on a loopback port of its own."""

    def __init__(
        self,
        poller: Poller,
        topic: str,
        fetch_answer_bytes: tuple[int, ...] = (),
        fetch_answers: Mapping[int, bytes] | None = None,
    ) -> None:
        self.poller = poller
        self.connections: set[_Connection] = set()
        """of clients, through whatever proxy"""
        self.probes: set[_Connection] = set()
        """on which Sluice asks whether the broker answers; it keeps them open"""
        self.produce_answer = bytes(frames.produce_response(topic))
        self.api_versions_answer = bytes(frames.api_versions_response())
        self.fetch_answers = {
            size: memoryview(bytes(frames.fetch_response_of(topic, size))) for size in fetch_answer_bytes
        }
        for max_bytes, answer in (fetch_answers or {}).items():
            self.fetch_answers[max_bytes] = memoryview(answer)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.metadata_answer = bytes(frames.metadata_response("127.0.0.1", self.port))
        poller.add(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            self.connections.add(_Connection(self, sock))

    def close(self) -> None:
        self.poller.remove(self._listener.fileno())
        self._listener.close()
        for connection in [*self.connections, *self.probes]:
            connection.close()


class _Connection:
    def __init__(self, broker: FakeBroker, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._broker = broker
        self._sock = sock
        self._outbox = Outbox(broker.poller, sock)
        self._carry = b""  # the beginning of a frame that is not whole yet
        self._missing = 0  # bytes of a Produce frame still to come, not kept
        self._answer = b""  # what that frame will get
        broker.poller.add(sock.fileno(), self._on_readable, self._outbox.flush)

    def close(self) -> None:
        self._broker.poller.remove(self._sock.fileno())
        self._broker.connections.discard(self)
        self._broker.probes.discard(self)
        self._sock.close()

    def _on_readable(self) -> None:
        kept = len(self._carry)
        if kept:
            VIEW[:kept] = self._carry
        try:
            got = self._sock.recv_into(VIEW[kept:] if kept else BUFFER)
        except BlockingIOError:
            return
        except ConnectionError:
            got = 0
        if not got:
            self.close()
            return
        end = kept + got
        pos = 0
        answers = []
        if self._missing:
            pos = min(self._missing, end)
            self._missing -= pos
            if not self._missing:
                answers.append(self._answer)
        while end - pos >= _HEADER.size:
            size, api_key, _, correlation_id, client_id_bytes = _HEADER.unpack_from(BUFFER, pos)
            frame_end = pos + 4 + size
            if api_key == frames.PRODUCE:
                answer = self._patched(self._broker.produce_answer, correlation_id)
                if frame_end > end:
                    self._missing = frame_end - end
                    self._answer = answer
                    pos = end
                    break
                answers.append(answer)
            elif frame_end > end:
                break
            elif api_key == frames.FETCH:
                self._answer_fetch(pos + 15 + client_id_bytes, correlation_id)
            elif api_key == frames.API_VERSIONS:
                if BUFFER[pos + _HEADER.size : pos + _HEADER.size + client_id_bytes] == _PROBE_ID:
                    self._broker.connections.discard(self)
                    self._broker.probes.add(self)
                answers.append(self._patched(self._broker.api_versions_answer, correlation_id))
            elif api_key == frames.METADATA:
                answers.append(self._patched(self._broker.metadata_answer, correlation_id))
            else:
                raise BenchError(f"the fake broker does not know api key {api_key}")
            pos = frame_end
        self._carry = bytes(VIEW[pos:end]) if pos < end else b""
        if answers:
            self._outbox.send(memoryview(answers[0] if len(answers) == 1 else b"".join(answers)))

    @staticmethod
    def _patched(answer: bytes, correlation_id: int) -> bytes:
        return answer[:4] + _INT32.pack(correlation_id) + answer[8:]

    def _answer_fetch(self, body: int, correlation_id: int) -> None:
        (max_bytes,) = _INT32.unpack_from(BUFFER, body + frames.FETCH_MAX_BYTES_AT)
        answer = self._broker.fetch_answers.get(max_bytes)
        if answer is None:
            raise BenchError(
                f"Fetch arrived with max_bytes {max_bytes}, which nobody sent: was it throttled?"
            )
        self._outbox.send(memoryview(bytes(answer[:4]) + _INT32.pack(correlation_id)), answer[8:])
