"""What a driver told, and what the broker has → figures. Pure: no clock, no files.

Records are numbered by worker and sequence; `stored` has them partition by partition in the order of offsets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Numbered = tuple[int, int]
"""worker and sequence of a record that was written; partition and offset of one that was read"""
MOST_NOTES: Final = 4
NOTE_CHARACTERS: Final = 160


@dataclass(slots=True)
class Told:
    """All that one driver has told."""

    acked: list[Numbered] = field(default_factory=list)
    failed: list[Numbered] = field(default_factory=list)
    read: list[Numbered] = field(default_factory=list)
    commit_failures: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    closing_ms: int | None = None
    ended: bool = False


@dataclass(slots=True)
class Figures:
    """What one client did in one role on one side."""

    records: int
    lost: int = 0
    """reported as stored (of a consumer: committed as read), and not there"""
    doubled: int = 0
    reordered: int = 0
    gave_up: int = 0
    """reported as failed for good, or neither stored nor failed when the time was up"""
    rebalances: int = 0
    commit_failures: int = 0
    seconds: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)

    def faults(self) -> dict[str, int]:
        """The figures that should be 0."""
        return {name: getattr(self, name) for name in FAULTS}


FAULTS: Final = ("lost", "doubled", "reordered", "gave_up", "rebalances", "commit_failures")


def read_told(lines: Iterable[str]) -> Told:
    """The lines of a driver's output; those that are no words of its own are left out."""
    told = Told()
    for line in lines:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word in ("ack", "read", "fail"):
            first, second, *text = rest.split(" ", 2)
            number = (int(first), int(second))
            {"ack": told.acked, "read": told.read, "fail": told.failed}[word].append(number)
            if text:
                told.notes[_note("failed", text[0])] += 1
        elif word == "closing":
            told.closing_ms = int(rest)
        elif word == "end":
            told.ended = True
        elif word in ("commit_failed", "broke", "error"):
            told.commit_failures += word == "commit_failed"
            told.notes[_note(word, rest)] += 1
    return told


def _note(what: str, text: str) -> str:
    return f"{what}: {text}"[:NOTE_CHARACTERS]


def number_of(value: bytes) -> Numbered:
    """Worker and sequence of a record's value."""
    worker, seq, _ = value.split(b":", 2)
    return int(worker), int(seq)


def judge_producers(
    told: Told, stored: Mapping[int, Sequence[Numbered]], sent: Iterable[Numbered]
) -> Figures:
    """`stored`: by partition. A record that is there and was not acknowledged is given up, not doubled."""
    all_sent, acked = set(sent), set(told.acked)
    copies = Counter(number for numbers in stored.values() for number in numbers)
    return Figures(
        records=len(all_sent),
        lost=len(acked - copies.keys()),
        doubled=sum(copies.values()) - len(copies),
        reordered=sum(_out_of_order(numbers) for numbers in stored.values()),
        gave_up=len(all_sent - acked),
        commit_failures=told.commit_failures,
        notes=_most(told),
    )


def judge_consumers(told: Told, there: Mapping[int, Sequence[int]], committed: Mapping[int, int]) -> Figures:
    """`there`: the offsets of each partition; `committed`: where the group would go on."""
    read = Counter(told.read)
    unread = [
        (partition, offset)
        for partition, offsets in there.items()
        for offset in offsets
        if not read[partition, offset]
    ]
    lost = sum(offset < committed.get(partition, 0) for partition, offset in unread)
    by_partition = defaultdict(list)
    for partition, offset in told.read:
        by_partition[partition].append((partition, offset))
    return Figures(
        records=sum(map(len, there.values())),
        lost=lost,
        doubled=sum(read.values()) - len(read),
        reordered=sum(_out_of_order(numbers) for numbers in by_partition.values()),
        gave_up=len(unread) - lost,
        commit_failures=told.commit_failures,
        notes=_most(told),
    )


def judge_streams(
    told: Told,
    source: Mapping[int, Sequence[Numbered]],
    copied: Mapping[int, Sequence[Numbered]],
    committed: Mapping[int, int],
) -> Figures:
    """`source` begins at offset 0 in each partition; what is `copied` is what a reader of commits sees."""
    copies = Counter(number for numbers in copied.values() for number in numbers)
    done = {
        number for partition, numbers in source.items() for number in numbers[: committed.get(partition, 0)]
    }
    everything = {number for numbers in source.values() for number in numbers}
    return Figures(
        records=len(everything),
        lost=len(done - copies.keys()),
        doubled=sum(copies.values()) - len(copies),
        reordered=sum(_out_of_order(numbers) for numbers in copied.values()),
        gave_up=len(everything - done - copies.keys()),
        commit_failures=told.commit_failures,
        notes=_most(told),
    )


def _out_of_order(numbers: Iterable[Numbered]) -> int:
    """How many came behind a later one of the same worker. A second copy does not count: it is doubled."""
    latest: dict[int, int] = {}
    seen: set[Numbered] = set()
    found = 0
    for worker, seq in numbers:
        if (worker, seq) in seen:
            continue
        seen.add((worker, seq))
        found += seq < latest.get(worker, -1)
        latest[worker] = max(seq, latest.get(worker, -1))
    return found


def _most(told: Told) -> dict[str, int]:
    return dict(told.notes.most_common(MOST_NOTES))
