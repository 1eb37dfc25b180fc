"""Names of topics by their ids, as all connections of a process share them: bounded, each read once."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.usage import flow
from sluice.usage.access_record import HEARTBEAT_CLASS, HEARTBEAT_END_CLASS, ROLLUP_COLUMNS, heartbeat
from sluice.usage.flow import TopicNames
from sluice.usage.records import ConnectionRecord, Recorder
from sluice.usage.rollup import Window


def test_an_answer_that_was_read_is_not_new() -> None:
    names = TopicNames()
    names.was_read(1)
    names.was_read(2)
    assert [names.is_new(mark) for mark in (1, 2, 3, 3)] == [False, False, True, True]


def test_of_too_many_answers_all_are_forgotten_and_none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_MAX_READ", 3)
    names = TopicNames()
    for mark in (1, 2, 3):
        names.was_read(mark)
    assert not names.is_new(1)
    names.was_read(4)
    assert [names.is_new(mark) for mark in (1, 2, 3, 4)] == [True, True, True, False]


def test_of_too_many_names_the_one_told_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MAX_TOPICS", 2)
    names = TopicNames()
    for topic_id, name in ((b"1", "a"), (b"2", "b"), (b"1", "c")):
        names.learn(topic_id, name)
    assert (names.name(b"1"), names.name(b"2"), names.name(b"3")) == ("c", "b", None)
    names.learn(b"3", "d")
    assert (names.name(b"1"), names.name(b"2"), names.name(b"3")) == (None, "b", "d")


def test_equal_heads_are_one_object_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "MAX_HEADS", 2)
    names = TopicNames()
    first = names.shared_head(b"head-%d" % 1)
    assert names.shared_head(b"head-%d" % 1) is first
    names.shared_head(b"head-%d" % 2)
    names.shared_head(b"head-%d" % 3)
    again = names.shared_head(b"head-%d" % 1)
    assert again == first
    assert again is not first


@pytest.mark.parametrize("name", ["requests", "throttles", "connections", "arrivals"])
def test_a_recorder_is_empty_until_something_is_recorded(name: str) -> None:
    recorder = Recorder()
    seen = [recorder.is_empty]
    getattr(recorder, name).append(ConnectionRecord)
    seen.append(recorder.is_empty)
    recorder.clear()
    assert [*seen, recorder.is_empty] == [True, False, True]


def test_a_window_has_one_row_more_than_its_keys_at_most() -> None:
    """The one that all the others are folded into."""
    anything: Any = None
    others: dict[int, dict[str, float]] = {1: {}, 2: {}, 3: {}}
    window = Window(0, "", [], others, anything, anything, anything, max_keys=5)
    assert window.most_rows == 3
    window.max_keys = 1
    assert window.most_rows == 2


def test_a_flow_whose_topics_name_has_become_known_keeps_it_though_the_name_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow, "MAX_TOPICS", 1)
    names = TopicNames()
    of = flow.AccessFlow(flow.Origin("alice", names=names), "app", "produce", "ab12", b"1")
    assert of.named_topic() == "ab12"
    names.learn(b"1", "orders")
    assert (of.named_topic(), of.topic, of.topic_id) == ("orders", "orders", b"")
    names.learn(b"2", "returns")
    assert of.named_topic() == "orders"


@pytest.mark.parametrize("is_last", [False, True])
def test_a_heartbeat_says_its_window_and_its_proxy_and_nothing_else(is_last: bool) -> None:
    columns = heartbeat(10_000, "p", is_last=is_last)
    told = dict(zip((column.name for column in ROLLUP_COLUMNS), (value for (value,) in columns), strict=True))
    api_class = HEARTBEAT_END_CLASS if is_last else HEARTBEAT_CLASS
    assert (told.pop("window_start_ms"), told.pop("proxy"), told.pop("api_class")) == (10_000, "p", api_class)
    assert set(told.values()) <= {None, "", 0}
