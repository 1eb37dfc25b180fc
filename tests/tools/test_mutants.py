"""Mutants change what they say, are drawn alike by a seed, and reach the process that runs the tests."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tools.mutants import operators
from tools.mutants.argued import ARGUED
from tools.mutants.mutant import ROOT, Mutant, Process
from tools.mutants.named import NAMED
from tools.mutants.operators import mutants_of
from tools.mutants.sample import modules, sample

SOURCE = '''
LIMIT: Final = 5
NAME: Final = "text"


def judged(found: int = 7) -> bool:
    """Docs."""
    assert found != 3
    if found < LIMIT and not found:
        raise ValueError(f"{found + 1}")
    return min(found, 3) == found[:2]


class Thing:
    def __init__(self) -> None:
        self.found = 1

    def __repr__(self) -> str:
        return str(1)

    def reset(self) -> None:
        self.found = True
'''


def changes(monkeypatch: pytest.MonkeyPatch, source: str) -> list[tuple[str, str, str, str]]:
    monkeypatch.setattr(operators, "source_of", lambda path: source.encode())
    return [
        (found.where, found.operator, source[found.begin : found.end], found.replacement)
        for found in mutants_of("any.py")
    ]


def test_every_operator_finds_its_places_and_none_that_no_behaviour_hangs_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert changes(monkeypatch, SOURCE) == [
        ("LIMIT", "constant", "5", "6"),
        ("judged", "branch", "found < LIMIT and not found", "(not (found < LIMIT and (not found)))"),
        ("judged", "branch", "found < LIMIT and not found", "(found < LIMIT or not found)"),
        ("judged", "comparison", "found < LIMIT", "(found <= LIMIT)"),
        ("judged", "branch", "not found", "(found)"),
        ("judged", "dropped", 'raise ValueError(f"{found + 1}")', "pass"),
        ("judged", "comparison", "min(found, 3) == found[:2]", "(min(found, 3) != found[:2])"),
        ("judged", "bound", "min", "max"),
        ("judged", "constant", "3", "4"),
        ("judged", "bound", "2", "2 - 1"),
        ("judged", "constant", "2", "3"),
        ("Thing.__init__", "constant", "1", "2"),
        ("Thing.reset", "dropped", "self.found = True", "pass"),
        ("Thing.reset", "constant", "True", "False"),
    ]


@pytest.mark.long
def test_a_sample_is_the_same_for_a_seed_and_has_every_module_by_its_size() -> None:
    chosen = sample(300, seed=7)
    assert len(chosen) >= 300
    assert chosen == sample(300, seed=7)
    assert chosen != sample(300, seed=8)
    drawn = Counter(mutant.path for mutant in chosen)
    sizes = {path: len(found) for path in modules() if (found := mutants_of(path))}
    assert drawn.keys() == sizes.keys()
    whole = sum(sizes.values())
    assert all(abs(drawn[path] - 300 * size / whole) <= 1.0 for path, size in sizes.items())


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named.name)
def test_a_named_mutant_has_its_place(named: object) -> None:
    assert isinstance(named, type(NAMED[0]))
    mutant = named.mutant()
    assert mutant.source() != (ROOT / mutant.path).read_bytes()
    compile(mutant.source(), mutant.path, "exec")


def test_what_is_argued_is_a_mutant_of_the_source_as_it_stands() -> None:
    """A reason goes with the text that it is about."""
    paths = {path for path, _, _ in ARGUED}
    known = {(found.path, found.where, found.change) for path in paths for found in mutants_of(path)}
    assert set(ARGUED) <= known


APPLIED = """
import gc
from sluice.protocol import headers, primitives
from sluice.protocol.headers import SIZE_BYTES
from sluice.protocol.produce import read_acks
from sluice.proxy.session.read_gate import Pace
import sluice.proxy.session.requests as requests
from tools.mutants.mutant import Mutant, Process
from tools.mutants.operators import mutants_of

gc.freeze()  # as the suite does behind its collection
process = Process()
def apply(path, where, operator, change):
    (mutant,) = [m for m in mutants_of(path) if (m.where, m.operator, m.change) == (where, operator, change)]
    process.apply(mutant)

held = Pace()
fill = held.fill
apply("proxy/session/read_gate.py", "Pace.fill", "dropped", "self.is_full = True → pass")
fill()
assert not held.is_full
apply("protocol/headers.py", "SIZE_BYTES", "constant", "4 → 5")
assert (headers.SIZE_BYTES, requests.SIZE_BYTES) == (5, 5)
"""


def test_a_mutant_reaches_objects_that_were_made_before_and_constants_that_were_imported() -> None:
    """In a process of its own, which it changes for good."""
    subprocess.run([sys.executable, "-c", APPLIED], cwd=ROOT, check=True)


def test_a_function_that_is_not_there_is_no_place() -> None:
    from tools.mutants.mutant import NotApplicable

    mutant = Mutant("protocol/names.py", "nothing", "dropped", 0, 1, "pass", 1, 1)
    with pytest.raises(NotApplicable):
        Process().apply(mutant)
