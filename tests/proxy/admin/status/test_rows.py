"""What the status page lists: searched, sorted, bounded, in steps; and episodes with their why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sluice.proxy.admin.status.events import Episodes, event_of
from sluice.proxy.admin.status.history import NewIds
from sluice.proxy.admin.status.model import MAX_LISTED, PrincipalsQuery
from sluice.proxy.admin.status.rows import (
    ConnectionList,
    ProducerIdList,
    detail_of,
    id_of,
    page_of,
    principal_of,
    survey_of,
    survey_of_one,
)
from sluice.proxy.admin.top.rows import Survey
from sluice.proxy.admin.top.search import Search
from sluice.proxy.metrics.throttle_log import ThrottleEpisode, ThrottleLog
from sluice.proxy.runtime.log import LineBudget
from sluice.quotas.entity import DEFAULT, QuotaEntity, Tenant
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.names import MAX_NAME
from sluice.usage.records import EventKind, ThrottleEvent
from testkit.proxy.status_feed import HOSTILE, Client, Feed, now_ms


def walked(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def surveyed(feed: Feed, survey: Survey) -> Survey:
    shared = feed.shared
    walked(
        survey.steps(
            list(shared.quotas.sensors()),
            shared.producer_ids,
            shared.quotas.limits,
            lambda: feed.clients,
            now_ms,
        )
    )
    return survey


def filled() -> Feed:
    feed = Feed()
    feed.fill()
    return feed


def users(feed: Feed, **asked: Any) -> list[str]:
    query = PrincipalsQuery(**asked)
    survey = surveyed(feed, survey_of(query, 60_000.0))
    return [f"{row.kind.value} {'/'.join(row.bucket.values())}" for row in page_of(survey.rows, query)]


def test_without_a_question_all_active_buckets_are_there_the_most_throttled_first() -> None:
    feed = filled()
    found = users(feed)
    assert found[:2] == ["producer_ids rogue", "produce alice"]
    top = surveyed(feed, Survey())
    assert sorted(found) == sorted(f"{row.kind.value} {'/'.join(row.bucket.values())}" for row in top.rows)


def test_a_search_finds_part_of_a_name_in_any_case_and_counts_what_fits() -> None:
    feed = filled()
    assert set(users(feed, search="ALI")) == {"produce alice", "fetch alice", "producer_ids alice"}
    assert users(feed, search="etl", sort="who") != []
    assert users(feed, search="nobody has this") == []
    survey = surveyed(feed, survey_of(PrincipalsQuery(search="alice"), 60_000.0))
    assert (survey.matching, len(survey.rows)) == (3, 3)
    assert survey.active > 10


SHARED = QuotaLimits(
    [
        (QuotaEntity(Tenant("team-a")), {"producer_byte_rate": 1_000}),
        (QuotaEntity(Tenant("team-b")), {"producer_byte_rate": 1_000}),
        (QuotaEntity(None, "reports"), {"producer_byte_rate": 1_000}),
        (QuotaEntity(DEFAULT), {"consumer_byte_rate": 1_000}),
    ],
    tenants={"team-a": ["bob", "carol"], "team-b": ["dave"]},
)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("bob", {"produce team-a", "fetch bob"}),
        ("BO", {"produce team-a", "fetch bob"}),
        ("tenant:team-", {"produce team-a", "produce team-b"}),
        ("erin", {"produce reports", "fetch erin"}),
        ("report", {"produce reports"}),
        ("frank", set()),
    ],
)
def test_a_bucket_is_found_by_its_own_names_and_by_those_of_its_members(search: str, found: set[str]) -> None:
    """Carol's connection alone charges the bucket of bob's tenant; erin's one of a client id."""
    feed = Feed(SHARED)
    feed.produces("carol", 2_000, "app")
    feed.produces("dave", 2_000, "app")
    feed.produces("erin", 2_000, "reports")
    feed.uses("bob", "app", 1.0, QuotaKind.FETCH)
    assert set(users(feed, search=search)) == found


