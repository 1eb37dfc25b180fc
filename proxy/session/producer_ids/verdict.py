"""What may become of a request that brings producer ids, and why one is refused. Pure.

Decided in gate.py. Source: wire-semantics 3.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from sluice.quotas.numbers import number


class Verdict(IntEnum):
    """PASS is 0, so that the common case is one truth test."""

    PASS = 0
    """forward it; nothing is to be told"""
    ADMIT = 1
    """forward it, and call `forwarded` when it goes, or `dropped` if it never does"""
    HOLD = 2
    """keep it, read nothing further, and call `wake` at `wake_at_ms` or when the door grants its ticket"""
    REFUSE = 3
    """answer it in the broker's place; it is done with"""
    CLOSE = 4
    """end the connection without forwarding it"""


class RefusalReason(Enum):
    """Why a request was refused; the value goes into the access record."""

    RATE = "producer_ids_rate"
    """it waited for its turn until its answer budget was over"""
    GATE = "sequence_gate"
    """an earlier batch was refused and has not come again"""
    UNTRACKED = "gate_share_full"
    """as RATE, with no turn to come: the principal has filled its share of gates"""


def message_of(reason: RefusalReason, user: str, ids_per_hour: float | None) -> str:
    """What a refusal tells people; names the quota. `ids_per_hour`: None, there is no such limit any more."""
    quota = f"a quota of user {user} that is no more"
    if ids_per_hour is not None:
        quota = f"quota producer_ids_rate of user {user} ({number(ids_per_hour)} new ids an hour)"
    if reason is RefusalReason.GATE:
        return f"{quota}: an earlier batch of this producer waits for its turn"
    return f"{quota}: this producer id waits for its turn; the batch may be sent again"
