"""How requests begin is remembered up to a bound; a Fetch's flow is by its own topics or by its session's."""

from __future__ import annotations

from sluice.protocol.apis import FETCH, METADATA, PRODUCE
from sluice.protocol.codec.wire import Struct, Value
from sluice.proxy.session.topic_attribution import NO_HEAD, NO_TOPICS, UNKNOWN_HEAD, Beginnings, Flows
from sluice.usage.flow import Origin, TopicNames
from sluice.usage.records import ASK
from testkit.access_log.access_records import connection
from testkit.frames.frames import produce, record_batch, request

CLIENT_ID_AT = 14


def flows_of(origin: Origin | None = None) -> Flows:
    flows = Flows(origin or connection("alice"), TopicNames())
    flows.of_client("alice", "app", METADATA)
    return flows


def test_what_a_request_begins_with_is_found_at_its_place() -> None:
    beginnings: Beginnings[str] = Beginnings()
    beginnings.keep(b"abc", "three")
    beginnings.keep(b"ab", "two")
    assert beginnings.find(bytearray(b"xxabcd"), 2) == "three", "the length that was kept first"
    assert beginnings.find(bytearray(b"xxabd"), 2) == "two"
    assert beginnings.find(bytearray(b"xxabd"), 1) is None
    beginnings.clear()
    assert (len(beginnings), beginnings.find(bytearray(b"abc"), 0)) == (0, None)


def test_of_too_many_ways_to_begin_the_first_are_forgotten() -> None:
    beginnings: Beginnings[int] = Beginnings()
    for number in range(64):
        beginnings.keep(bytes([number]), number)
    assert len(beginnings) == 64
    beginnings.keep(b"\xf0", 99)
    assert (len(beginnings), beginnings.find(bytearray(b"\xf0"), 0)) == (1, 99)


def test_of_too_many_lengths_the_last_are_not_kept() -> None:
    beginnings: Beginnings[int] = Beginnings()
    for length in range(1, 10):
        beginnings.keep(b"x" * (length - 1) + b"y", length)
    found = [beginnings.find(bytearray(b"x" * (length - 1) + b"y"), 0) for length in range(1, 10)]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8, None]
    beginnings.keep(b"z", 77)
    assert beginnings.find(bytearray(b"z"), 0) == 77, "of a length that is kept"


def fetch_of(
    topics: list[str], *, version: int = 12, session_id: int = 0, epoch: int = 0
) -> tuple[bytearray, int, int]:
    """(buffer, where max_bytes stands, its end)"""
    wanted: list[Value] = [{"topic": topic, "partitions": [{"partition": 0}]} for topic in topics]
    body: Struct = {"maxWaitMs": 1, "minBytes": 2, "maxBytes": 0x0A0B0C0D, "topics": wanted}
    if version >= 7:
        body |= {"sessionId": session_id, "sessionEpoch": epoch}
    frame = bytearray(request(FETCH, version, body))
    return frame, frame.index(b"\x0a\x0b\x0c\x0d"), len(frame)


def topic_of(flows: Flows, *topics: str, version: int = 12, epoch: int = 0) -> str:
    flow = flows.fetched(*fetch_of(list(topics), version=version, session_id=5, epoch=epoch), version)
    assert flow is not None
    return flow.topic


def test_a_later_fetch_of_a_session_is_of_the_topic_that_it_has() -> None:
    flows = flows_of()
    assert topic_of(flows, "a") == "a"
    assert topic_of(flows, epoch=1) == "a"
    assert flows.fetch_head == NO_TOPICS
    assert topic_of(flows, "a", epoch=2) == "a"
    assert topic_of(flows, "b", epoch=3) == "", "it has both now"
    assert topic_of(flows, epoch=4) == ""
    assert topic_of(flows, "b", epoch=5) == "", "of several it stays"
    assert flows.fetch_head == NO_HEAD, "it names one"
    assert topic_of(flows, "b") == "b", "a new one"
    assert topic_of(flows, "a", "b") == ""
    assert topic_of(flows, epoch=1) == ""
    assert topic_of(flows) == "", "a session that is opened without topics"
    assert topic_of(flows, "c", epoch=1) == "c"


def test_a_fetch_that_names_no_topic_is_known_by_that_in_flexible_versions_alone() -> None:
    """A classic one ends with its topics: what follows is another request."""
    for version, head in ((7, NO_HEAD), (11, NO_HEAD), (12, NO_TOPICS)):
        flows = flows_of()
        topic_of(flows, "a", version=version)
        assert topic_of(flows, version=version, epoch=1) == "a"
        assert flows.fetch_head == head


