"""The flows of one connection: of which topic a Produce or Fetch is, told in one comparison of bytes. Pure.

Nearly all Produce requests of a connection begin alike up to the end of their topic's name (or id), or if
they have several, up to the number of these; and so do its Fetches from their topics on. Those that go to
topics by turns begin like one of the last. What differs is read. A Fetch belongs to the topic of its fetch
session: an incremental one names only what has changed, and its answer may bring any topic of the session
(KIP-227).
Only with an access log; without one no connection has this. Source: ProduceRequest.json, FetchRequest.json.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from sluice.protocol.apis import PRODUCE
from sluice.protocol.codec.wire import uuid_text
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch import FIRST_FLEXIBLE as FETCH_FIRST_FLEXIBLE
from sluice.protocol.headers import request_body
from sluice.protocol.primitives import (
    UUID_BYTES,
    compact_string,
    int16,
    int32,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
    string,
    uvarint,
)
from sluice.protocol.produce import FIRST_FLEXIBLE, FIRST_TOPIC_ID
from sluice.usage.flow import FETCH_CLASS, PRODUCE_CLASS, AccessFlow, Origin, TopicNames
from sluice.usage.records import Flow

_OTHER_CLASS: Final = "other"
_APIS: Final = {
    PRODUCE_CLASS: (0,),
    FETCH_CLASS: (1, 78),
    "group": (8, 9, 10, 11, 12, 13, 14, 28, 68, 76, 79, 88),
    "metadata": (2, 3, 18, 23, 60, 75),
    "admin": (
        15, 16, 19, 20, 21, *range(29, 36), *range(37, 52), 55, 57, 61, 64, 65, 66, 69, 74, 77,
        80, 81, 82, 89, 90, 91, 92,
    ),
    "login": (17, 36),
}  # fmt: skip
_OF_ONE_COST: Final = (PRODUCE_CLASS, FETCH_CLASS)
"""classes whose requests cost about the same: one flow is enough for them"""
_CLASSES: Final = {api_key: api_class for api_class, keys in _APIS.items() for api_key in keys}
FIRST_WITH_IDS: Final = 10
"""of Metadata: its answers have names and ids, laid out up to the last topic as SizeReader reads them"""
NO_HEAD: Final = b"\xff" * 16
"""No request that can be read goes on so: a number of topics would be −1, or a length have 35 bits."""
_UNKNOWN: Final = -1
_MAX_FLOWS: Final = 64
"""of a connection; with more topics it is counted among `connections` more than once in a window"""
_MAX_LENGTHS: Final = 8
"""each is one more try, of a tenth of the time that reading takes"""
_MAX_BEGIN_BYTES: Final = 1_024
"""of a Produce, from its client id on: these and its transactional id may have 32 KiB each, and a longer
one is read each time"""
UNKNOWN_HEAD: Final = 2**31
"""bytes: no Produce is so long"""
NO_TOPICS: Final = b"\1"
"""how a Fetch goes on that names none; it tells of a session's Fetch (`is_incremental`) alone"""
_NOT_FETCHED: Final = Flow()
"""no request has it: none goes on as NO_HEAD"""
_MAX_TOPIC: Final = 249
_TOO_LONG: Final = -1
_FETCH_FIRST_SESSION: Final = 7
_FETCH_FIRST_TOPIC_ID: Final = 13
TOPICS_AT: Final = 13
"""of a Fetch with a session, behind max_bytes: itself, isolation level, session id, epoch"""
_EPOCH_AT: Final = 9
_TOPICS_AT_WITHOUT_SESSION: Final = 5


def is_incremental(buf: bytearray, offset: int, limit: int) -> bool:
    """Is the Fetch whose max_bytes stands at `offset` a later one of a session? Raises MalformedFrame if that
    does not stand before `limit`."""
    epoch, _ = int32(buf, offset + _EPOCH_AT, limit)
    return epoch > 0  # −1: the last of a session, or of none; it names all it wants, like the first


_Known = TypeVar("_Known")


