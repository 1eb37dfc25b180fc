"""What is counted of producer ids: by user, never falling, in a bounded number of series."""

from __future__ import annotations

import pytest

from sluice.proxy.metrics.entity_series import SERIES_IDLE_MS, SERIES_PER_ENTITY, EntityTable
from sluice.proxy.metrics.producer_id_meter import (
    PRINCIPALS_PER_STEP,
    SERIES_PER_USER,
    ProducerIdMeter,
    UserIds,
)
from sluice.proxy.metrics.table import METRICS
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import RefusalReason
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import KINDS
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.ticket import Ticket

HOUR_MS = 3_600_000.0
RATE = 10.0
NOW_MS = 1.0


class Bench:
    """A process's ids, and the meter that reads them."""

    def __init__(self, *names: str, max_series: int = 10_000, max_users: int = 0) -> None:
        self.ids = ProducerIds(ProducerIdSettings(forced_after_ms=0.0))
        self.entities = EntityTable(max_series, max_users)
        users = [QuotaEntity(name) for name in names]
        self.limits = QuotaLimits(
            (user, {"producer_ids_rate": RATE}) for user in [*users, QuotaEntity(DEFAULT)]
        )
        self.entities.configure(self.limits)
        self.meter = ProducerIdMeter(self.ids, self.entities)

    def bring(self, user: str, *ids: int, now_ms: float = NOW_MS, enforced: bool = True) -> bool:
        principal = self.ids.quota.principal(user, RATE, now_ms, enforced=enforced)
        ticket = Ticket(principal, ids, (), ids)
        if granted := self.ids.quota.ask(ticket, now_ms):
            self.ids.quota.commit(ticket, now_ms)
        return granted

    def fold(self, now_ms: float = NOW_MS) -> dict[str, UserIds]:
        for _ in self.meter.fold_in_steps(now_ms, self.limits):
            pass
        return {one.user: one for one in self.meter}


def test_a_user_that_loses_its_name_is_counted_as_other() -> None:
    bench = Bench("alice", max_users=1)
    for user, number in (("ann", 1), ("eve", 2)):
        assert bench.bring(user, number)
    assert {user: one.new for user, one in bench.fold().items()} == {"ann": 1, "other": 1}
    bench.entities.note_delay("eve", 5_000.0)
    bench.entities.step(NOW_MS)
    assert bench.bring("ann", 3)
    assert bench.bring("eve", 4)
    bench.fold()
    found = {user: one.new for user, one in bench.fold().items()}
    assert found == {"eve": 1, "other": 2}


def test_new_ids_are_counted_by_user_and_tokens_told() -> None:
    bench = Bench("alice")
    assert bench.bring("alice", 1, 2, 3)
    assert bench.bring("mallory", 4)
    assert bench.bring("eve", 5, 6)
    assert {user: one.new for user, one in bench.fold().items()} == {"alice": 3, "other": 3}
    assert {user: levels.tokens for user, levels in bench.meter.levels.items()} == {
        "alice": 7.0,
        "other": 8.0,
    }
    assert {user: levels.pairs for user, levels in bench.meter.levels.items()} == {"alice": 3, "other": 3}


def test_what_waits_makes_tokens_fall_below_zero_and_what_is_forced_is_told() -> None:
    bench = Bench("alice")
    assert bench.bring("alice", *range(10))
    assert bench.bring("alice", 10)  # the forced bucket's one
    assert not bench.bring("alice", 11)
    (alice,) = bench.fold().values()
    assert (alice.new, alice.forced) == (11, 1)
    levels = bench.meter.levels["alice"]
    assert (levels.held, levels.tokens, levels.limit) == (1, -1.0, RATE)


def test_counters_do_not_fall_when_a_principal_is_forgotten_and_made_anew() -> None:
    bench = Bench("alice")
    bench.bring("alice", 1, 2, 3)
    bench.fold()
    later_ms = 100 * HOUR_MS
    assert bench.ids.quota.expire(later_ms) == 1
    bench.bring("alice", 4, now_ms=later_ms)
    assert bench.fold(later_ms)["alice"].new == 4


def test_what_a_principal_counted_since_the_last_fold_counts_though_it_is_gone() -> None:
    bench = Bench("alice")
    bench.fold()
    bench.bring("alice", 1)
    bench.fold()
    bench.bring("alice", 2)
    bench.ids.quota.expire(100 * HOUR_MS)
    assert bench.fold()["alice"].new == 2


