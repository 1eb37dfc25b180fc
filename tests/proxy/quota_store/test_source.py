"""Where limits come from, and what is told of each change: the file's, and what a file adds to a topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from sluice.proxy.assembly import policy_of
from sluice.proxy.calibration.request_cost_file import load_request_costs
from sluice.proxy.config.config import Config
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.quotas import QuotaOptions, QuotaTopicOptions
from sluice.proxy.quota_store.audit import KEPT, QuotaAudit, QuotaChange, differences
from sluice.proxy.quota_store.source import QuotaSource, merged_in_steps
from sluice.proxy.quota_store.topic_copy import Copied, QuotaCopy
from sluice.proxy.quota_store.topic_records import Stored
from sluice.proxy.runtime.watched_file import ReloadOutcome
from sluice.proxy.session.policy import QuotaApi
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.steps import at_once
from testkit.proxy.local_proxy import until

ALICE, BOB = QuotaEntity("alice"), QuotaEntity("bob")
TOPIC = QuotaTopicOptions(bootstrap=("127.0.0.1:1",))
_OF_A_TOPIC = ["quota_topic", "quota_topic_ids", "quota_topic_limits"]
GROUPS = """
tenants:
  - {name: shop, members: [carol, dave]}
quotas:
  - {tenant: shop, producer_byte_rate: 500}
  - {client-id-prefix: etl-, consumer_byte_rate: 70}
exempt:
  - {user: backup}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "quotas.yaml"
    file.write_text(text)
    return file


# What is told -----------------------------------------------------------------------------------------------


def test_of_two_snapshots_only_what_differs_is_told() -> None:
    before = parse_quotas(
        "quotas:\n- {user: alice, producer_byte_rate: 1}\n- {user: bob, producer_byte_rate: 2}", "a"
    )
    after = parse_quotas(
        "quotas:\n- {user: alice, producer_byte_rate: 1, shadow: true}\n"
        "- {user: carol, producer_byte_rate: 3}",
        "b",
    )
    assert [each for each in differences(before, after) if each is not None] == [
        (ALICE, {"producer_byte_rate": 1}, {"producer_byte_rate": 1, "shadow": ["producer_byte_rate"]}),
        (BOB, {"producer_byte_rate": 2}, {}),
        (QuotaEntity("carol"), {}, {"producer_byte_rate": 3}),
    ]


def test_a_change_tells_what_becomes_of_what_is_over_budget() -> None:
    before = QuotaLimits([(ALICE, {"producer_byte_rate": 1})])
    after = QuotaLimits([(ALICE, {"producer_byte_rate": 1})], refusing=[ALICE])
    assert [each for each in differences(before, after) if each is not None] == [
        (ALICE, {"producer_byte_rate": 1}, {"producer_byte_rate": 1, "over_budget": "refuse"})
    ]


@pytest.mark.asyncio
async def test_a_reload_tells_each_change_and_exempt_rules_too() -> None:
    audit = QuotaAudit()
    before = parse_quotas("quotas: []\nexempt: [{user: old}]", "a")
    after = parse_quotas("quotas:\n- {user: <default>, producer_byte_rate: 5}\nexempt: [{user: new}]", "b")
    with capture_logs() as lines:
        await audit.reloaded(before, after, by="quotas.yaml", source="file", at_unix_s=1_700_000_000.5)
    first, second = lines
    assert first == {
        "event": "quota_changed", "log_level": "info", "entity": "user <default>", "old": {},
        "new": {"producer_byte_rate": 5}, "by": "quotas.yaml", "source": "file",
        "at": "2023-11-14T22:13:20.500+00:00",
    }  # fmt: skip
    assert second["entity"] == "exempt"
    assert second["old"] == {"user 'old'": True}
    assert audit.count == 2


