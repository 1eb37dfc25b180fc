"""The bucket that followers' catching up is paid from: who may go, how much, and whose turn it is.

One bucket a leader for what its followers may take, one a follower for its share from this leader. State is
one time, as in sensors/smooth.py: `tat_ms`, when the tokens are, were or will be zero.

    tokens(now) = rate · (now − zero), at most `saved_ms` of the rate;   a quantum is QUANTUM_MS of the rate

A follower's next fetch may bring a grant of (quantum + tokens) bytes as soon as tokens > 0. The grant is
taken at once, so that two followers are not given the same; what did not come is given back with the answer.
A new bucket owes one quantum. So within t of its making at most rate · t is granted, and within any t
at most rate · (t + saved_ms + one quantum). Of an answer that is larger than its grant (a batch is never
cut) the rest is a debt, which later grants wait for.

Just under Kafka's own throttle (`NATIVE_SHARE`): where the broker throttles at the same rate R, it acts once
its mean over the last 10 to 11 s (replication.quota.window.num · size) is above R. At 0.98 R that mean is at
most 0.98 R · (1 + 2 · 0.1 / 10) = 0.9996 R, and from the start on 0.98 R. So only one of the two acts.

A leader saves one quantum. A follower's bucket saves FOLLOWER_SAVED_MS: two followers that a leader of 8 MB/s
serves by turns are served every 0.2 to 0.4 s, and one that may take 2 MB/s loses what it could not save
meanwhile: with one quantum it got 1.0 to 1.5 MB/s, with 0.3 s and more 1.99. (Then its own broker may see
0.98 R · (1 + 0.5 / 10) = 1.03 R after a time without fetches, and act for as long.)

Worked example, 5,000,000 B/s, quantum 0.1 s = 500,000 B, made at 0 ms (zero = 100 ms):
    100 ms  tokens 0: not yet                    101 ms  tokens 5,000: a grant of 505,000, zero = 201 ms
    120 ms  505,000 bytes come: nothing back     201 ms  not yet     202 ms  the next grant, zero = 302 ms
    210 ms  1,000,000 came for those 505,000: 495,000 more are owed, zero = 401 ms
A debt ends at max_debt_ms, as Kafka's window forgets. Pure; time is an argument. Source: KIP-73.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import ceil
from typing import Final

from sluice.quotas.sensors.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S, SimpleRate

QUANTUM_MS: Final = 100.0
FOLLOWER_SAVED_MS: Final = 400.0
"""of its rate, while it waits for its turn at the leader"""
NATIVE_SHARE: Final = 0.98
MAX_DEBT_MS: Final = 10_000.0
"""(replication.quota.window.num − 1) · size: so long a broker remembers what it let through. It is far below
replica.socket.timeout.ms (30 s) and replica.lag.time.max.ms (30 s), for so long a fetch may be held."""
TURN_GRACE_MS: Final = 50.0
"""how late a follower whose turn it is may come, until the next one is let through"""
_LOOK_AGAIN_MS: Final = 10.0


class ReplicationBucket:
    """The bucket of one leader, or of one follower at this leader."""

    __slots__ = (
        "_ms_per_byte",
        "_turns",
        "max_debt_ms",
        "passed_bytes",
        "quantum_ms",
        "rate",
        "rate_bytes_per_s",
        "saved_ms",
        "tat_ms",
    )

    def __init__(
        self,
        rate_bytes_per_s: float,
        now_ms: float,
        *,
        quantum_ms: float = QUANTUM_MS,
        saved_ms: float = QUANTUM_MS,
        max_debt_ms: float = MAX_DEBT_MS,
        window_num: int = DEFAULT_WINDOW_NUM,
        window_size_s: float = DEFAULT_WINDOW_SIZE_S,
    ) -> None:
        """`rate_bytes_per_s` > 0. `saved_ms`: of the rate, what tokens there may be at most. The windows are
        those over which `rate` is taken."""
        self.rate_bytes_per_s = rate_bytes_per_s
        self._ms_per_byte = 1000.0 / rate_bytes_per_s
        self.quantum_ms = quantum_ms
        self.saved_ms = saved_ms
        self.max_debt_ms = max_debt_ms
        self.tat_ms = now_ms + quantum_ms
        self.passed_bytes = 0
        """of throttled partitions, in sync or not; never falls"""
        self.rate = SimpleRate(window_num, round(window_size_s * 1000.0))
        """of the same"""
        self._turns: dict[Hashable, float] = {}

    def update(self, rate_bytes_per_s: float, now_ms: float) -> None:
        """Go on at another rate; a debt stays the same in bytes, within max_debt_ms."""
        debt_ms = self.tat_ms - now_ms
        if debt_ms > 0.0:
            debt_ms = min(debt_ms * self.rate_bytes_per_s / rate_bytes_per_s, self.max_debt_ms)
            self.tat_ms = now_ms + debt_ms
        self.rate_bytes_per_s = rate_bytes_per_s
        self._ms_per_byte = 1000.0 / rate_bytes_per_s

    def room_bytes(self, claimant: Hashable, now_ms: float) -> int:
        """What may be granted to `claimant` now; 0: nothing yet, `wait_ms` tells for how long.

        Who is told 0 has its place in the queue: while it comes back in time, nobody who asked later is let
        through before it.
        """
        tokens_ms = now_ms - self.tat_ms
        if tokens_ms <= 0.0:
            self._turns[claimant] = self.tat_ms  # its place stays where it was
            return 0
        return self._room(claimant, min(tokens_ms, self.saved_ms), now_ms)

    def _room(self, claimant: Hashable, tokens_ms: float, now_ms: float) -> int:
        turns = self._turns
        while turns:
            first = next(iter(turns))
            if first == claimant:
                break
            if now_ms <= turns[first] + TURN_GRACE_MS:
                turns.setdefault(claimant, now_ms + _LOOK_AGAIN_MS)
                return 0
            del turns[first]  # it has not come back
        return max(1, int((tokens_ms + self.quantum_ms) / self._ms_per_byte))

    def wait_ms(self, now_ms: float) -> float:
        """After room_bytes was 0: when to ask again, at least 1 ms from now."""
        return max(1.0, ceil(self.tat_ms - now_ms) + 1.0) if self.tat_ms >= now_ms else _LOOK_AGAIN_MS

    def grant(self, claimant: Hashable, granted_bytes: int, now_ms: float) -> None:
        """Take what room_bytes gave, or a part of it. Its place in the queue is over."""
        self._turns.pop(claimant, None)
        self._take(granted_bytes, now_ms)

    def settle(self, granted_bytes: int, came_bytes: int, now_ms: float) -> None:
        """The answer to a grant has come, or never will. Without a grant: bytes that were not held back."""
        self.passed_bytes += came_bytes
        if came_bytes:
            self.rate.record(came_bytes, int(now_ms))
        self._take(came_bytes - granted_bytes, now_ms)

    def leave(self, claimant: Hashable) -> None:
        """It will not come back."""
        self._turns.pop(claimant, None)

    def tokens_bytes(self, now_ms: float) -> float:
        """What is in it; negative: owed."""
        return min(now_ms - self.tat_ms, self.saved_ms) / self._ms_per_byte

    def _take(self, taken_bytes: int, now_ms: float) -> None:
        tat_ms = max(self.tat_ms, now_ms - self.saved_ms) + taken_bytes * self._ms_per_byte
        self.tat_ms = min(tat_ms, now_ms + self.max_debt_ms)

    def __repr__(self) -> str:
        return f"<ReplicationBucket {self.rate_bytes_per_s:g} B/s, zero at {self.tat_ms:.1f} ms>"
