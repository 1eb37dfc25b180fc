"""What the requests of a connection have in common for the access log: whose, of what, through which broker.

A flow stands in each request's record, and for the flow a number (index.py), so that a window's
requests are columns of numbers. Knows no frames and no clock.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Final, TypeAlias

from sluice.quotas.limits.client_ids import MAX_CLIENT_ID
from sluice.usage.records import ASK, Flow
from sluice.usage.request_cost import FLAT_COSTS, RequestCosts

Key: TypeAlias = tuple[str, str, str, str, str, str]
"""broker, user, client id, address, API class, topic"""
PRODUCE_CLASS: Final = "produce"
FETCH_CLASS: Final = "fetch"
REFUSED: Final = "refused"
"""why a request has a row of its own that a quota has refused"""
_MAX_READ: Final = 1_000
"""answers that are told apart"""
MAX_HEADS: Final = 10_000
"""of Fetches, up to the end of their topic"""
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
        """The same bytes, one object for all connections whose Fetches go on so: compared with every one of
        them, it then lies in the processor's cache, which it does not where each has its own."""
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        return self._heads.setdefault(head, head)

    def is_new(self, mark: int) -> bool:
        """Has no answer with this mark been read lately? Clients ask for the same topics again and again."""
        return mark not in self._read

    def was_read(self, mark: int) -> None:
        """The answer with this mark was, to its end."""
        if len(self._read) >= _MAX_READ:
            self._read.clear()
        self._read.add(mark)

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
    """A key of the roll-up, for as long as a flow has it."""

    __slots__ = ("__weakref__", "_dropped", "key", "number")

    def __init__(self, key: Key, number: int, dropped: MutableSequence[int]) -> None:
        """`dropped`: where its number is left when nothing has this key any more."""
        self.key: Final = key
        self.number: Final = number
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped.append(self.number)


class Origin:
    """What all flows of one connection have in common."""

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
        self.broker = broker
        """the one that was dialled may be another"""
        self.costs: Final = costs
        self.names: Final = names


class AccessFlow(Flow):
    """Requests of one connection, client id, API class and topic; where a class has several APIs, of one."""

    __slots__ = (
        "_dropped", "api_class", "asked", "kept", "origin", "parent", "place", "topic", "topic_id", "why",
    )  # fmt: skip

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
        own for this reason; `parent`: what it belongs to, as the connection's other requests do."""
        super().__init__(client_id)
        self.origin: Final = origin
        self.api_class: Final = api_class
        self.topic = topic
        self.topic_id = topic_id
        self.why: Final = why
        self.parent: Final = parent
        self.kept = ASK
        """what stands for it, though its requests may have to be looked at; ASK: nothing does yet"""
        self.asked = 0
        """the window in which its place was looked for"""
        self.place: Place | None = None
        """of its key; of a flow with a parent, the parent's"""
        self._dropped: MutableSequence[int] | None = None

    def __repr__(self) -> str:
        return f"<AccessFlow {self.origin.user}/{self.client_id} {self.api_class} {self.topic!r}>"

    def __del__(self) -> None:
        self._drop()

    def marked(self, why: str) -> AccessFlow:
        """For one request that gets a row of its own."""
        return AccessFlow(
            self.origin, self.client_id, self.api_class, self.topic, self.topic_id, why=why, parent=self
        )

    def ask_anew(self) -> None:
        """Who it belongs to is another now."""
        if self.parent is not None:
            self.parent.ask_anew()
        self._drop()
        self.number = self.kept = ASK
        self.place = None

    def keep(self, number: int, place: Place, dropped: MutableSequence[int], *, is_settled: bool) -> None:
        """This stands for it from now on, nothing need be asked while it `is_settled`. `dropped`: where it is
        left when it does no more."""
        self._drop()
        self.kept = number
        self.number = number if is_settled else ASK
        self.place = place
        self._dropped = dropped

    def named_key(self) -> Key:
        """The key that it has now, with the names that are known."""
        origin, client_id = self.origin, self.client_id[:MAX_CLIENT_ID]
        return (origin.broker, origin.user, client_id, "", self.api_class, self.named_topic())

    def named_topic(self) -> str:
        """Its topic's name: that may have become known."""
        names = self.origin.names
        if self.topic_id and names is not None:
            name = names.name(self.topic_id)
            if name is not None:
                self.topic = name
                self.topic_id = b""
        return self.topic

    def _drop(self) -> None:
        if self.kept != ASK and self._dropped is not None:
            self._dropped.append(self.kept)
