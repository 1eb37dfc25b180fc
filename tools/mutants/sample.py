"""Which mutants are tried: as many of each module as its share of all, drawn by a seed."""

from __future__ import annotations

import random
from typing import Final

from testkit.repository.tracked_files import tracked_files
from tools.mutants.mutant import ROOT, Mutant
from tools.mutants.operators import mutants_of
from tools.structure import GENERATED

MUTATED: Final = (
    "protocol/", "quotas/", "usage/", "proxy/session/", "recalibration/policy/policy.py",
    "recalibration/policy/demand.py", "recalibration/policy/capacity.py",
)  # fmt: skip


def modules() -> list[str]:
    """All that have something to change, sorted."""
    paths = tracked_files(ROOT)
    return [p for p in paths if p.startswith(MUTATED) and p.endswith(".py") and p not in GENERATED]


def sample(count: int, seed: int) -> list[Mutant]:
    """`count` mutants, stratified by module: largest remainders, one of each module at least."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    strata = {path: found for path in modules() if (found := mutants_of(path))}
    shares = _shares({path: len(found) for path, found in strata.items()}, count)
    chosen: list[Mutant] = []
    for path, found in strata.items():
        drawn = chance.sample(range(len(found)), min(shares[path], len(found)))
        chosen += [found[number] for number in sorted(drawn)]
    return chosen


def _shares(sizes: dict[str, int], count: int) -> dict[str, int]:
    whole = sum(sizes.values())
    exact = {path: size * count / whole for path, size in sizes.items()}
    shares = {path: max(1, int(share)) for path, share in exact.items()}
    by_remainder = sorted(exact, key=lambda path: exact[path] - shares[path], reverse=True)
    for path in by_remainder[: max(0, count - sum(shares.values()))]:
        shares[path] += 1
    return shares
