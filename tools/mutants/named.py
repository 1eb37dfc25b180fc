"""Mutants that once survived all tests, by name: each must be killed, on every run.

Told by the function and by the text that is changed, so that they keep their place when lines move; one that
has no place any more raises LookupError, for then its successor has to be named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tools.mutants.mutant import Mutant, source_of
from tools.mutants.operators import spans_of


@dataclass(frozen=True, slots=True)
class Named:
    """`new` in the place of `old`, which stands once in the function."""

    name: str
    path: str
    where: str
    old: str
    new: str

    def mutant(self) -> Mutant:
        """As the others. Raises LookupError."""
        source = source_of(self.path)
        begin, end = spans_of(self.path).get(self.where, (0, 0))
        old = self.old.encode()
        if source.count(old, begin, end) != 1:
            raise LookupError(f"{self.name}: {self.old!r} stands not once in {self.path}, {self.where}")
        at = source.index(old, begin, end)
        line = source.count(b"\n", 0, at) + 1
        last = line + self.old.count("\n")
        return Mutant(self.path, self.where, "named", at, at + len(old), self.new, line, last)


_SESSION: Final = "proxy/session/"

NAMED: Final = (
    Named("a: an answer that is cut through is not noted", _SESSION + "responses.py",
          "AnswerSide._cut_through", "self._local.mid_answer = True", "pass"),
    Named("b: a batch shorter than its head, of a whole request", "protocol/produce.py",
          "ProduceUsage._read_simple", "or size < HEAD_BYTES", ""),
    Named("b: a batch shorter than its head, in the walk", "protocol/produce.py",
          "ProduceUsage._walk_batches", "elif size < HEAD_BYTES:", "elif False:"),
    Named("c: the shortest request, a byte before its end", _SESSION + "requests.py",
          "RequestSide.data", "end - pos < REQUEST_HEAD_BYTES", "end - pos < REQUEST_HEAD_BYTES - 1"),
    Named("c: the shortest request, whole", _SESSION + "requests.py",
          "RequestSide.data", "end - pos < REQUEST_HEAD_BYTES", "end - pos <= REQUEST_HEAD_BYTES"),
    Named("d: a suspension while something else shuts the gate", _SESSION + "read_gate.py",
          "Pace.suspend", "return False", "pass"),
    Named("e: a new client id fetches from another bucket, by its old poll", _SESSION + "fetch/turns.py",
          "FetchTurns.use", "self._polls.pop(sensor, -inf)", "self._polls.pop(before, -inf)"),
    Named("e: a new client id fetches from another bucket, at its old place", _SESSION + "fetch/turns.py",
          "FetchTurns.use", "self._place = FetchPlace()", "pass"),
    Named("f: answers of the proxy's own, when the session closes", _SESSION + "session.py",
          "Session.closed", "if entry[9] is not LOCAL", ""),
    Named("g: a replica's cap after an answer without records", _SESSION + "replication/mirror.py",
          "SessionMirror.answered", "min(2 * cap, max_bytes)", "min(cap, max_bytes)"),
    Named("h: throttled windows stay at risk", "recalibration/policy/demand.py",
          "_survival", "free + day.throttled.get(bucket, 0)", "free"),
)  # fmt: skip
