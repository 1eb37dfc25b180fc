"""Numbers that stand for flows and keys: never for two of them in windows that have not been told."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.usage.collector import AccessCollector
from sluice.usage.flow import AccessFlow, Origin
from sluice.usage.index import OTHER, AccessIndex, FlowCost
from sluice.usage.records import ASK, EventKind, ThrottleEvent
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from sluice.usage.requests import RequestRows
from sluice.usage.rollup import Window
from testkit.access_log.access_records import NOW_MS, OFFSET_MS, connection, flow, record, recorder_of, rollup
from testkit.access_log.access_windows import Told
from testkit.thorough import cases


def test_a_number_is_anothers_only_when_its_window_has_been_told() -> None:
    index = AccessIndex(max_keys=100)
    alice, bob = flow(connection("alice")), flow(connection("bob"))
    numbers = [index.number(of, 0, 9) for of in (alice, bob)]
    places = [index.place(of).number for of in (alice, bob)]
    assert (len(set(numbers)), len(set(places)), OTHER in places) == (2, 2, False)
    assert [alice.number, bob.number] == numbers, "nothing need be asked about their next requests"
    del alice
    dropped = index.next_window()
    assert (dropped.flows, dropped.places) == (numbers[:1], places[:1])
    carol = flow(connection("carol"))
    assert index.number(carol, 0, 9) not in numbers
    index.told(dropped, folded=0)
    dave = flow(connection("dave"))
    assert index.number(dave, 0, 9) == numbers[0]
    assert index.keys[index.place(dave).number][1] == "dave"


def test_connections_of_one_client_share_a_place_and_have_numbers_of_their_own() -> None:
    index = AccessIndex(max_keys=100)
    one, other = flow(connection()), flow(connection())
    assert index.number(one, 0, 9) != index.number(other, 0, 9)
    assert index.place(one) is index.place(other)


def test_a_produce_costs_a_batch_and_a_record_beside_what_every_request_does() -> None:
    costs = RequestCosts([
        CostRow(Coefficients(2.0, 0.25, 0.5, batch_ms=10.0, record_ms=20.0), 0),
        CostRow(Coefficients(1.0, 0.125, 0.75, batch_ms=10.0, record_ms=20.0)),
    ])  # fmt: skip
    index, origin = AccessIndex(max_keys=100), Origin("alice", costs=costs)
    for api_key in (0, 1):
        index.number(flow(origin, api_key=api_key), api_key, 9)
    assert index.costs[-2:] == [FlowCost(32.0, 0.25, 0.5), FlowCost(1.0, 0.125, 0.75)]


def test_a_flow_whose_user_is_another_now_is_asked_anew() -> None:
    index = AccessIndex(max_keys=100)
    origin = connection("ANONYMOUS")
    of_class = flow(origin, api_key=3)
    of_api = AccessFlow(origin, "app", of_class.api_class, parent=of_class)
    before = index.number(of_api, 3, 9)
    origin.user = "alice"
    of_api.ask_anew()
    assert of_api.number == of_class.number == ASK
    assert index.number(of_api, 3, 9) != before
    assert index.keys[index.place(of_api).number][1] == "alice"


def test_a_marked_request_stands_where_the_others_of_its_flow_do() -> None:
    index = AccessIndex(max_keys=100)
    origin = connection()
    of_class = flow(origin, api_key=3)
    of_api = AccessFlow(origin, "app", of_class.api_class, parent=of_class)
    assert index.number(of_api.marked("refused"), 3, 9) == index.number(of_api, 3, 9)
    assert index.number(of_class.marked("refused"), 3, 9) == index.number(of_class, 3, 9)


def test_keys_that_come_and_go_are_bounded_and_leave_room_for_others() -> None:
    """At most ten that wait to be told, five of one user: the others' flows count with all others'."""
    index = AccessIndex(max_keys=10)
    for number in range(1_000):
        index.number(flow(connection("mallory"), f"minted-{number}"), 0, 9)
    assert len(index.keys) <= 1 + 6
    minted, bob = flow(connection("mallory"), "new"), flow(connection("bob"))
    assert index.place(minted).number == OTHER
    assert index.place(bob).number != OTHER
    assert (minted.number, index.number(minted, 0, 9)) == (ASK, minted.kept)
    index.told(index.next_window(), folded=1_000)
    index.number(minted, 0, 9)
    assert index.keys[index.place(minted).number][2] == "new", "it is asked again in the next window"
    assert index.folded == 1_000


def test_keys_that_wait_for_windows_that_are_over_count_until_these_have_been_told() -> None:
    index = AccessIndex(max_keys=4)
    dropped = []
    for window in range(2):
        for number in range(2):
            index.number(flow(connection(f"user-{window}-{number}")), 0, 9)
        dropped.append(index.next_window())
    late = flow(connection("late"))
    assert index.place(late).number == OTHER
    index.told(dropped[0], folded=0)
    index.next_window()
    assert index.place(late).number != OTHER


def test_who_comes_back_before_its_window_is_over_waits_no_more() -> None:
    """Two of a user's keys may wait."""
    index = AccessIndex(max_keys=4)
    for _ in range(5):
        index.number(flow(connection("alice"), "back"), 0, 9)
    numbers = []
    for number in range(4):
        gone = flow(connection("alice"), f"minted-{number}")
        index.number(gone, 0, 9)
        numbers.append(index.place(gone).number)
    assert [each == OTHER for each in numbers] == [False, True, True, True]


