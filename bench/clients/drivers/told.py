"""What every driver shares: its work, as JSON gives it, and the lines in which it tells what came of it.

    ack WORKER SEQ                 the client reported the record as stored (in a transaction: as committed)
    fail WORKER SEQ TEXT           the client gave the record up
    read PARTITION OFFSET          a consumer's application got this record
    commit_failed TEXT             a commit, of offsets or of a transaction, was reported as failed
    broke TEXT                     the client, or one worker of it, ended with this error
    closing EPOCH_MS               consumers have all they came for, and are about to leave their group
    end                            nothing more comes

The drivers in Go and for Node write the same lines. Every setting that is not named has the client's default.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMIT_EVERY_S: Final = 1.0
TRIES_OF_A_TRANSACTION: Final = 5
LAST_COMMITS_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a driver is asked to do. The file of JSON has the same keys."""

    client: str
    role: str  # produce, consume, consume-848, transact, stream
    bootstrap: str
    user: str
    password: str
    client_id: str
    topic: str  # written to; read from by consumers and Streams
    partitions: int
    workers: int  # producers, or members of the group
    records: int  # of each producer; all that there is to read
    record_bytes: int
    per_transaction: int
    group: str
    output: str  # the topic that Streams writes to
    within_s: float

    def value(self, worker: int, seq: int) -> bytes:
        """A numbered record: `WORKER:SEQ:` and filling."""
        return f"{worker}:{seq}:".encode().ljust(self.record_bytes, b"x")

    def partition(self, seq: int) -> int:
        """Where a record goes."""
        return seq % self.partitions

    def transactions(self) -> Iterator[range]:
        """The records of one worker, by transactions."""
        for first in range(0, self.records, self.per_transaction):
            yield range(first, min(first + self.per_transaction, self.records))

    @property
    def group_protocol(self) -> str:
        """KIP-848's is called consumer."""
        return "consumer" if self.role == "consume-848" else "classic"

    @property
    def commits_on_revocation(self) -> bool:
        """Whether the client commits by itself as well, above all when it must hand a partition over.

        A KIP-848 group does not wait for its members as the classic one does: the second one's joining takes
        partitions away from the first, which would be read again from where that one had last committed.
        """
        return self.group_protocol == "consumer"

    def transactional_id(self, worker: int) -> str:
        return f"{self.client_id}-{worker}"


def read_work() -> Work:
    """The work that the command line names."""
    return Work(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


_writing: Final = threading.Lock()


def tell(*words: object) -> None:
    """One line, at once. From any thread."""
    line = " ".join(str(word).replace("\n", " ") for word in words)
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def tell_closing() -> None:
    """Consumers are about to leave."""
    tell("closing", int(time.time() * 1000))


def tell_error(what: str, error: BaseException, *words: object) -> None:
    """`what`, further words, and the error with its type."""
    tell(what, *words, f"{type(error).__name__}: {error}"[:300])


class Reading:
    """What a group has read in all: shared by its members, who stop once it is everything."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._seen: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._closing_told = False
        self._committed = threading.Barrier(work.workers)
        self._deadline_s = time.monotonic() + work.within_s

    def got(self, partition: int, offset: int) -> None:
        with self._lock:
            self._seen.add((partition, offset))
        tell("read", partition, offset)

    @property
    def goes_on(self) -> bool:
        """Something is still to come, and there is time."""
        with self._lock:
            done = len(self._seen) >= self._work.records
            if (done or time.monotonic() > self._deadline_s) and not self._closing_told:
                self._closing_told = True
                tell_closing()
        return not self._closing_told

    def wait_for_last_commits(self) -> None:
        """After a member's last commit: until the others have made theirs. Who leaves before that sets off a
        rebalance in which they cannot."""
        with suppress(threading.BrokenBarrierError):
            self._committed.wait(LAST_COMMITS_S)


class Due:
    """True once each COMMIT_EVERY_S: when offsets are to be committed."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + COMMIT_EVERY_S

    def __bool__(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + COMMIT_EVERY_S
        return True


def in_threads(count: int, run: Callable[[int], None]) -> None:
    """`run(number)` in as many threads; an error of one is told, and ends that one alone."""

    def one(number: int) -> None:
        try:
            run(number)
        except Exception as error:  # each library has its own; what matters is what its user sees
            tell_error("broke", error)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_transactions(
    work: Work,
    worker: int,
    begin: Callable[[], None],
    send: Callable[[range], None],
    commit: Callable[[], None],
    abort: Callable[[], None],
) -> None:
    """All of a worker's transactions, each tried TRIES_OF_A_TRANSACTION times at most."""
    for batch in work.transactions():
        for tries_left in reversed(range(TRIES_OF_A_TRANSACTION)):
            try:
                begin()
                send(batch)
                commit()
            except Exception as error:
                tell_error("commit_failed", error)
                if not tries_left:
                    raise
                abort()
            else:
                for seq in batch:
                    tell("ack", worker, seq)
                break