class Beginnings(Generic[_Known]):
    """What was read of requests of a connection, by the bytes that told it; of the next few of them no more
    than that is looked at."""

    __slots__ = ("_known", "_lengths")

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}
        self._lengths: tuple[int, ...] = ()
        """that their bytes have"""

    def __len__(self) -> int:
        return len(self._known)

    def find(self, buf: bytearray, start: int) -> _Known | None:
        """What stands at `start` if that has been read; whether so much has arrived is not looked at."""
        for length in self._lengths:
            known = self._known.get(bytes(buf[start : start + length]))
            if known is not None:
                return known
        return None

    def keep(self, begin: bytes, known: _Known) -> None:
        """`begin` tells it. Of too many ways to begin the first are forgotten, of too many lengths the last
        are not kept."""
        if len(self._known) >= _MAX_FLOWS:  # a client can begin the same topic's in many ways
            self.clear()
        length = len(begin)
        if length not in self._lengths and len(self._lengths) < _MAX_LENGTHS:
            self._lengths += (length,)
        if length in self._lengths:
            self._known[begin] = known

    def clear(self) -> None:
        """Forget all topics; none is known."""
        self._known.clear()
        self._lengths = ()


class _KnownFetch(NamedTuple):
    """A Fetch that is not incremental, from its topics on."""

    head: bytes
    """to the end of its topic, or of the number of topics; for all connections the same object"""
    flow: AccessFlow
    topic: str
    """"" if there are several"""
    is_several: bool


class KnownBegin(NamedTuple):
    """How a Produce begins that need not be read for its topic."""

    begin: bytes
    """from its client id to the end of its topic, or of the number of its topics"""
    head_bytes: int
    """of that, what stands behind the client id; UNKNOWN_HEAD: the next is to be read all the same"""
    flow: AccessFlow
    version: int
    """that it had, for at another the same bytes may mean other `acks`"""
    acks: int


