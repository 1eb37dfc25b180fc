"""Answers that the proxy itself gives on one connection, each behind all that are still due from the broker.

A request that is not forwarded has an entry in flight as any other (work LOCAL), whose answer waits here; the
broker's side puts it in when those before it have wholly passed. Nothing due: it goes at once. Pure.
Source: wire-semantics 4.2.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sluice.proxy.session.in_flight import InFlight


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

    __slots__ = ("at_once", "due", "mid_answer", "question")

    def __init__(self) -> None:
        self.at_once: list[bytes] = []
        """for the shell to send and clear, after it has given bytes to the client's side"""
        self.due: deque[bytes] = deque()
        """one for each entry in flight whose work is LOCAL, in the same order"""
        self.question: QuotaQuestion | None = None
        """for the shell to take, and to answer later: the last entry in flight, which has no answer in `due`
        until then"""
        self.mid_answer = False
        """the broker's last answer still arrives"""

    def add(self, answer: bytes, in_flight: deque[InFlight], entry: InFlight) -> None:
        """An answer of our own; `entry`, whose work is LOCAL, holds its place behind those that are due."""
        if in_flight or self.mid_answer:
            self.due.append(answer)
            in_flight.append(entry)
        else:
            self.at_once.append(answer)