def tenants(**members: str) -> QuotaLimits:
    return QuotaLimits([], tenants={name: users.split() for name, users in members.items()})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (tenants(a="alice bob"), tenants(a="alice"), [({"bob": "a"}, {})]),
        (tenants(a="alice bob"), tenants(a="alice", b="bob"), [({"bob": "a"}, {"bob": "b"})]),
        (tenants(), tenants(a="alice"), [({}, {"alice": "a"})]),
        (tenants(a="alice bob"), tenants(a="bob alice"), []),
    ],
)
async def test_a_reload_tells_which_users_left_a_tenant_and_which_joined_one(
    before: QuotaLimits, after: QuotaLimits, told: list[Any]
) -> None:
    audit = QuotaAudit()
    await audit.reloaded(before, after, by="quotas.yaml", source="file", at_unix_s=0.0)
    assert [(change.old, change.new) for change in audit.changes] == told
    assert {change.entity for change in audit.changes} <= {"tenants"}
    assert audit.count == len(told)


@pytest.mark.asyncio
async def test_of_many_members_that_left_the_first_hundred_are_told_and_how_many_more() -> None:
    audit = QuotaAudit()
    before = tenants(a=" ".join(f"user-{number}" for number in range(150)))
    await audit.reloaded(before, tenants(), by="quotas.yaml", source="file", at_unix_s=0.0)
    (change,) = audit.changes
    assert len(change.old) == 101
    assert change.old["<more>"] == 50


