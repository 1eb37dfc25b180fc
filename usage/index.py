"""Small numbers that stand for flows and for keys of the roll-up: a window's requests are columns of numbers.

A flow gets a number with its first request, and a key with its first flow. Both lose them when they are no
more; but a number stands for another only when every window has been told in which it may stand for the
first. So what tells a window, in its own thread, looks up what its numbers mean without a lock.

What waits for that is bounded: a user whose keys come and go faster than windows are told gets no further
ones for a while, and what they do counts with others'. A part of the room is kept for users who have few, or
several could crowd out all others together. Knows no frames and no clock.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from sluice.usage.flow import PRODUCE_CLASS, AccessFlow, Key, Place
from sluice.usage.records import ASK

OTHER_CLASS: Final = "other"
OTHER: Final = 0
"""the place of what has no row of its own"""
USER: Final = 1
"""in a key"""
CLIENT_ID: Final = 2
API_CLASS: Final = 4
_NUMBERS_AT_ONCE: Final = 1024
_OTHER_KEY: Final[Key] = ("", "", "", "", OTHER_CLASS, "")


_FEW_KEYS: Final = 16
"""who has fewer gets another one as long as there is any room"""


def most_of_user(max_keys: int) -> int:
    """Nobody takes all the room there is."""
    return max(1, max_keys // 2)


def may_have_another(has: int, left: int, users: int, max_keys: int) -> bool:
    """Whether a user who has so many keys gets another one, where `left` of `max_keys` are left, for `users`
    who have some.

    The last quarter is for users who have few: below an equal share of what is left, or below 16. What is
    left, and not the quarter: users who come one after another would take a half, a third, a quarter … of it,
    and seven of them all.
    """
    if left <= 0 or has >= most_of_user(max_keys):
        return False
    return left > max_keys // 4 or has < max(_FEW_KEYS, left // max(1, users))


class FlowCost(NamedTuple):
    """What each request of a flow costs, in ms of broker threads (request_cost.py)."""

    request_ms: float
    """a Produce's with one batch of one record: it has at least that"""
    request_byte_ms: float
    response_byte_ms: float


class Dropped(NamedTuple):
    """Numbers that nothing has any more."""

    flows: list[int]
    places: list[int]


