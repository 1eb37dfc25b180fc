"""Survivors that no test can kill, and why: what they change is not seen by anybody.

A reason is found by the function and by what was changed; it falls away with the text that it is about.
"""

from __future__ import annotations

from typing import Final

from tools.mutants.mutant import Mutant

ARGUED: Final[dict[tuple[str, str, str], str]] = {}
"""(path, where, change): the reason"""


def reason_of(mutant: Mutant) -> str:
    """ "" if nothing is said for it."""
    return ARGUED.get((mutant.path, mutant.where, mutant.change), "")