async def turns_of(work: Coroutine[Any, Any, None]) -> int:
    """How often others have had their turn until it was done."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    task.result()
    return turns


def rates(count: int, changed: int, rate: float) -> QuotaLimits:
    """Limits of so many users, of whom one has this rate."""
    return QuotaLimits(
        (QuotaEntity(f"user-{number}"), {"producer_byte_rate": rate if number == changed else 1_000})
        for number in range(count)
    )


def exempting(count: int, name: str) -> QuotaLimits:
    return QuotaLimits([], exempt=[ExemptRule(f"{name}-{number}") for number in range(count)])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("before", "after", "least", "told"),
    [
        (rates(1_000, 765, 1), rates(1_000, 765, 2), 18, ["user 'user-765'"]),
        (rates(1_000, 0, 1), rates(1_000, 0, 1), 18, []),
        (rates(1_000, 0, 1), rates(1, 0, 1), 18, [f"user 'user-{number}'" for number in range(1, 1_000)]),
        (rates(1, 0, 1), rates(1_000, 0, 1), 18, [f"user 'user-{number}'" for number in range(1, 1_000)]),
        (exempting(1_000, "old"), exempting(1_000, "new"), 18, ["exempt"]),
        (
            tenants(a=" ".join(f"user-{number}" for number in range(5_000))),
            tenants(b=" ".join(f"user-{number}" for number in range(5_000))),
            18,
            ["tenants"],
        ),
    ],
    ids=["one differs", "none differs", "all go", "all come", "exempt rules", "members"],
)
async def test_others_have_their_turn_while_two_large_snapshots_are_held_against_each_other(
    before: QuotaLimits, after: QuotaLimits, least: int, told: list[str]
) -> None:
    """However few differ: all clients stood still while 10,000 entities that did not were looked through."""
    audit = QuotaAudit()
    audit.changes = deque()  # all of them
    turns = await turns_of(audit.reloaded(before, after, by="q", source="file", at_unix_s=0.0))
    assert turns >= least
    assert [change.entity for change in audit.changes] == told


def test_the_record_is_bounded() -> None:
    audit = QuotaAudit()
    for number in range(KEPT + 5):
        audit.changed(QuotaChange(float(number), "x", "file", "user 'a'", {}, {}))
    assert (len(audit.changes), audit.count) == (KEPT, KEPT + 5)
    assert audit.changes[0].at_unix_s == 5.0


@pytest.mark.asyncio
async def test_a_changed_file_is_in_force_and_told(tmp_path: Path) -> None:
    file = written(tmp_path, "quotas:\n- {user: alice, producer_byte_rate: 1}")
    source = QuotaSource(QuotaOptions(file=file, reload_interval_s=0.05))
    applied: list[QuotaLimits] = []
    tasks = [asyncio.ensure_future(work()) for work, _ in source.work(applied.append)]
    file.write_text("quotas:\n- {user: alice, producer_byte_rate: 22}")
    await until(lambda: bool(source.audit.changes))
    for task in tasks:
        task.cancel()
    (change,) = source.audit.changes
    assert (change.by, change.source, change.entity) == (str(file), "file", "user 'alice'")
    assert (change.old, change.new) == ({"producer_byte_rate": 1}, {"producer_byte_rate": 22})
    assert source.limits is applied[-1]
    await source.known()


# A topic and a file -----------------------------------------------------------------------------------------


def test_what_a_file_adds_stands_beside_the_topics_limits() -> None:
    base = parse_quotas(GROUPS, "groups")
    entries = {ALICE: Stored({"producer_byte_rate": 9}, frozenset({"producer_byte_rate"}))}
    steps = merged_in_steps(base, entries)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            limits: QuotaLimits = done.value
            break
    alice = limits.resolve(QuotaKind.PRODUCE, "alice", "x")
    assert alice is not None
    assert (alice.limit, alice.shadow) == (9, True)
    carol = limits.resolve(QuotaKind.PRODUCE, "carol", "x")
    assert carol is not None
    assert carol.limit == 500
    assert limits.exempt.find("backup", "", "10.0.0.1") is not None
    etl = limits.resolve(QuotaKind.FETCH, "erin", "etl-1")
    assert etl is not None
    assert etl.limit == 70


class Walked(dict[QuotaEntity, Stored]):
    """Counts how many of its entries have been looked at."""

    looked_at = 0

    def items(self) -> Any:
        for one in super().items():
            self.looked_at += 1
            yield one


@pytest.mark.parametrize("shadow", [frozenset[str](), frozenset({"producer_byte_rate"})])
def test_many_entities_of_a_topic_are_put_together_some_thousand_at_a_time(shadow: frozenset[str]) -> None:
    entries = Walked(
        (QuotaEntity(f"user-{number}"), Stored({"producer_byte_rate": 1}, shadow)) for number in range(9_000)
    )
    seen = [entries.looked_at for _ in merged_in_steps(QuotaLimits(), entries)]
    assert max(after - before for before, after in pairwise([0, *seen])) <= 2_000
    limits = at_once(merged_in_steps(QuotaLimits(), entries))
    assert (len(limits.entries), len(limits.shadow)) == (9_000, 9_000 if shadow else 0)


def test_a_file_beside_a_topic_may_not_say_what_the_topic_says(tmp_path: Path) -> None:
    file = written(tmp_path, "quotas:\n- {user: alice, producer_byte_rate: 1}")
    with pytest.raises(ConfigError, match=r"user 'alice'.*from the topic alone"):
        QuotaSource(QuotaOptions(source="topic", topic=TOPIC, file=file))


ETL = """
quotas:
  - user: carol
    client-id-prefix: etl-
    producer_byte_rate: 5
    schedule: [{date: 2026-01-01, from: '01:00', to: '02:00', producer_byte_rate: 99}]
"""
WINDOW_UNIX_S = 1_767_229_200.0
"""when the window of ETL begins"""


class FileBesideTopic:
    """A source with a topic that is not reached, and a file that was loaded when ETL's window was open."""

    def __init__(self, file: Path) -> None:
        self.source = QuotaSource(QuotaOptions(source="topic", topic=TOPIC, file=file))
        self.file, self.topic = cast(Any, self.source._file), cast(Any, self.source.topic)
        self.now_unix_s = WINDOW_UNIX_S + 60.0
        self.file._clock = lambda: self.now_unix_s
        self.topic.add_file(self.file.load())

    @property
    def rates(self) -> list[float]:
        return [limits["producer_byte_rate"] for limits in self.topic.at_start().entries.values()]

    async def look(self) -> ReloadOutcome | None:
        outcome: ReloadOutcome | None = await self.file.check(self.source._file_changed)
        return outcome


