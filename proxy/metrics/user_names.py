"""Which users are labels of their own though the configuration does not name them: those under `<default>`.

A client cannot think of a user: the broker, or the proxy, has said yes to it. Still there may be a hundred
thousand. So there are so many names and no more. While there is room, each user that a limit counts gets one.
After that a user who is delayed takes the place of the one who is delayed least, if it was delayed more than
twice as long lately: by that factor two who are delayed alike do not take turns, each time with a new series.

Lately: a delay counts half after five minutes. Pure.
"""

from __future__ import annotations

from typing import Final

HALF_LIFE_MS: Final = 300_000.0
HYSTERESIS: Final = 2.0
_LEAST_MS: Final = 1_000.0
"""of delay lately; less is no reason to take a name from anybody"""
_MOST_WAITING: Final = 1_000
"""users without a name whose delays are added up"""
_MOST_A_STEP: Final = 10
"""names that change hands at once: each ends the series of one user and begins those of another"""


class UserNames:
    """The users that are labels in one process. `most` ≥ 0: names at a time."""

    __slots__ = ("_most", "_named", "_now_ms", "_waiting", "changes")

    def __init__(self, most: int) -> None:
        self._most = most
        self._named: dict[str, float] = {}  # user → ms that it was delayed lately
        self._waiting: dict[str, float] = {}  # the same, of those who have no name
        self._now_ms = 0.0
        self.changes = 0
        """times that a name has gone to another, or is free: who is counted as `other` may have one now"""

    def __len__(self) -> int:
        return len(self._named)

    def __contains__(self, user: object) -> bool:
        return user in self._named

    def name(self, user: str) -> bool:
        """A limit counts this user. True: it has a name, maybe from now on."""
        if user in self._named:
            return True
        if len(self._named) < self._most:
            self._named[user] = self._waiting.pop(user, 0.0)
            return True
        return False

    def delayed(self, user: str, delay_ms: float) -> None:
        """A user was delayed, whether it has a name or not."""
        if user in self._named:
            self._named[user] += delay_ms
        elif user in self._waiting or len(self._waiting) < _MOST_WAITING:
            self._waiting[user] = self._waiting.get(user, 0.0) + delay_ms

    def step(self, now_ms: float) -> set[str]:
        """From time to time: names go to those who were delayed more. Returns who has lost its own."""
        share = 0.5 ** ((now_ms - self._now_ms) / HALF_LIFE_MS)
        self._now_ms = now_ms
        for delays in (self._named, self._waiting):
            for user in delays:
                delays[user] *= share
        lost: set[str] = set()
        if self._waiting:
            named = sorted(self._named, key=self._named.__getitem__)[:_MOST_A_STEP]
            waiting = sorted(self._waiting, key=self._waiting.__getitem__, reverse=True)
            for least, most in zip(named, waiting, strict=False):
                if self._waiting[most] <= max(self._named[least] * HYSTERESIS, _LEAST_MS):
                    break
                self._waiting[least] = self._named.pop(least)
                self._named[most] = self._waiting.pop(most)
                lost.add(least)
                self.changes += 1
            self._waiting = {user: delay_ms for user, delay_ms in self._waiting.items() if delay_ms >= 1.0}
        return lost

    def forget(self, users: set[str]) -> None:
        """Nothing was counted of these for long: their names are free."""
        for user in users:
            if self._named.pop(user, None) is not None:
                self.changes += 1