class Comings(RuleBasedStateMachine):
    """Flows come and go, windows are told late: each request is counted for who made it."""

    def __init__(self) -> None:
        super().__init__()
        self.collected = AccessCollector(rollup(), RequestRows("p1", share=0.0, slow_ms=1e9, max_rows=0))
        self.flows: list[AccessFlow] = []
        self.now_ms = NOW_MS
        self.untold: deque[Window] = deque()
        self.told = Told()
        self.expected: Counter[tuple[float, str, str]] = Counter()
        self.holds: Counter[tuple[float, str, str]] = Counter()
        self.found: Counter[tuple[float, str, str]] = Counter()
        self.connections: dict[tuple[float, str, str], set[int]] = {}
        self.came = 0

    @rule(user=st.sampled_from("ab"), client_id=st.sampled_from("xyz"))
    def comes(self, user: str, client_id: str) -> None:
        self.flows.append(flow(connection(user, str(self.came)), client_id))
        self.came += 1

    @precondition(lambda self: self.flows)
    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        del self.flows[data.draw(st.integers(0, len(self.flows) - 1))]

    @precondition(lambda self: self.flows)
    @rule(data=st.data())
    def logs_in(self, data: st.DataObject) -> None:
        of = data.draw(st.sampled_from(self.flows))
        of.origin.user = data.draw(st.sampled_from("abc"))
        of.ask_anew()

    @precondition(lambda self: self.flows)
    @rule(data=st.data(), count=st.integers(1, 4))
    def asks(self, data: st.DataObject, count: int) -> None:
        records = []
        for _ in range(count):
            of = data.draw(st.sampled_from(self.flows))
            after_ms = self.now_ms - NOW_MS
            key = self._key_of(of)
            records.append(record(of, after_ms))
            self.expected[key] += 1
            self.connections.setdefault(key, set()).add(id(of.origin))
        self.collected.take(recorder_of(records), self.now_ms, self.now_ms + OFFSET_MS)

    @precondition(lambda self: self.flows)
    @rule(data=st.data())
    def is_held(self, data: st.DataObject) -> None:
        of = data.draw(st.sampled_from(self.flows))
        recorder = recorder_of([])
        recorder.throttles.append(
            ThrottleEvent(EventKind.HOLD, self.now_ms, 1.0, "produce", "user", "", "", 0, 0, flow=of)
        )
        self.collected.take(recorder, self.now_ms, self.now_ms + OFFSET_MS)
        self.holds[self._key_of(of)] += 1

    def _key_of(self, of: AccessFlow) -> tuple[float, str, str]:
        return (self.now_ms + OFFSET_MS) // 10_000 * 10_000, of.origin.user, of.client_id

    @rule()
    def a_window_ends(self) -> None:
        self.now_ms += 10_000.0
        self.collected.take(recorder_of([]), self.now_ms, self.now_ms + OFFSET_MS)
        self.untold.extend(one for one in self.collected.ready() if isinstance(one, Window))

    @precondition(lambda self: self.untold)
    @rule()
    def one_is_told(self) -> None:
        for row in self.told.rows(self.untold.popleft()):
            key = (row["window_start_ms"], row["user"], row["client_id"])
            assert key not in self.found, "one row for each key and window"
            self.found[key] = row["requests"]
            # A connection that logged in again in mid-window, to and fro, is counted once for each login.
            assert row["connections"] >= len(self.connections.get(key, ()))
            assert row["holds"] == self.holds[key]

    @invariant()
    def what_was_told_is_what_was_asked(self) -> None:
        untold = {window.start_unix_ms for window in self.untold}
        grows = (self.now_ms + OFFSET_MS) // 10_000 * 10_000
        expected = {
            key: count for key, count in self.expected.items() if key[0] != grows and key[0] not in untold
        }
        assert +self.found == expected  # without rows of holds alone


TestComings = Comings.TestCase
TestComings.settings = settings(deadline=None, max_examples=cases(100), stateful_step_count=40)