def test_a_fetch_without_a_session_is_of_its_topic_alone() -> None:
    flows = flows_of()
    assert topic_of(flows, "a", version=6) == "a"
    assert flows.fetch_head == NO_HEAD
    assert topic_of(flows, version=6) == ""
    assert topic_of(flows, "a", "b", version=6) == ""
    assert topic_of(flows, "b", version=6) == "b"


def test_the_head_of_a_fetch_that_was_read_is_known_where_it_comes_again() -> None:
    flows = flows_of()
    buf, offset, limit = fetch_of(["a"])
    first = flows.fetched(buf, offset, limit, 12)
    head = flows.fetch_head
    assert buf[offset + 13 :].startswith(head)
    assert head.endswith(b"a")
    topic_of(flows, "b")
    assert flows.fetched(buf, offset, offset + 13 + len(head), 12) is first
    assert flows.fetch_head is head
    assert flows.fetched(buf, offset, offset + 13 + len(head) - 1, 12) is None, "its end has not come"


def test_what_has_not_arrived_tells_no_topic() -> None:
    flows = flows_of()
    buf, offset, _ = fetch_of(["a"])
    assert flows.fetched(buf, offset, offset + 12, 12) is None
    assert flows.fetched(buf, offset, offset + 13, 12) is None


def produce_of(topic: str, *, acks: int = -1, version: int = 9) -> bytearray:
    return bytearray(produce({topic: [(0, record_batch(b"x"))]}, acks=acks, version=version))


def test_what_is_known_of_a_produce_stands_from_its_client_id_on() -> None:
    flows = flows_of()
    buf = produce_of("orders", acks=1)
    known = flows.read_produce(buf, CLIENT_ID_AT, CLIENT_ID_AT + 3, len(buf), 9)
    assert known is not None
    assert (known.flow.topic, known.version, known.acks) == ("orders", 9, 1)
    assert buf[CLIENT_ID_AT:].startswith(known.begin)
    assert known.begin.startswith(b"app")
    assert known.begin.endswith(b"orders")
    assert known.head_bytes == len(known.begin) - 3
    assert flows.produces.find(buf, CLIENT_ID_AT) is known
    end = CLIENT_ID_AT + len(known.begin)
    assert flows.read_produce(buf, CLIENT_ID_AT, CLIENT_ID_AT + 3, end - 1, 9) is None
    assert flows.read_produce(buf, CLIENT_ID_AT, CLIENT_ID_AT + 3, end, 9) is not None
    flows.of_client("alice", "other", PRODUCE)
    assert len(flows.produces) == 0


def test_a_name_that_no_topic_has_is_read_each_time() -> None:
    for length, head_bytes in ((249, 9 + 2 + 249), (250, UNKNOWN_HEAD)):
        flows = flows_of()
        buf = produce_of("x" * length)
        known = flows.read_produce(buf, CLIENT_ID_AT, CLIENT_ID_AT + 3, len(buf), 9)
        assert known is not None
        assert (known.head_bytes == UNKNOWN_HEAD) is (head_bytes == UNKNOWN_HEAD)
        assert known.flow.topic == ("x" * 249 if length == 249 else "")
        assert len(flows.produces) == (1 if length == 249 else 0)


def test_a_connection_keeps_sixty_four_flows_and_begins_anew() -> None:
    flows = flows_of()
    assert len(flows._flows) == 1, "of the request that came"
    for number in range(62):
        topic_of(flows, f"t{number}")
    assert len(flows._flows) == 63
    before = flows.other(METADATA)
    topic_of(flows, "last")
    assert (len(flows._flows), flows.other(METADATA) is before) == (64, True)
    topic_of(flows, "one more")
    assert len(flows._flows) == 1
    assert flows.other(METADATA) is not before


def test_another_user_asks_anew_for_all_flows() -> None:
    origin = connection("alice")
    flows = flows_of(origin)
    other = flows.other(3)
    fetch = flows.other(FETCH)
    other.kept = 5
    fetch.kept = 6
    flows.of_client("alice", "app", METADATA)
    assert (other.kept, fetch.kept) == (5, 6)
    flows.of_client("bob", "app", METADATA)
    assert origin.user == "bob"
    assert (other.number, fetch.number) == (ASK, ASK)


def test_requests_of_one_class_that_cost_otherwise_have_flows_of_their_own() -> None:
    flows = flows_of()
    metadata, versions = flows.other(3), flows.other(18)
    assert metadata is not versions
    assert metadata.api_class == versions.api_class == "metadata"
    assert metadata.parent is versions.parent
    assert flows.other(3) is metadata
    assert flows.other(PRODUCE).parent is None
    assert flows.other(12_345) is flows.other(-1)