class Flows:
    """Access flows of one connection. `fetch` and `fetch_head` are looked at where requests are judged."""

    __slots__ = (
        "_client_id", "_fetch_version", "_fetches", "_flows", "_names", "_others", "_session_is_several",
        "_session_topic", "_user", "fetch", "fetch_head", "origin", "produces",
    )  # fmt: skip

    def __init__(self, origin: Origin, names: TopicNames) -> None:
        self.origin = origin
        self._names = names
        self._flows: dict[tuple[str, str, str], AccessFlow] = {}  # by client id, API class, topic
        self._user = origin.user
        self._client_id = ""
        self._others: dict[int, AccessFlow] = {}
        self.produces: Final[Beginnings[KnownBegin]] = Beginnings()
        """from the client id on, which is this one"""
        self._fetches: Beginnings[_KnownFetch] = Beginnings()
        self._fetch_version = _UNKNOWN
        """that all of those had"""
        self._session_topic = ""
        self._session_is_several = False
        self.fetch_head = NO_HEAD
        """of the last Fetch: what stands TOPICS_AT behind max_bytes, to the end of the topic or of the number
        of topics, if what goes on so is of the same flow"""
        self.fetch: Flow = _NOT_FETCHED
        """of what goes on as `fetch_head`"""

    def of_client(self, user: str, client_id: str, api_key: int) -> AccessFlow:
        """Requests are this client's from now on. Returns the flow of the one at hand until it is judged:
        of a connection of one request there is no other."""
        if user != self._user:
            self._user_is(user)
        if client_id != self._client_id:
            self._client_id = client_id
            self._others.clear()
            self._forget_beginnings()
            self.fetch_head = NO_HEAD
        return self.other(api_key)

    def other(self, api_key: int) -> AccessFlow:
        """The flow of a request that is neither Produce nor Fetch, or of which no topic can be told."""
        found = self._others.get(api_key)
        if found is None:
            api_class = _CLASSES.get(api_key)
            if api_class is None and api_key != _UNKNOWN:
                return self.other(_UNKNOWN)
            of_class = self._of(api_class or _OTHER_CLASS)
            found = of_class
            if api_class not in _OF_ONE_COST:
                found = AccessFlow(of_class.origin, of_class.client_id, of_class.api_class, parent=of_class)
            self._others[api_key] = found
        return found

    def _user_is(self, user: str) -> None:
        """The broker said yes to a login."""
        self._user = self.origin.user = user
        for flow in (*self._flows.values(), *self._others.values()):
            flow.ask_anew()

    def read_produce(
        self, buf: bytearray, start: int, client_id_end: int, limit: int, version: int
    ) -> KnownBegin | None:
        """What is remembered of the Produce whose client id begins at `start`, to know the next one like it;
        None: its topics have not arrived before `limit`."""
        try:
            pos = request_body(buf, client_id_end, limit, PRODUCE, version)
            is_flexible = version >= FIRST_FLEXIBLE
            pos = (skip_compact_nullable if is_flexible else skip_nullable_string)(buf, pos, limit)
            acks, _ = int16(buf, pos, limit)
            count, topic, topic_id, pos = _first_topic(
                buf, skip(pos, 6, limit), limit, is_flexible=is_flexible, has_ids=version >= FIRST_TOPIC_ID
            )
        except MalformedFrame:
            return None
        flow = self._of(PRODUCE_CLASS, topic, topic_id)
        if count == _TOO_LONG or pos - start > _MAX_BEGIN_BYTES:
            return KnownBegin(bytes(buf[start:client_id_end]), UNKNOWN_HEAD, flow, version, acks)
        known = KnownBegin(bytes(buf[start:pos]), pos - client_id_end, flow, version, acks)
        self.produces.keep(known.begin, known)
        return known

    def fetched(self, buf: bytearray, offset: int, limit: int, version: int) -> AccessFlow | None:
        """The flow of the Fetch whose max_bytes stands at `offset`; None as for a Produce. Afterwards `fetch`
        and `fetch_head` are as for this one."""
        if version != self._fetch_version:  # at another the same bytes may mean another topic
            self._fetch_version = version
            self._fetches.clear()
        has_session = version >= _FETCH_FIRST_SESSION
        try:
            is_new = not (has_session and is_incremental(buf, offset, limit))
        except MalformedFrame:
            return None
        at = offset + (TOPICS_AT if has_session else _TOPICS_AT_WITHOUT_SESSION)
        if is_new:
            known = self._fetches.find(buf, at)
            if known is not None and at + len(known.head) <= limit:
                self.fetch = known.flow
                self._session_topic, self._session_is_several = known.topic, known.is_several
                self.fetch_head = known.head if has_session else NO_HEAD
                return known.flow
        return self._read_fetch(buf, at, limit, version, is_new=is_new)

    def _read_fetch(
        self, buf: bytearray, at: int, limit: int, version: int, *, is_new: bool
    ) -> AccessFlow | None:
        """The flow of the Fetch whose topics stand `at`; `is_new`: it is not incremental."""
        is_flexible = version >= FETCH_FIRST_FLEXIBLE
        try:
            count, topic, topic_id, pos = _first_topic(
                buf, at, limit, is_flexible=is_flexible, has_ids=version >= _FETCH_FIRST_TOPIC_ID
            )
        except MalformedFrame:
            return None
        known = "" if is_new else self._session_topic
        was_several = self._session_is_several and not is_new
        if count == 0:
            topic, topic_id = known, b""
        is_several = was_several or count > 1 or count == _TOO_LONG or bool(known and topic != known)
        if is_several:
            topic, topic_id = "", b""
        self._session_topic, self._session_is_several = topic, is_several
        self.fetch = flow = self._of(FETCH_CLASS, topic, topic_id)
        head = NO_HEAD
        if count > 1 or (count == 1 and not is_several):
            head = self._names.shared_head(bytes(buf[at:pos]))
            self._fetches.keep(head, _KnownFetch(head, flow, topic, is_several))
        elif count == 0 and is_flexible:
            head = NO_TOPICS
        self.fetch_head = head if version >= _FETCH_FIRST_SESSION else NO_HEAD
        return flow

    def _forget_beginnings(self) -> None:
        self.produces.clear()
        self._fetches.clear()

    def _of(self, api_class: str, topic: str = "", topic_id: bytes = b"") -> AccessFlow:
        key = (self._client_id, api_class, topic)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= _MAX_FLOWS:
                self._flows.clear()
                self._others.clear()
                self._forget_beginnings()
            flow = self._flows[key] = AccessFlow(self.origin, self._client_id, api_class, topic, topic_id)
        return flow


def _first_topic(
    buf: bytearray, pos: int, limit: int, *, is_flexible: bool, has_ids: bool
) -> tuple[int, str, bytes, int]:
    """(how many topics, the first one's name or id in text form, its id, where that ends); no name unless
    there is one topic; _TOO_LONG: one of a name that no topic has. Raises MalformedFrame for what is cut off,
    too."""
    if is_flexible:
        count, pos = uvarint(buf, pos, limit)
        count -= 1
    else:
        count, pos = int32(buf, pos, limit)
    if count != 1:
        return max(count, 0), "", b"", pos
    if has_ids:
        topic_id, pos = bytes(buf[pos : pos + UUID_BYTES]), skip(pos, UUID_BYTES, limit)
        return 1, uuid_text(topic_id), topic_id, pos
    topic, pos = (compact_string if is_flexible else string)(buf, pos, limit)
    # It is none (Topic.MAX_NAME_LENGTH), and would only be kept.
    return (_TOO_LONG, "", b"", pos) if len(topic) > _MAX_TOPIC else (1, topic, b"", pos)
