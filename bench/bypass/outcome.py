"""What an attack got through → how far that is from its limit and from the stated bound. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

FETCH: Final = "fetch"
PRODUCE: Final = "produce"
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attack on one side."""

    limit: str  # in words
    allowed: float  # what the limit lets through in the time, its burst included
    bound: float  # what the documents say may pass in the time
    passed: float
    unit: str = "bytes"
    detail: Mapping[str, object] = field(default_factory=dict)

    @property
    def vs_limit(self) -> float:
        return self.passed / self.allowed

    @property
    def vs_bound(self) -> float:
        return self.passed / self.bound


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack's outcome on both sides; `native` is None where the broker has no such quota."""

    name: str
    shown: str
    kind: str
    bound: str  # in words
    sluice: Outcome | None
    native: Outcome | None = None
    counts_for_fetch: bool = False  # one of those that must stay at the fetch limit
    native_ended: str = ""  # how the attack on the broker itself ended it


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions that make producer state, against a broker with a small heap."""

    seconds: float
    survived: bool
    died_after_s: float | None
    ids_offered: int
    ids_taken: int  # AddPartitionsToTxn said yes
    pairs: int  # (id, partition) entries made
    ids_bound: float | None  # None: no limit there
    how: str


def at_rate(rate_per_s: float, seconds: float, burst_s: float) -> float:
    """What a token bucket lets through: rate × (time + burst)."""
    return rate_per_s * (seconds + burst_s)


def of_outstanding(
    rate_per_s: float, outstanding: float, longest_wait_s: float, seconds: float, burst_s: float
) -> float:
    """What may pass where nothing waits longer than that: max(rate, outstanding ÷ longest wait) × time.

    Source: wire-semantics 1.6. What is outstanding when the time ends may be on its way still.
    """
    return at_rate(max(rate_per_s, outstanding / longest_wait_s), seconds, burst_s)


def ids_bound(per_hour: float, burst: float, forced_share: float, seconds: float) -> float:
    """Ids that may be admitted in the time: N · (burst + T), and the forced bucket's share of it.

    A bucket holds at least one, or a low limit would admit nobody; an id is admitted whole. Source:
    wire-semantics 3.
    """
    hours = seconds / 3600
    rates = (per_hour, forced_share * per_hour)
    return float(sum(int(max(rate * burst, 1.0) + rate * hours) for rate in rates))


def summary_of(attacks: Iterable[Attack], transactions: Mapping[str, Transactions]) -> dict[str, object]:
    """What `make bench-bypass` promises, and each attack's figure."""
    summary: dict[str, object] = {}
    ran = [(attack, attack.sluice) for attack in attacks if attack.sluice is not None]
    worst = [outcome.vs_bound for _, outcome in ran]
    fetches = [outcome.vs_limit for attack, outcome in ran if attack.counts_for_fetch]
    bounded = transactions.get("sluice")
    if bounded is not None and bounded.ids_bound:
        worst.append(bounded.ids_taken / bounded.ids_bound)
    if worst:
        summary["worst_vs_stated_bound"] = round(max(worst), 3)
    if fetches:
        summary["worst_fetch_vs_limit"] = round(max(fetches), 3)
    for prefix, side in (("", "sluice"), ("native_", "native")):
        produce = [
            outcome.vs_limit
            for attack in attacks
            if attack.kind == PRODUCE and (outcome := getattr(attack, side)) is not None
        ]
        if produce:
            summary[f"{prefix}produce_vs_limit"] = round(max(produce), 3)
    if bounded is not None:
        summary["broker_survives_transactions"] = bounded.survived
    if "native" in transactions:
        summary["native_broker_survives_transactions"] = transactions["native"].survived
    summary["vs_stated_bound"] = {attack.name: round(outcome.vs_bound, 3) for attack, outcome in ran}
    return summary
