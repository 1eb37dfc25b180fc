"""Answers that the proxy itself gives on one connection, each behind all that are still due from the broker.

A request that is not forwarded has an entry in flight as any other (work LOCAL), whose answer waits here; the
broker's side puts it in when those before it have wholly passed. Nothing due: it goes at once. Pure.
Source: wire-semantics 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sluice.proxy.session.in_flight import InFlight
from sluice.proxy.session.read_gate import Pace

DUE_BYTES: Final = 256 * 1024
"""Answers that wait behind the broker's: with more no further request is begun. One that asks for a long poll
first could have thousands of refusals written, of which each is larger than what it refuses"""


@dataclass(frozen=True, slots=True)
class QuotaQuestion:
    """One request 48 or 49."""

    api_key: int
    version: int
    correlation_id: int
    user: str
    client_id: str
    frame: bytes
    """without its size; not decoded yet"""


class LocalAnswers:
    """Shared by the two sides of a session."""

    __slots__ = ("_pace", "at_once", "due", "due_bytes", "mid_answer", "question")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.at_once: list[bytes] = []
        """for the shell to send and clear, after it has given bytes to the client's side"""
        self.due: list[bytes] = []
        """one for each entry in flight whose work is LOCAL, in the same order"""
        self.due_bytes = 0
        """all of these"""
        self.question: QuotaQuestion | None = None
        """for the shell to take, and to answer later: the last entry in flight, which has no answer in `due`
        until then"""
        self.mid_answer = False
        """the broker's last answer still arrives"""

    def add(self, answer: bytes, in_flight: list[InFlight], entry: InFlight) -> None:
        """An answer of our own; `entry`, whose work is LOCAL, holds its place behind those that are due."""
        if in_flight or self.mid_answer:
            self.wait(answer)
            in_flight.append(entry)
        else:
            self.at_once.append(answer)

    def wait(self, answer: bytes) -> None:
        """Its place is held already."""
        self.due.append(answer)
        self.due_bytes += len(answer)
        if self.due_bytes > DUE_BYTES:
            self._pace.fill()

    def take(self) -> bytes:
        """The next: the broker's answers before it have passed."""
        answer = self.due.pop(0)
        self.due_bytes -= len(answer)
        return answer

    @property
    def has_room(self) -> bool:
        """Requests may be begun again."""
        return self.due_bytes <= DUE_BYTES // 2