class AccessIndex:
    """The index of one process. All but `columns` and `told` is for the event loop's thread."""

    def __init__(self, max_keys: int) -> None:
        """`max_keys`: that nothing has any more and that wait until their windows are told; of one user as
        `may_have_another` says."""
        self._max_keys = max_keys
        self.keys: Final[list[Key]] = [_OTHER_KEY]
        """by the numbers of places"""
        self.costs: Final[list[FlowCost]] = []
        """by the numbers that `columns` has of them; it only grows"""
        self.window = 0
        """counts windows"""
        self.folded = 0
        """times that a flow had no row of its own in a window that was told"""
        self._cost_numbers: dict[FlowCost, int] = {}
        self._place_of = array("i")
        self._owner_of = array("i")
        self._cost_of = array("i")
        self._new_flows: list[int] = []
        """numbers that come next, the next one last. They are made many at once so that they lie side by side
        in memory: each is read with every request of its flow, and those of busy flows share the processor's
        caches then."""
        self._dropped_flows: deque[int] = deque()
        self._dropped_places: deque[int] = deque()
        self._counted_places: dict[Key, int] = {}
        """that nothing has any more; who comes back before the window is over has the same again"""
        self._counted_of_user: Counter[str] = Counter()
        self._waiting_of_user: Counter[str] = Counter()
        """of those, and of windows that are over and not known to be told; nobody who has none"""
        self._untold_users: deque[Counter[str]] = deque()
        """of each window that is over and not known to be told, its part of them"""
        self._windows_told = 0
        self._windows_known_told = 0
        self._untold_places = 0
        """of windows that are over; those that were given back are in it"""
        self._free_flows: deque[int] = deque()
        self._free_places: deque[int] = deque()
        self._given_back_places = 0
        self._places: WeakValueDictionary[Key, Place] = WeakValueDictionary()
        self._other = Place(_OTHER_KEY, OTHER, [])

    # For the loop's thread ---------------------------------------------------------------------------------

    def number(self, flow: AccessFlow, api_key: int, version: int) -> int:
        """What stands for a request of this flow; of one that is marked, what stands for the others."""
        parent = flow.parent
        if flow.why and parent is not None:
            flow, parent = parent, parent.parent
        place = self.place(flow)
        if flow.kept == ASK or self._place_of[flow.kept] != place.number:
            owner = ASK if parent is None else self.number(parent, api_key, version)
            self._give(flow, place, owner, api_key, version)
        return flow.kept

    def place(self, flow: AccessFlow) -> Place:
        """Where a flow's doings are added up: in its key's row, or in that of all others."""
        while flow.parent is not None:
            flow = flow.parent
        place = flow.place
        # Again in each window, and when one has been told, for that makes room.
        asks = self.window + self._windows_told
        must_ask = place is None or (place is self._other and flow.asked != asks)
        if must_ask or flow.topic_id:
            key = flow.named_key()
            if place is None or must_ask or key != place.key:
                place = flow.place = self._place_of_key(key)
                flow.asked = asks
        assert place is not None
        return place

    def new_place(self, key: Key) -> Place:
        """Another one, for as long as it is kept."""
        free = self._free_places
        if free:
            number = free.popleft()
            self.keys[number] = key
        else:
            number = len(self.keys)
            self.keys.append(key)
        return Place(key, number, self._dropped_places)

    def next_window(self) -> Dropped:
        """What nothing has had any more since the last: for `told`, with the window that is over."""
        self._count_dropped()
        flows = [self._dropped_flows.popleft() for _ in range(len(self._dropped_flows))]
        dropped = Dropped(flows, list(self._counted_places.values()))
        self._untold_places += len(self._counted_places)
        self._counted_places.clear()
        self._untold_users.append(self._counted_of_user)
        self._counted_of_user = Counter()
        self.window += 1
        return dropped

    # For the thread that tells windows ---------------------------------------------------------------------

    def columns(self) -> tuple[bytes, bytes, bytes]:
        """By the numbers of flows, as int32: their place, the flow that stands for their connection in it,
        and their cost."""
        return bytes(self._place_of), bytes(self._owner_of), bytes(self._cost_of)

    def told(self, dropped: Dropped, folded: int) -> None:
        """All windows in which they may stand have been told. `folded`: connections that had no row of their
        own in the last."""
        self.folded += folded
        self._free_flows.extend(dropped.flows)
        self._free_places.extend(dropped.places)
        self._given_back_places += len(dropped.places)
        self._windows_told += 1

    # Within ------------------------------------------------------------------------------------------------

    def _give(self, flow: AccessFlow, place: Place, owner: int, api_key: int, version: int) -> None:
        number = self._free_flows.popleft() if self._free_flows else self._new_flow()
        self._place_of[number] = place.number
        self._owner_of[number] = number if owner == ASK else owner
        self._cost_of[number] = self._cost(flow, api_key, version)
        is_settled = place is not self._other and not (flow.topic_id and flow.origin.names is not None)
        flow.keep(number, place, self._dropped_flows, is_settled=is_settled)

    def _new_flow(self) -> int:
        if not self._new_flows:
            begin = len(self._place_of)
            self._new_flows = list(range(begin, begin + _NUMBERS_AT_ONCE))
            self._new_flows.reverse()
        for column in (self._place_of, self._owner_of, self._cost_of):
            column.append(0)
        return self._new_flows.pop()

    def _cost(self, flow: AccessFlow, api_key: int, version: int) -> int:
        costs = flow.origin.costs.of(api_key, version)
        each_ms = costs.request_ms
        if flow.api_class == PRODUCE_CLASS:
            each_ms += costs.batch_ms + costs.record_ms
        cost = FlowCost(each_ms, costs.request_byte_ms, costs.response_byte_ms)
        number = self._cost_numbers.get(cost)
        if number is None:
            number = self._cost_numbers[cost] = len(self.costs)
            self.costs.append(cost)
        return number

    def _place_of_key(self, key: Key) -> Place:
        place = self._places.get(key)
        if place is None:
            self._count_dropped()
            number = self._counted_places.pop(key, None)
            if number is not None:
                self._counted_of_user[key[USER]] -= 1
                self._wait_no_more(key[USER], 1)
                place = Place(key, number, self._dropped_places)
            elif self._is_full_of(key[USER]):
                return self._other
            else:
                place = self.new_place(key)
            self._places[key] = place
        return place

    def _is_full_of(self, user: str) -> bool:
        while self._windows_known_told < self._windows_told:
            self._windows_known_told += 1
            for its_user, places in self._untold_users.popleft().items():
                self._wait_no_more(its_user, places)
        waiting = len(self._counted_places) + self._untold_places - self._given_back_places
        of_user = self._waiting_of_user
        return not may_have_another(of_user[user], self._max_keys - waiting, len(of_user), self._max_keys)

    def _wait_no_more(self, user: str, places: int) -> None:
        left = self._waiting_of_user.pop(user, 0) - places
        if left:
            self._waiting_of_user[user] = left

    def _count_dropped(self) -> None:
        dropped = self._dropped_places
        while dropped:
            number = dropped.popleft()
            key = self.keys[number]
            if key not in self._counted_places:
                self._counted_of_user[key[USER]] += 1
                self._waiting_of_user[key[USER]] += 1
            self._counted_places[key] = number