def test_a_search_walks_many_connections_and_members_in_short_steps() -> None:
    feed = Feed(QuotaLimits(tenants={"t": [f"user-{number}" for number in range(3_000)]}))
    feed.produces("alice", 100)
    feed.clients *= 3_000
    search = Search(lambda name: name == "alice")
    assert walked(search.steps(feed.clients, feed.shared.quotas.limits)) == 100


def test_only_the_throttled_or_one_quota_can_be_asked_for() -> None:
    feed = filled()
    throttled = users(feed, throttled=True)
    assert "produce alice" in throttled
    assert "produce carol" not in throttled, "a limit in shadow mode throttles nobody"
    assert "produce bob" not in throttled
    assert {line.split()[0] for line in users(feed, quota="producer_ids")} == {"producer_ids"}


@pytest.mark.parametrize("sort", ["utilisation", "used", "limit", "connections", "who", "quota", "rule"])
def test_rows_are_sorted_by_what_is_asked_for_both_ways(sort: str) -> None:
    feed = filled()
    down, up = users(feed, sort=sort), users(feed, sort=sort, order="asc")
    assert sorted(down) == sorted(up)
    assert down != up
    survey = surveyed(feed, survey_of(PrincipalsQuery(), 60_000.0))
    query = PrincipalsQuery.model_validate({"sort": sort, "order": "asc"})
    rows = page_of(survey.rows, query)
    values = [getattr(principal_of(row), sort) for row in rows]
    assert values == sorted(values, key=lambda value: value.casefold() if isinstance(value, str) else value)


def test_pages_follow_each_other_without_gap_or_overlap() -> None:
    feed = filled()
    whole = users(feed, sort="who", order="asc", limit=100)
    pages = [users(feed, sort="who", order="asc", limit=4, offset=offset) for offset in range(0, 100, 4)]
    assert [line for page in pages for line in page] == whole


def test_a_bucket_is_found_again_by_its_id_whatever_its_name() -> None:
    feed = filled()
    rows = surveyed(feed, survey_of(PrincipalsQuery(), 60_000.0)).rows
    ids = [id_of(row.kind, row.bucket) for row in rows]
    assert len(set(ids)) == len(rows)
    for row, key in zip(rows, ids, strict=True):
        (found,) = surveyed(feed, survey_of_one(key, 60_000.0)).rows
        assert (found.kind, found.bucket) == (row.kind, row.bucket)
    assert surveyed(feed, survey_of_one("0" * 16, 60_000.0)).rows == []


def test_a_bucket_tells_why_and_who_uses_it() -> None:
    feed = filled()
    key = id_of(QuotaKind.PRODUCE, {"user": "alice"})
    (row,) = surveyed(feed, survey_of_one(key, 60_000.0)).rows
    detail = detail_of(row, feed.shared.quotas.limits, None)
    assert detail.why[0].startswith("user (user 'alice'): 50,000 bytes per second.")
    assert any("until the debt is paid" in line for line in detail.why)
    assert {one.client_id for one in detail.shown} == {"orders", "ids"}
    assert detail.connections == 3


def test_names_are_told_whole_or_cut_and_always_as_text_that_can_be_sent() -> None:
    feed = Feed()
    for name in (*HOSTILE, "lone\ud800surrogate", "y" * 5_000):
        feed.produces(name, 110_000, "app")
    for row in surveyed(feed, survey_of(PrincipalsQuery(limit=100), 60_000.0)).rows:
        found = principal_of(row)
        assert json.loads(found.model_dump_json())["id"] == found.id
        assert len(found.bucket["user"]) <= MAX_NAME
        assert found.who.isprintable()


