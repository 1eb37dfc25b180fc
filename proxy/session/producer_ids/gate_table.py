"""Sequence gates: after a refusal no later batch of the producer and partition overtakes the refused one.

A broker that does not know a producer id accepts any first sequence, and then refuses the lower one for good.
So from the first refusal on, what is above the lowest refused sequence is refused too, until that one went.
What was refused meanwhile for being above it is then the gate: else the client's next batch, on its way
before that refusal is heard, would overtake it (on the wire: 1 refused, 0 again, 2; the broker misses 1).

    batch of the gate's epoch   at or below the gate: may pass; when it is forwarded the gate moves up to the
                                lowest of those refused above it, or goes
                                above: blocked
    of a lower epoch            blocked: its producer has numbered its records anew
    of a higher epoch           may pass, and lifts the gate when it is forwarded

One gate for (producer id, topic, partition); it ends 120 s after it came or moved, or after a batch that
could have lifted it was refused last. (Were it prolonged by those above it too, a client that gave that batch
up would wait for ever.)
Each user has a table of his own, of fixed size; what finds no room there is told in untracked.py. Pure.
Source: wire-semantics 3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from sluice.proxy.session.producer_ids.batches import Batches, GateKey, is_above
from sluice.proxy.session.producer_ids.held_batches import HeldBatches
from sluice.proxy.session.producer_ids.large_turns import LargeTurns
from sluice.proxy.session.producer_ids.untracked import Untracked
from sluice.quotas.producer_ids.store import DEFAULT_SAMPLE_MS

DEFAULT_MAX_GATES: Final = 20_000
DEFAULT_EXPIRY_MS: Final = 120_000.0
MAX_TOPIC_BYTES: Final = 249
"""Kafka's longest topic name: no broker takes a batch for a longer one, so that nothing can be overtaken"""
_MAX_LATER: Final = 8
"""refused sequences above a gate that are remembered, the lowest: a producer has 5 batches on their way"""

Gate: TypeAlias = tuple[int, int, float, tuple[int, ...]]
"""epoch, lowest refused sequence, since when, those refused above it in their order"""


def _with(later: tuple[int, ...], sequence: int) -> tuple[int, ...]:
    """One more, in its order; the highest is forgotten where there are too many."""
    if sequence in later:
        return later
    at = sum(is_above(sequence, other) for other in later)
    return (*later[:at], sequence, *later[at:])[:_MAX_LATER]


