"""What clients make the proxy remember: whose oldest goes, and that no walk over all users finds it."""

from __future__ import annotations

import sys
from random import Random
from types import FrameType

import pytest

from sluice.quotas.capped import CappedByUser
from testkit.thorough import cases


def python_calls(entries: CappedByUser[int, int]) -> int:
    """That an entry more takes."""
    count = 0

    def called(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        entries.set("hostile", len(entries), 0)
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("users", [1, 10, 1_000])
def test_an_entry_more_costs_the_same_whatever_the_number_of_users(users: int) -> None:
    entries: CappedByUser[int, int] = CappedByUser(1_000, 1_000)
    for number in range(1_000):
        entries.set(f"user{number % users}", number, 0)
    assert python_calls(entries) < 40
    assert len(entries) == 1_000


def test_the_oldest_of_who_has_most_goes_as_a_walk_over_all_would_find_it() -> None:
    for seed in range(cases(50)):
        random = Random(seed)
        entries: CappedByUser[int, int] = CappedByUser(20, 8)
        model: dict[str, list[int]] = {}
        for step in range(300):
            user, key = random.choice("abcdef"), random.randrange(12)
            known = model.setdefault(user, [])
            action = random.randrange(5)
            if action == 0 and known:
                entries.forget_oldest(user)
                known.pop(0)
                continue
            if key not in known:
                if len(known) >= 8:
                    known.pop(0)
                elif sum(map(len, model.values())) >= 20:
                    most = max(map(len, model.values()))
                    # Of equals any may go; the model follows.
                    entries.set(user, key, step)
                    (gone,) = (name for name in model if name_lost(entries, model, name))
                    assert len(model[gone]) == most
                    model[gone].pop(0)
                    known.append(key)
                    continue
                known.append(key)
            elif action == 1:
                known.remove(key)
                known.append(key)
                entries.set_as_newest(user, key, step)
                continue
            entries.set(user, key, step)
        assert len(entries) == sum(map(len, model.values()))
        for user, known in model.items():
            assert [key for key in range(12) if entries.get(user, key) is not None] == sorted(known)
            left = []
            while entries.oldest(user) is not None:
                left.append(next(key for key in known if entries.get(user, key) == entries.oldest(user)))
                entries.forget_oldest(user)
            assert len(left) == len(known)
        assert (len(entries), entries.users()) == (0, [])


def name_lost(entries: CappedByUser[int, int], model: dict[str, list[int]], user: str) -> bool:
    """Its oldest is gone, and nothing else."""
    return [key for key in model[user] if entries.get(user, key) is None] == model[user][:1] != []


def test_what_is_known_keeps_its_age_unless_it_is_to_be_the_newest() -> None:
    entries: CappedByUser[int, str] = CappedByUser(3, 3)
    for key in (1, 2, 3):
        entries.set("a", key, "old")
    entries.set("a", 1, "new")
    assert entries.oldest("a") == "new"
    entries.set_as_newest("a", 1, "newest")
    entries.set("b", 9, "")
    assert [entries.get("a", key) for key in (1, 2, 3)] == ["newest", None, "old"]
    assert entries.get("c", 1) is None
    assert entries.oldest("c") is None
