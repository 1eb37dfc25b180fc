"""What a client of the soak benchmark was told of each record it sent, in files that outlive it.

Python clients write one entry of 16 bytes for each answer; Java's VerifiableProducer prints lines of JSON.
A record's value is `<client>.<number>`, padded: numbers rise by one over all partitions of a client.
"""

from __future__ import annotations

import json
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

ENTRY: Final = struct.Struct("<Iid")  # number, partition or FAILED, monotonic time in s
FAILED: Final = -1
KEPT_ERRORS: Final = 20
FLUSH_S: Final = 0.5


@dataclass(slots=True)
class Answers:
    """All that one client was told."""

    acknowledged: list[tuple[int, float]] = field(default_factory=list)  # (number, time), in order of time
    failed: list[int] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)  # what it was told of them → how often
    replaced: int = 0
    """how often the producer was beyond use; the old one's last records may then come behind the new one's"""
    unanswered: int = 0
    """sent, and nothing heard of, long after everything was well again"""
    ended_in_order: bool = False

    @property
    def hung(self) -> bool:
        """It waited in vain, or had to be ended."""
        return bool(self.unanswered) or not self.ended_in_order


class AnswerLog:
    """Written by a client from any of its threads, flushed by one."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._entries: deque[bytes] = deque()
        self._flushed_s = 0.0
        self.errors: dict[str, int] = {}
        self.sent = 0
        self.answered = 0
        self.replaced = 0

    def acknowledged(self, number: int, partition: int) -> None:
        self._add(number, partition)

    def failed(self, number: int, error: object) -> None:
        self.errored(error)
        self._add(number, FAILED)

    def errored(self, error: object) -> None:
        """Note an error, of the client as a whole or of a record."""
        shown = repr(error)[:200]
        if shown in self.errors or len(self.errors) < KEPT_ERRORS:
            self.errors[shown] = self.errors.get(shown, 0) + 1

    def flush(self) -> None:
        """Write what has come, at most every FLUSH_S."""
        now_s = time.monotonic()
        if now_s - self._flushed_s >= FLUSH_S:
            self._flushed_s = now_s
            self.flush_now()

    def flush_now(self) -> None:
        while self._entries:
            self._output.write(self._entries.popleft())
        self._output.flush()

    def _add(self, number: int, partition: int) -> None:
        self._entries.append(ENTRY.pack(number, partition, time.monotonic()))
        self.answered += 1


def read_answers(entries: Path, ended: Path) -> Answers:
    """Counterpart of AnswerLog; `ended`: what the client printed, its last line JSON."""
    answers = Answers()
    data = entries.read_bytes()
    for number, partition, at_s in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
        if partition == FAILED:
            answers.failed.append(number)
        else:
            answers.acknowledged.append((number, at_s))
    for line in _json_lines(ended):
        answers.errors = dict(line["errors"])
        answers.replaced = line["replaced"]
        answers.unanswered = line["unanswered"]
        answers.ended_in_order = True
    return answers


def read_java_answers(output: Path) -> Answers:
    """What VerifiableProducer printed. Its times are of the system's clock: shifted to the monotonic one."""
    answers = Answers()
    shift_s = time.monotonic() - time.time()
    for line in _json_lines(output):
        match line.get("name"):
            case "producer_send_success":
                answers.acknowledged.append((_number(line["value"]), line["timestamp"] / 1000 + shift_s))
            case "producer_send_error":
                answers.failed.append(_number(line["value"]))
                shown = f"{line['exception']}: {line['message']}"[:200]
                answers.errors[shown] = answers.errors.get(shown, 0) + 1
            case "shutdown_complete":
                answers.ended_in_order = True
    answers.acknowledged.sort(key=lambda entry: entry[1])
    return answers


def value_of(client: int, number: int, size_bytes: int) -> bytes:
    """A record's value, at least as long as it must be."""
    return b"%d.%d." % (client, number) + b"." * (size_bytes - len(b"%d.%d." % (client, number)))


def client_and_number(value: bytes) -> tuple[int, int]:
    """Counterpart of value_of, also for Java's values, which have no padding."""
    client, number = value.rstrip(b".").split(b".")
    return int(client), int(number)


def _number(value: str) -> int:
    return client_and_number(value.encode())[1]


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue  # a line that the process was killed in
