"""Bytes kept for clients that do not take them: bounded by user and in all, and nobody pays for others."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.proxy.connection.budget import FLOOR_BYTES, MIB, WINDOW_BYTES, BufferAccount, BufferBudget

KIB = 1024
Account = BufferAccount[str]


def keep(budget: BufferBudget[str], account: Account, kept_bytes: int) -> list[Account]:
    """Tell it, and close what has to be closed for it, as the shell does. Returns those that were closed."""
    closed = []
    while (over := budget.kept(account, kept_bytes)) is not None:
        budget.close(over)
        closed.append(over)
        if over is account:
            break
    return closed


def stops_taking(budget: BufferBudget[str], user: str, connections: int) -> list[Account]:
    """So many connections read once each, as much as they may, and all of it is kept."""
    accounts = [budget.open(user, f"{user}-{number}") for number in range(connections)]
    for account in accounts:
        if account.owner is not None:
            keep(budget, account, account.share.window_bytes)
    return accounts


def living(accounts: list[Account]) -> int:
    return sum(account.owner is not None for account in accounts)


# The bound, with figures ------------------------------------------------------------------------------------


def test_the_worked_example() -> None:
    """5,000 connections of alice that read no answers keep 110.125 MiB at most; bob does not notice."""
    budget = BufferBudget[str](256 * MIB, 128 * MIB)
    bob = budget.open("bob", "bob")
    alice = stops_taking(budget, "alice", 5_000)
    kept = alice[0].share.kept_bytes
    assert 32 * MIB - 64 * KIB < kept <= 32 * MIB + 5_000 * FLOOR_BYTES
    assert (32 * MIB + 5_000 * FLOOR_BYTES) / MIB == 110.125
    assert living(alice) == 5_000
    assert bob.share.window_bytes == WINDOW_BYTES


def test_beyond_what_the_floor_has_room_for_the_longest_stopped_pay() -> None:
    """6,144 pieces of the floor fit above the soft quarter; those below it are larger. Both ways are stopped
    here, so 5,000 connections are 10,000 directions."""
    budget = BufferBudget[str](256 * MIB, 128 * MIB)
    bob = budget.open("bob", "bob")
    keep(budget, bob, 5 * MIB)
    alice = stops_taking(budget, "alice", 10_000)
    survivors = living(alice)
    assert 6_144 <= survivors < 10_000
    assert alice[-1].share.kept_bytes <= 128 * MIB
    assert all(account.owner is None for account in alice[:5])  # they have stood still for the longest
    assert alice[-1].owner is not None
    assert budget.closed_for_share == 10_000 - survivors
    assert (bob.owner, bob.share.window_bytes) == ("bob", WINDOW_BYTES)


def test_the_window_shrinks_as_the_share_fills_and_grows_again() -> None:
    """Share 128 MiB, soft 32: the window is a quarter of what is left of soft."""
    budget = BufferBudget[str](256 * MIB, 128 * MIB)
    account = budget.open("alice", "a")
    windows = []
    for kept_mib in (0, 28, 30, 31, 32, 100, 31, 0):
        keep(budget, account, kept_mib * MIB)
        windows.append(account.share.window_bytes // KIB)
    assert windows == [1024, 1024, 512, 256, 16, 16, 256, 1024]


def test_a_share_is_half_of_the_budget_at_most() -> None:
    for share in (None, 300 * MIB, 128 * MIB):
        budget = BufferBudget[str](256 * MIB, share)
        account = budget.open("alice", "a")
        assert keep(budget, account, 128 * MIB) == []
        assert keep(budget, account, 128 * MIB + 1) == [account]


def test_a_share_without_room_for_the_floor_is_refused() -> None:
    BufferBudget[str](128 * KIB)
    with pytest.raises(ValueError, match="65536"):
        BufferBudget[str](128 * KIB - 2)


# The whole budget -------------------------------------------------------------------------------------------


def test_one_user_cannot_tighten_the_windows_of_others() -> None:
    budget = BufferBudget[str](8 * MIB)
    stops_taking(budget, "alice", 10_000)
    bob = budget.open("bob", "bob")
    assert not budget.is_tight
    assert bob.share.window_bytes > FLOOR_BYTES


def test_with_most_of_the_budget_kept_all_read_little_until_there_is_room_again() -> None:
    budget = BufferBudget[str](64 * MIB)
    accounts = [budget.open(user, user) for user in ("alice", "bob", "carol")]
    # 50 of 64 MiB is above three quarters, 45 not yet below five eighths, 40 is.
    windows = []
    for alice_mib, bob_mib in ((25, 0), (25, 25), (20, 25), (15, 25)):
        keep(budget, accounts[0], alice_mib * MIB)
        keep(budget, accounts[1], bob_mib * MIB)
        windows.append((budget.is_tight, accounts[2].share.window_bytes))
    loose, tight = (False, WINDOW_BYTES), (True, FLOOR_BYTES)
    assert windows == [loose, tight, tight, loose]


def test_a_budget_that_is_passed_costs_who_keeps_most_and_never_one_within_an_even_part() -> None:
    """64 MiB for three users, so 21.3 each: carol brings 20, and alice pays."""
    budget = BufferBudget[str](64 * MIB)
    alice = [budget.open("alice", f"alice-{number}") for number in range(2)]
    bob, carol = budget.open("bob", "bob"), budget.open("carol", "carol")
    keep(budget, alice[0], 10 * MIB)
    keep(budget, alice[1], 18 * MIB)
    keep(budget, bob, 21 * MIB)
    assert keep(budget, carol, 20 * MIB) == [alice[1]]
    assert (budget.kept_bytes, budget.closed_for_budget) == (51 * MIB, 1)


def test_of_those_that_have_stood_still_for_long_the_one_that_keeps_most_goes() -> None:
    budget = BufferBudget[str](64 * MIB)
    for number in range(100):
        keep(budget, budget.open("alice", str(number)), (10 if number == 15 else 1) * KIB)
    newcomer = budget.open("alice", "newcomer")
    over = budget.kept(newcomer, 32 * MIB)
    assert over is not None
    assert over.owner == "15"


# Who is who -------------------------------------------------------------------------------------------------


def test_what_a_connection_keeps_becomes_its_users_when_he_is_known() -> None:
    budget = BufferBudget[str](64 * MIB)
    nobody, account = budget.open(None, "other"), budget.open(None, "a")
    keep(budget, account, 3 * MIB)
    assert nobody.share.kept_bytes == 3 * MIB
    assert budget.move(account, "alice") is None
    assert (nobody.share.kept_bytes, account.share.kept_bytes, account.share.user) == (0, 3 * MIB, "alice")
    assert budget.move(account, "alice") is None
    assert budget.kept_bytes == 3 * MIB


def test_one_who_becomes_known_with_more_than_his_share_has_room_for_is_closed() -> None:
    budget = BufferBudget[str](64 * MIB)
    keep(budget, budget.open("alice", "first"), 30 * MIB)
    second = budget.open(None, "second")
    keep(budget, second, 3 * MIB)
    over = budget.move(second, "alice")
    assert over is not None
    assert over.owner == "first"


def test_those_not_authenticated_share_one_share() -> None:
    budget = BufferBudget[str](64 * MIB)
    alice = budget.open("alice", "a")
    keep(budget, alice, 20 * MIB)
    accounts = [budget.open(None, str(number)) for number in range(3)]
    for account in accounts:
        keep(budget, account, 16 * MIB)
    assert [account.owner for account in accounts] == [None, "1", "2"]
    assert alice.owner == "a"


def test_nothing_is_remembered_of_users_who_are_gone() -> None:
    budget = BufferBudget[str](64 * MIB)
    for number in range(1_000):
        account = budget.open(f"user-{number}", "c")
        keep(budget, account, KIB)
        budget.close(account)
        budget.close(account)
        assert account.owner is None
    assert (budget.shares(), budget.kept_bytes) == (0, 0)


# Any order --------------------------------------------------------------------------------------------------

USERS = ("alice", "bob", "carol", "dave")
BUDGET = 4 * MIB


class Keeping(RuleBasedStateMachine):
    """Connections read as much as they may, and keep that, or part of it, or more than they should."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = BufferBudget[str](BUDGET, full_window_bytes=256 * KIB, floor_bytes=4 * KIB)
        self.accounts: list[Account] = []

    @initialize()
    def one_of_each(self) -> None:
        for user in USERS:
            self.comes(user)

    def of_user(self, user: str | None) -> int:
        return sum(account.kept_bytes for account in self.accounts if account.share.user == user)

    def keep(self, account: Account, kept_bytes: int) -> None:
        """What is closed for it is of one who passed his share, or of one with more than an even part."""
        while (over := self.budget.kept(account, kept_bytes)) is not None:
            user = over.share.user
            keeping = {one.share.user for one in self.accounts if one.kept_bytes}
            passed_his_share = self.of_user(user) > BUDGET // 2
            assert passed_his_share or (
                self.budget.kept_bytes > BUDGET and self.of_user(user) > BUDGET / len(keeping)
            )
            self.budget.close(over)
            self.accounts.remove(over)
            if over is account:
                break

    @rule(user=st.sampled_from((None, *USERS)))
    def comes(self, user: str | None) -> None:
        self.accounts.append(self.budget.open(user, str(user)))

    @precondition(lambda self: self.accounts)
    @rule(data=st.data(), part=st.sampled_from((0.01, 0.5, 1.0)))
    def keeps_what_it_reads(self, data: st.DataObject, part: float) -> None:
        account = data.draw(st.sampled_from(self.accounts))
        share = account.share
        soft, before, window = self.budget.soft_bytes, share.kept_bytes, share.window_bytes
        self.keep(account, account.kept_bytes + int(part * window))
        if window > self.budget.floor_bytes:
            assert share.kept_bytes <= max(soft, before)

    @precondition(lambda self: self.accounts)
    @rule(data=st.data(), kept_bytes=st.integers(0, BUDGET * 2 // 3))
    def keeps_anything(self, data: st.DataObject, kept_bytes: int) -> None:
        self.keep(data.draw(st.sampled_from(self.accounts)), kept_bytes)

    @precondition(lambda self: self.accounts)
    @rule(data=st.data())
    def is_taken_from(self, data: st.DataObject) -> None:
        account = data.draw(st.sampled_from(self.accounts))
        assert self.budget.kept(account, account.kept_bytes // 2) is None

    @precondition(lambda self: self.accounts)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        account = data.draw(st.sampled_from(self.accounts))
        self.accounts.remove(account)
        self.budget.close(account)

    @precondition(lambda self: any(account.share.user is None for account in self.accounts))
    @rule(data=st.data(), user=st.sampled_from(USERS))
    def authenticates(self, data: st.DataObject, user: str) -> None:
        nobodies = [account for account in self.accounts if account.share.user is None]
        account = data.draw(st.sampled_from(nobodies))
        while (over := self.budget.move(account, user)) is not None:
            self.accounts.remove(over)
            self.budget.close(over)
            if over is account:
                break
            self.keep(account, account.kept_bytes)

    @invariant()
    def what_is_counted_is_kept_and_within_its_bounds(self) -> None:
        budget = self.budget
        assert budget.kept_bytes == sum(account.kept_bytes for account in self.accounts) <= BUDGET
        for share in {account.share for account in self.accounts}:
            assert 0 <= share.kept_bytes == self.of_user(share.user) <= BUDGET // 2
            assert budget.floor_bytes <= share.window_bytes <= budget.full_window_bytes
            assert (share.window_bytes == budget.floor_bytes) or not budget.is_tight
        assert budget.shares() == len({account.share.user for account in self.accounts})


TestKeeping = Keeping.TestCase


def test_a_user_looks_far_while_its_window_is_whole_and_half_of_the_budget_is_free() -> None:
    """Budget 256 MiB, share 128 MiB, so its soft part is 32 MiB and windows shrink beyond 28 MiB."""
    budget = BufferBudget[str](256 * MIB)
    alice = budget.open("alice", "a")
    bob = budget.open("bob", "b")
    carol = budget.open("carol", "c")

    def looking() -> str:
        return "".join(one.share.user or "" for one in (alice, bob) if one.share.may_look_far)

    budget.kept(alice, 28 * MIB)
    assert looking() == "alicebob"
    budget.kept(alice, 28 * MIB + 4)
    assert looking() == "bob"
    budget.kept(alice, 28 * MIB)
    budget.kept(carol, 100 * MIB - 1)
    assert looking() == "alicebob"
    budget.kept(carol, 100 * MIB)
    assert looking() == ""


def test_for_a_last_look_half_a_soft_part_more_is_there_and_a_little_when_others_keep_half() -> None:
    """The share is 128 MiB, its soft part 32. Beyond 28 MiB windows shrink; nothing more is read ahead."""
    budget = BufferBudget[str](256 * MIB)
    alice, carol, eve = budget.open("alice", "a"), budget.open("carol", "c"), budget.open("eve", "e")
    assert alice.share.look_bytes == 48 * MIB
    budget.kept(alice, 42 * MIB)
    assert (alice.share.look_bytes, alice.share.may_look_far) == (6 * MIB, False)
    budget.kept(alice, 49 * MIB)
    assert alice.share.look_bytes == 0
    budget.kept(carol, 90 * MIB)
    budget.kept(eve, 1 * MIB)
    assert (alice.share.look_bytes, carol.share.look_bytes, eve.share.look_bytes) == (0, 0, 15 * MIB)
    budget.kept(alice, 90 * MIB)
    budget.kept(carol, 110 * MIB)  # more than three quarters of all
    assert eve.share.look_bytes == 0
