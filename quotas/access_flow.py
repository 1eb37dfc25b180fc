"""What the requests of a connection have in common for the access log: whose, of what, through which broker.

A flow stands in each request's record, so that the roll-up finds the row that grows (the flow's cell) without
a look-up. Knows no frames and no clock.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from sluice.quotas.access_record import ROLLUP_COLUMNS
from sluice.quotas.records import Flow
from sluice.quotas.request_cost import FLAT_COSTS, Coefficients, RequestCosts

COLUMN: Final = {column.name: index for index, column in enumerate(ROLLUP_COLUMNS)}
"""where each stands in a row"""
# A cell is a list, and short: of thousands few lie in a processor's cache. What nearly all requests add to
# stands at its beginning.
REQUESTS: Final = 0
REQUEST_BYTES: Final = 1
RESPONSE_BYTES: Final = 2
UPSTREAM_MS: Final = 3
SECOND: Final = 4
"""the last second in which the cell was added to, by the roll-up's own numbers"""
BEFORE: Final = 5
"""its bytes, requests and answers, before that second"""
PEAK: Final = 6
CONNECTIONS: Final = 7
PLACE: Final = 8
OTHERS: Final = 9
"""the row's other numbers, by their columns; None: all are 0"""
NEVER: Final = -1
"""no window has this number, nor any second in one"""
STALE: Final[list[Any]] = [0, 0, 0, 0.0, NEVER, 0, 0, 0, None, None]
"""of a flow that must ask the roll-up for its cell; nothing is ever added to it"""
Key: TypeAlias = tuple[str, str, str, str, str, str]
"""broker, user, client id, address, API class, topic"""
PRODUCE_CLASS: Final = "produce"
FETCH_CLASS: Final = "fetch"
MAX_CLIENT_ID: Final = 256
"""characters of a client id that are written; clients may send 32,767"""
_MAX_READ: Final = 1_000
"""answers that are told apart"""
MAX_HEADS: Final = 10_000
"""beginnings of requests, up to the end of their topic"""
MAX_TOPICS: Final = 100_000
"""whose names are kept by their ids"""


class TopicNames:
    """Topics' names by their ids, as answers to Metadata told them; all connections of a process share it."""

    __slots__ = ("_heads", "_names", "_read")

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._read: set[int] = set()
        self._heads: dict[bytes, bytes] = {}

    def shared_head(self, head: bytes) -> bytes:
        """The same bytes, one object for all connections whose requests begin so: compared with every
        request, it then lies in the processor's cache, which it does not where each has its own."""
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        return self._heads.setdefault(head, head)

    def is_new(self, answer: bytes) -> bool:
        """Has none like it been read lately? Clients ask for the same topics again and again."""
        mark = hash(answer)
        if mark in self._read:
            return False
        if len(self._read) >= _MAX_READ:
            self._read.clear()
        self._read.add(mark)
        return True

    def learn(self, topic_id: bytes, name: str) -> None:
        """It is called so. Of more than MAX_TOPICS the one told first is forgotten."""
        names = self._names
        if topic_id not in names and len(names) >= MAX_TOPICS:
            del names[next(iter(names))]
        names[topic_id] = name

    def name(self, topic_id: bytes) -> str | None:
        """None: no answer has told it."""
        return self._names.get(topic_id)


class Place:
    """A key of the roll-up: what all flows with it share from window to window, so that none looks it up."""

    __slots__ = ("__weakref__", "cell", "costs", "key", "window")

    def __init__(self, key: Key) -> None:
        self.key: Final = key
        self.window = NEVER
        """the last in which anything was added up"""
        self.cell = STALE
        """of that window"""
        self.costs: Coefficients | None = None
        """of its requests; None: their cost is added up one by one"""


class Origin:
    """Of one connection: what all its flows have in common."""

    __slots__ = ("address", "broker", "costs", "names", "user")

    def __init__(
        self,
        user: str,
        address: str = "",
        broker: str = "",
        costs: RequestCosts = FLAT_COSTS,
        names: TopicNames | None = None,
    ) -> None:
        """`costs`: what requests cost the broker behind."""
        self.user = user
        """the principal's name; a login may make it another"""
        self.address: Final = address
        self.broker: Final = broker
        self.costs: Final = costs
        self.names: Final = names


class AccessFlow(Flow):
    """Requests of one connection, client id, API class and topic."""

    __slots__ = ("api_class", "counted", "origin", "parent", "place", "topic", "topic_id", "why")

    def __init__(
        self,
        origin: Origin,
        client_id: str,
        api_class: str,
        topic: str = "",
        topic_id: bytes = b"",
        *,
        why: str = "",
        parent: AccessFlow | None = None,
    ) -> None:
        """`topic_id`: of a topic whose name was not known. `why`: a single request that gets a row of its
        own for this reason; `parent`: what it would belong to otherwise."""
        super().__init__(client_id)
        self.cell = STALE
        self.origin: Final = origin
        self.api_class: Final = api_class
        self.topic = topic
        self.topic_id = topic_id
        self.why: Final = why
        self.parent: Final = parent
        self.counted = NEVER
        """the window in which its connection was last counted"""
        self.place: Place | None = None
        """of its key; looked for anew in each window while its topic has no name"""

    def __repr__(self) -> str:
        return f"<AccessFlow {self.origin.user}/{self.client_id} {self.api_class} {self.topic!r}>"

    @property
    def is_mixed(self) -> bool:
        """Its requests are of several APIs: their cost does not follow from their sums."""
        return self.api_class not in {PRODUCE_CLASS, FETCH_CLASS}

    def marked(self, why: str) -> AccessFlow:
        """For one request that gets a row of its own."""
        return AccessFlow(
            self.origin, self.client_id, self.api_class, self.topic, self.topic_id, why=why, parent=self
        )

    def ask_anew(self) -> None:
        """Who it belongs to is another now."""
        self.cell = STALE
        self.counted = NEVER
        self.place = None

    def named_key(self) -> Key:
        """Its key now: a topic's name may have become known."""
        origin = self.origin
        if self.topic_id and origin.names is not None:
            name = origin.names.name(self.topic_id)
            if name is not None:
                self.topic = name
                self.topic_id = b""
        client_id = self.client_id[:MAX_CLIENT_ID]
        return (origin.broker, origin.user, client_id, "", self.api_class, self.topic)