class GateTable:
    """The gates of one user."""

    __slots__ = (
        "_expiry_ms", "_max_gates", "gates", "held", "large", "overflows", "untracked", "untracked_until_ms",
        "used_ms",
    )  # fmt: skip

    def __init__(self, max_gates: int = DEFAULT_MAX_GATES, expiry_ms: float = DEFAULT_EXPIRY_MS) -> None:
        self.gates: dict[GateKey, Gate] = {}
        """in the order of their times"""
        self.large = LargeTurns()
        """of requests with many batches"""
        self.held = HeldBatches()
        """batches that are not refused, and block as gates do while a connection holds them"""
        self._max_gates = max_gates
        self._expiry_ms = expiry_ms
        self.untracked_until_ms = 0.0
        """a refused batch may have no gate: until then an unseen id must begin with sequence 0"""
        self.untracked: Untracked | None = None
        """first batches that were refused without a gate; None: there are none"""
        self.overflows = 0
        """gates for which there was no room; never falls"""
        self.used_ms = 0.0
        """when it was asked for last"""

    def blocks(self, batches: Batches, now_ms: float) -> bool:
        """Would any batch of a request overtake a refused one, or one that another connection holds?"""
        self.expire(now_ms)
        gates, untracked, held = self.gates, self.untracked, self.held
        if not self.is_in_use:
            return False
        for key, (epoch, sequence) in batches.items():
            gate = gates.get(key)
            if gate is not None and (epoch < gate[0] or (epoch == gate[0] and is_above(sequence, gate[1]))):
                return True
            if held and held.before(key, epoch, sequence) is not None:
                return True
            if untracked is not None and sequence and untracked.has(key, epoch):
                return True
        return False

    @property
    def awaits(self) -> bool:
        """Something was refused and has not come again."""
        return bool(self.gates) or self.untracked is not None

    @property
    def is_in_use(self) -> bool:
        """Something was refused and has not come again, or is held."""
        return self.awaits or bool(self.held)

    def may_be_lifted_by(self, batches: Batches) -> bool:
        """When these go to the broker, it is to be told (`forwarded`)."""
        return self.awaits or self.held.has_any(batches)

    def may_hide(self, batches: Batches, resumed_ids: Sequence[int], now_ms: float) -> bool:
        """Might an unseen id of these be ahead of a refused batch that has no gate? One that begins with
        sequence 0 is not, whatever its epoch: of each epoch that is the first."""
        if not resumed_ids or self.untracked_until_ms <= now_ms:
            return False
        resumed = frozenset(resumed_ids)
        return any(sequence > 0 and key[0] in resumed for key, (_, sequence) in batches.items())

    def refused(self, batches: Batches, now_ms: float) -> None:
        """A request is refused: from now on nothing overtakes any of its batches."""
        gates = self.gates
        for key, (epoch, sequence) in batches.items():
            gate = gates.get(key)
            later: tuple[int, ...] = ()
            if gate is None:
                if len(key[1]) > MAX_TOPIC_BYTES:
                    continue
                if len(gates) >= self._max_gates:
                    self.overflows += 1
                    self.untracked_until_ms = now_ms + self._expiry_ms
                    if not sequence:
                        self._remember(key, epoch, now_ms)
                    continue
                if (first := self.held.before(key, epoch, sequence)) is not None:
                    # It was refused for that one's sake, and is the gate when that has gone.
                    gates[key] = (epoch, first, now_ms, (sequence,))
                    continue
            elif epoch < gate[0]:
                continue
            elif epoch == gate[0]:
                lowest, later = gate[1], gate[3]
                if is_above(sequence, lowest):
                    gates[key] = (epoch, lowest, gate[2], _with(later, sequence))
                    continue
                if sequence != lowest:
                    later = _with(later, lowest)
                del gates[key]
            else:
                del gates[key]
            gates[key] = (epoch, sequence, now_ms, later)

    def _remember(self, key: GateKey, epoch: int, now_ms: float) -> None:
        if self.untracked is None:
            self.untracked = Untracked(self._expiry_ms)
        self.untracked.add(key, epoch, now_ms)

    def forwarded(self, batches: Batches, now_ms: float) -> None:
        """A request goes to the broker: what it was waited for is lifted, or waits for the next now."""
        gates, untracked, held = self.gates, self.untracked, self.held
        for key, (epoch, sequence) in batches.items():
            if held:
                held.forwarded(key, epoch, sequence)
            if untracked is not None and not sequence:
                untracked.lift(key, epoch)
            gate = gates.get(key)
            if gate is not None and (
                epoch > gate[0] or (epoch == gate[0] and not is_above(sequence, gate[1]))
            ):
                del gates[key]
                if epoch == gate[0] and gate[3]:
                    gates[key] = (epoch, gate[3][0], now_ms, gate[3][1:])

    def expire(self, now_ms: float) -> None:
        """Drop the gates whose batch was not brought again for the expiry."""
        gates = self.gates
        while gates:
            key = next(iter(gates))
            if gates[key][2] + self._expiry_ms > now_ms:
                break
            del gates[key]
        if self.untracked is not None and self.untracked.expire(now_ms):
            self.untracked = None

    def __len__(self) -> int:
        return len(self.gates)

    def __repr__(self) -> str:
        return f"<GateTable {len(self.gates)} of {self._max_gates}, {self.overflows} overflows>"


class GateTables:
    """The tables of all users; each has his own share, so that none is refused for another's sake, also of
    those whose ids are counted together."""

    __slots__ = ("_expiry_ms", "_idle_ms", "_max_gates", "_tables")

    def __init__(
        self,
        max_gates: int = DEFAULT_MAX_GATES,
        expiry_ms: float = DEFAULT_EXPIRY_MS,
        idle_ms: float = DEFAULT_SAMPLE_MS,
    ) -> None:
        """`max_gates`: of each user. `idle_ms`: how long a connection may keep a table without asking
        for it again; at least the sample of the store."""
        self._max_gates = max_gates
        self._expiry_ms = expiry_ms
        self._idle_ms = idle_ms
        self._tables: dict[str, GateTable] = {}

    def table(self, user: str, now_ms: float) -> GateTable:
        """A user's, made on first use. Ask again for every look-up of an id."""
        table = self._tables.get(user)
        if table is None:
            table = self._tables[user] = GateTable(self._max_gates, self._expiry_ms)
        table.used_ms = now_ms
        return table

    def has_gates(self, user: str) -> bool:
        """A batch of this user was refused and has not come again, or is held."""
        table = self._tables.get(user)
        return table is not None and table.is_in_use

    def expire(self, now_ms: float) -> None:
        """Drop gates that are over, and tables of which nothing is left."""
        for user, table in list(self._tables.items()):
            table.expire(now_ms)
            idle = table.used_ms + self._idle_ms <= now_ms
            if idle and not table.is_in_use and table.untracked_until_ms <= now_ms:
                del self._tables[user]

    def counts(self) -> list[tuple[str, int]]:
        """(user, gates) of all users, for metrics."""
        return [(user, len(table)) for user, table in self._tables.items()]

    def __len__(self) -> int:
        """Gates of all users."""
        return sum(len(table) for table in self._tables.values())