def test_ten_thousand_buckets_are_walked_in_short_steps_and_a_thousand_kept() -> None:
    feed = Feed(QuotaLimits([(QuotaEntity(DEFAULT), {"producer_byte_rate": 1_000})]))
    for number in range(10_000):
        feed.uses(f"user-{number}", "app", number)
    survey = survey_of(PrincipalsQuery(search="user-"), 60_000.0)
    steps = walked(
        survey.steps(
            list(feed.shared.quotas.sensors()),
            feed.shared.producer_ids,
            feed.shared.quotas.limits,
            list,
            now_ms,
        )
    )
    assert (survey.matching, survey.active, len(survey.rows)) == (10_000, 10_000, MAX_LISTED)
    assert steps >= 50
    assert survey.rows[0].bucket == {"user": "user-9999"}


def test_connections_are_listed_the_longest_throttled_first() -> None:
    feed = filled()
    found = ConnectionList()
    walked(found.steps(feed.clients, now_ms))
    assert found.matching == len(feed.clients)
    waits = [row.for_ms for row in found.rows]
    assert waits == sorted(waits, reverse=True)
    assert (found.rows[0].user, found.rows[0].throttled_by) == ("rogue", "producer_ids")
    assert found.rows[0].state == "holding"


def test_connections_are_found_by_user_client_and_peer() -> None:
    feed = filled()
    for search, expected in (("ALICE", 3), ("worker-", 6), ("10.0.0.2:", 1), ("nobody-here", 0)):
        found = ConnectionList(search)
        walked(found.steps(feed.clients, now_ms))
        assert (found.matching, len(found.rows)) == (expected, expected)
    found = ConnectionList("bob", throttled=True)
    walked(found.steps(feed.clients, now_ms))
    assert found.rows == []


def test_of_many_connections_a_bounded_number_is_listed_and_all_are_counted() -> None:
    feed = Feed()
    session = feed.client("alice").session
    many = [Client(f"10.0.0.1:{number}", session) for number in range(3 * MAX_LISTED)]
    found = ConnectionList()
    steps = walked(found.steps(many, now_ms))
    assert (found.matching, len(found.rows)) == (3 * MAX_LISTED, MAX_LISTED)
    assert steps >= 3 * MAX_LISTED // 200


def test_producer_ids_are_told_by_principal_who_waits_most_first() -> None:
    feed = filled()
    new_ids = NewIds(now_ms())
    principals = list(feed.shared.producer_ids.quota.principals())
    walked(new_ids.note_in_steps(principals, now_ms()))
    found = ProducerIdList()
    walked(found.steps(principals, feed.shared.quotas.limits, new_ids, now_ms))
    rogue, alice = found.rows
    assert (rogue.user, rogue.limit, rogue.rule) == ("rogue", 2.0, "user")
    assert (rogue.known, rogue.new, rogue.waiting) == (2, 2, 4)
    assert rogue.tokens == pytest.approx(-4.0, abs=0.01)
    assert rogue.delay_ms == pytest.approx(7_200_000.0, rel=0.01), "four ids at two an hour"
    assert (alice.user, alice.waiting) == ("alice", 0)
    found = ProducerIdList("ROG")
    walked(found.steps(principals, feed.shared.quotas.limits, new_ids, now_ms))
    assert [row.user for row in found.rows] == ["rogue"]


# Episodes ---------------------------------------------------------------------------------------------------


def event(begun_ms: float, user: str = "alice", **changes: Any) -> ThrottleEvent:
    made = ThrottleEvent(
        EventKind.MUTE, begun_ms, 500.0, "produce", "user", user, "app", 0, 1_500, limit=1_000.0
    )
    return made._replace(**changes)


def told(episode: ThrottleEpisode, at_ms: float) -> Any:
    return event_of(episode, at_ms, lambda ms: f"at {ms:.0f}")