def test_ids_beyond_a_limit_that_is_not_enforced_are_counted() -> None:
    bench = Bench("alice")
    assert bench.bring("alice", *range(11), enforced=False)
    assert bench.bring("alice", 12, enforced=False)
    assert bench.fold()["alice"].over == 2


def test_a_refusal_counts_under_its_reason() -> None:
    bench = Bench("alice")
    for reason in (RefusalReason.RATE, RefusalReason.GATE, RefusalReason.GATE):
        bench.meter.count_refusal("alice", reason.value, 1.0)
    bench.meter.count_refusal("mallory", RefusalReason.UNTRACKED.value, 1.0)
    found = {one.user: one.refused for one in bench.meter}
    assert found["alice"] == {"producer_ids_rate": 1, "sequence_gate": 2, "gate_share_full": 0}
    assert found["other"]["gate_share_full"] == 1


def test_gates_are_told_by_user() -> None:
    bench = Bench("alice")
    bench.ids.tables.table("alice", 0.0).refused({(1, b"t", 0): (0, 0), (1, b"t", 1): (0, 0)}, 0.0)
    bench.fold()
    assert bench.meter.levels["alice"].gates == 2


def test_names_beyond_the_cap_are_counted_as_other_and_the_room_comes_back() -> None:
    names = [f"user-{number}" for number in range(5)]
    bench = Bench(*names, max_series=SERIES_PER_ENTITY * (4 + len(KINDS)))  # room for two users
    for number, name in enumerate(names):
        bench.bring(name, number)
    found = bench.fold()
    assert {user: one.new for user, one in found.items()} == {"user-0": 1, "user-1": 1, "other": 3}
    assert bench.entities.overflows == 3
    later_ms = 100 * HOUR_MS
    bench.ids.quota.expire(later_ms)
    bench.fold(later_ms)
    assert later_ms > SERIES_IDLE_MS
    bench.bring("user-4", 4, now_ms=later_ms)
    assert bench.fold(later_ms)["user-4"].new == 1


def test_other_limits_in_force_make_a_name_a_label_of_its_own_from_then_on() -> None:
    bench = Bench("alice")
    bench.bring("bob", 1)
    assert bench.fold()["other"].new == 1
    bench.entities.configure(QuotaLimits([(QuotaEntity("bob"), {"producer_ids_rate": 1})]))
    bench.bring("bob", 2)
    found = bench.fold()
    assert (found["other"].new, found["bob"].new) == (1, 1)


@pytest.mark.parametrize("count", [1, 200])
def test_many_users_are_read_in_steps(count: int) -> None:
    bench = Bench()
    for number in range(count):
        bench.bring(f"u{number}", number)
    assert sum(1 for _ in bench.meter.fold_in_steps(0.0, bench.limits)) == count // PRINCIPALS_PER_STEP


def test_the_share_of_a_user_in_max_series_is_what_it_exports() -> None:
    rows = [row for row in METRICS.values() if "producer_ids" in row.name and "user" in row.labels]
    exported = sum(len(RefusalReason) if "reason" in row.labels else 1 for row in rows)
    assert SERIES_PER_USER - SERIES_PER_ENTITY < exported <= SERIES_PER_USER


def test_a_limit_that_was_removed_is_in_force_nowhere() -> None:
    """Its ids are remembered for a while; what they were counted as stays."""
    bench = Bench("alice")
    assert bench.bring("alice", 1)
    bench.fold()
    assert bench.meter.levels["alice"].limit == RATE
    bench.limits = QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1.0})])
    assert bench.fold()["alice"].new == 1
    assert "alice" not in bench.meter.tokens()


def test_pairs_are_told_as_the_ceiling_counts_them_whoever_has_a_limit_still() -> None:
    """New ids of others were refused at the ceiling, and the metric of it told a third."""
    bench = Bench("alice", "bob")
    for number, user in enumerate(("alice", "bob", "mallory")):
        assert bench.bring(user, 2 * number, 2 * number + 1)
    bench.limits = QuotaLimits([(QuotaEntity("bob"), {"producer_ids_rate": RATE})])
    bench.entities.configure(bench.limits)
    bench.fold()
    told = {user: levels.pairs for user, levels in bench.meter.levels.items()}
    assert told == {"bob": 2, "other": 4}
    assert sum(told.values()) == bench.ids.quota.ceiling.total
    assert list(bench.meter.tokens()) == ["bob"], "the others have none"
