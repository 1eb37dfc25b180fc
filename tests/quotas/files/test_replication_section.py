"""Replication throttles in a quota file: read with the rest, and misprints refused with their lines."""

from __future__ import annotations

import pytest

from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas, replication_of
from sluice.quotas.replication.limits import LEADER_RATE, ReplicationLimits, ThrottledReplicas

GOOD = """\
quotas: []
replication:
  brokers:
    - id: <default>
      leader.replication.throttled.rate: 5000000
    - id: 3
      leader.replication.throttled.rate: 1000000
      follower.replication.throttled.rate: 2000000
  topics:
    - name: orders
      leader.replication.throttled.replicas: "0:1,1:3"
      follower.replication.throttled.replicas: "*"
"""


def test_the_section_makes_the_limits_of_a_cluster() -> None:
    parse_quotas(GOOD, "quotas.yaml")
    section = replication_of(GOOD, "quotas.yaml")
    assert section.limits([1, 2, 3], {2: 2}) == ReplicationLimits(
        leader_rates={1: 5e6, 2: 5e6, 3: 1e6},
        follower_rates={3: 2e6},
        leader_replicas={"orders": ThrottledReplicas(frozenset({(0, 1), (1, 3)}))},
        follower_replicas={"orders": ThrottledReplicas(all=True)},
        leaders_of={2: 2},
    )


def test_a_file_without_the_section_throttles_nothing() -> None:
    assert replication_of("quotas: []\n", "quotas.yaml").is_empty
    assert replication_of("quotas: []\n", "quotas.yaml").limits([1], {}).is_off


@pytest.mark.parametrize(
    ("wrong", "line", "said"),
    [
        ('replicas: "0:1,1:3"', 11, "replicas: 5000000"),
        ("id: 3", 6, "id: three"),
        ("rate: 1000000", 7, "rate: fast"),
        ("name: orders", 10, "name: 7"),
        ("brokers:", 3, "broker:"),
        ("follower.replication.throttled.rate", 8, "follower.replication.throttled.rates"),
    ],
)
def test_a_misprint_is_refused_with_its_line(wrong: str, line: int, said: str) -> None:
    text = GOOD.replace(wrong, said, 1)
    for reader in (parse_quotas, replication_of):
        with pytest.raises(QuotaFileError) as caught:
            reader(text, "quotas.yaml")
        assert [problem.line for problem in caught.value.problems] == [line]
        assert "replication" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", GOOD.replace("quotas: []\n", ""), GOOD.replace("[]", "[{user: alice, producer_byte_rat: 9}]")],
)
def test_of_a_file_that_is_refused_the_section_is_none_either(text: str) -> None:
    for reader in (parse_quotas, replication_of):
        with pytest.raises(QuotaFileError, match="quotas"):
            reader(text, "f.yaml")


def test_a_number_in_the_place_of_replicas_is_told_to_be_a_rate() -> None:
    text = GOOD.replace('"0:1,1:3"', "5000000")
    with pytest.raises(QuotaFileError, match=f"not a number .5000000.: a rate is set with {LEADER_RATE}"):
        replication_of(text, "quotas.yaml")


def test_nobody_is_named_twice() -> None:
    for twice in (
        "    - id: 3\n      leader.replication.throttled.rate: 7\n  topics:",
        "  topics:\n    - name: orders\n      leader.replication.throttled.replicas: '*'",
    ):
        with pytest.raises(QuotaFileError, match="put them together"):
            replication_of(GOOD.replace("  topics:", twice), "quotas.yaml")


def test_a_broker_or_a_topic_that_sets_nothing_is_told_what_it_could() -> None:
    for part, name, told in (("brokers", "id: 3", "leader.replication"), ("topics", "name: t", "replicas")):
        text = f"quotas: []\nreplication:\n  {part}:\n    - {name}\n"
        with pytest.raises(QuotaFileError) as caught:
            replication_of(text, "quotas.yaml")
        (problem,) = caught.value.problems
        assert problem.line == 4
        assert "sets nothing; give " in str(problem)
        assert told in str(problem)


def test_what_is_no_broker_or_topic_is_told_and_nothing_else_of_it() -> None:
    for part, name, item in (
        ("brokers", "id", "5"), ("brokers", "id", "{rate: 1}"), ("topics", "name", "orders"),
    ):  # fmt: skip
        with pytest.raises(QuotaFileError) as caught:
            replication_of(f"quotas: []\nreplication:\n  {part}:\n    - {item}\n", "quotas.yaml")
        (problem,) = caught.value.problems
        assert (problem.line, f"must be a mapping with `{name}:`" in str(problem)) == (4, True)