def test_an_episode_goes_on_while_it_is_delayed_and_stays_when_it_is_over() -> None:
    log = ThrottleLog(LineBudget())
    for at_ms in (0.0, 100.0, 200.0):
        log.note(event(at_ms))
        list(log.due(at_ms))
    (episode,) = log.episodes()
    found = told(episode, 300.0)
    assert (found.active, found.delays, found.delayed_s, found.began) == (True, 3, 1.5, "at 0")
    assert found.lasted_s == 0.3, "its last delay has not ended yet"
    for at_ms in range(300, 20_000, 100):
        list(log.due(float(at_ms)))
    (episode,) = log.episodes()
    found = told(episode, 20_000.0)
    assert (found.active, found.delays, found.lasted_s) == (False, 3, 0.7)


def test_an_episode_that_no_line_had_room_for_is_told_here() -> None:
    log = ThrottleLog(LineBudget(lines_per_s=0))
    log.note(event(0.0))
    assert list(log.due(0.0)) + list(log.due(20_000.0)) == []
    assert [told(episode, 20_000.0).active for episode in log.episodes()] == [False]


@pytest.mark.parametrize(
    ("search", "is_found"), [("bob", True), ("tenant:team", True), ("app", True), ("dave", False)]
)
def test_a_tenants_episode_is_found_by_its_members(search: str, is_found: bool) -> None:
    """It was carol with whom it began."""
    log = ThrottleLog(LineBudget())
    log.note(event(0.0, "carol"))
    episodes = [replace(one, entity=QuotaEntity(Tenant("team"))) for one in log.episodes()]
    found = Episodes(search, {"team": ["bob", "carol"]})
    walked(found.steps(episodes))
    assert bool(found.rows) is is_found


def test_the_latest_episodes_come_first_and_their_number_is_bounded() -> None:
    log = ThrottleLog(LineBudget(lines_per_s=1_000_000))
    for number in range(800):
        log.note(event(float(number), f"user{number}"))
    list(log.due(1_000.0))
    list(log.due(30_000.0))
    log.note(event(40_000.0, "now"))
    found = Episodes()
    steps = walked(found.steps(log.episodes()))
    assert [episode.event.user for episode in found.rows[:2]] == ["now", "user799"]
    assert (found.matching, len(found.rows)) == (501, 501)
    assert steps >= 2
    found = Episodes("USER799")
    walked(found.steps(log.episodes()))
    assert [episode.event.user for episode in found.rows] == ["user799"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {},
            "Produce of 1,500 bytes by alice/app was beyond 1.00 kB/s (rule user): it went on, and nothing "
            "more was read for 500 ms.",
        ),
        (
            {"kind": EventKind.HOLD},
            "Produce of 1,500 bytes by alice/app was beyond 1.00 kB/s (rule user): it waited up to 500 ms "
            "for its turn.",
        ),
        (
            {"kind": EventKind.SHADOW},
            "Produce of 1,500 bytes by alice/app was beyond 1.00 kB/s (rule user); in shadow mode nothing "
            "was done, else it had cost 500 ms.",
        ),
        (
            {"kind": EventKind.REFUSAL, "quota": "controller_mutation", "charged": 7, "api_key": 19},
            "CreateTopics of 7 partitions by alice/app was beyond 1,000 partitions/s (rule user) and was "
            "refused; nothing more was read for 500 ms.",
        ),
        (
            {"kind": EventKind.REFUSAL, "quota": "producer_ids", "charged": 1, "reason": "budget_over"},
            "Produce of 1 new producer id by alice/app was beyond 1,000 ids/h (rule user) and was refused: "
            "budget_over.",
        ),
        (
            {"user": "a\u202eb", "client_id": "\n"},
            "Produce of 1,500 bytes by a\\u202eb/\\n was beyond 1.00 kB/s (rule user): it went on, and "
            "nothing more was read for 500 ms.",
        ),
    ],
)
def test_an_episode_says_why_it_began(changes: dict[str, Any], expected: str) -> None:
    log = ThrottleLog(LineBudget())
    log.note(event(0.0, **changes))
    (episode,) = log.episodes()
    assert told(episode, 100.0).why == expected