@pytest.mark.asyncio
async def test_a_file_that_comes_to_say_what_the_topic_says_is_refused_as_any_invalid_one(
    tmp_path: Path,
) -> None:
    beside = FileBesideTopic(written(tmp_path, ETL))
    (status,) = beside.source.statuses()
    kept = status.hash
    written(tmp_path, ETL + "  - {user: bob, producer_byte_rate: 5}")
    with capture_logs() as lines:
        assert await beside.look() is ReloadOutcome.INVALID
    assert [line["event"] for line in lines] == ["quotas_not_applied"]
    assert status.hash == kept
    assert "has limits of user 'bob'" in status.last_error
    written(tmp_path, ETL.replace("producer_byte_rate: 5", "producer_byte_rate: 6"))
    assert await beside.look() is ReloadOutcome.SUCCESS
    assert not status.last_error


@pytest.mark.asyncio
async def test_beside_a_refused_file_the_calendars_of_the_last_good_one_go_on(tmp_path: Path) -> None:
    beside = FileBesideTopic(written(tmp_path, ETL))
    assert beside.rates == [99]
    written(tmp_path, ETL + "  - {user: bob, producer_byte_rate: 5}")
    await beside.look()
    beside.now_unix_s += 3_600.0
    await beside.look()
    assert beside.rates == [5]


@pytest.mark.asyncio
async def test_with_a_copy_limits_are_known_at_once_and_so_is_the_topics_id(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    entity = QuotaEntity("alice", DEFAULT)
    QuotaCopy(copy, "__sluice_quotas").write(Copied({entity: Stored({"producer_byte_rate": 7})}, bytes(16)))
    options: dict[str, Any] = {"bootstrap": ("127.0.0.1:1",), "copy_file": copy}
    source = QuotaSource(QuotaOptions(source="topic", topic=QuotaTopicOptions(**options)))
    await asyncio.wait_for(source.known(), 5)
    assert source.limits.entries == {entity: {"producer_byte_rate": 7}}
    assert source.own_topic is not None
    assert source.own_topic.topic_id == bytes(16)


@pytest.mark.asyncio
async def test_without_a_copy_they_are_not_known_until_the_topic_has_been_read() -> None:
    source = QuotaSource(QuotaOptions(source="topic", topic=TOPIC))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.known(), 0.05)
    assert not source.limits.entries


@pytest.mark.asyncio
async def test_the_task_by_which_the_alert_knows_that_there_is_a_topic_is_there_only_then(
    tmp_path: Path,
) -> None:
    """SluiceQuotaTopicLost of deploy/prometheus/alerts.yaml."""
    file = written(tmp_path, "quotas: []")
    tasks = {
        source: [name for _, name in QuotaSource(options).work(lambda _: None)]
        for source, options in {
            "topic": QuotaOptions(source="topic", topic=TOPIC, file=file),
            "file": QuotaOptions(file=file),
        }.items()
    }
    assert tasks == {"topic": ["quota_file", *_OF_A_TOPIC], "file": ["quota_file"]}


# Who is answered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["file", "passthrough"])
def test_only_with_passthrough_what_is_asked_about_quotas_goes_to_the_broker(source: str) -> None:
    listener = ListenerOptions(name="a", bind_port=1, upstream_host="kafka", upstream_port=9092)
    options: dict[str, Any] = {"source": source, "file": Path("q.yaml"), "admins": ("ANONYMOUS",)}
    config = Config(listeners=(listener,), quotas=QuotaOptions(**options))
    policy = policy_of(config, listener, load_request_costs(None))
    expected = None if source == "passthrough" else QuotaApi(frozenset({"ANONYMOUS"}))
    assert policy.quota_api == expected
