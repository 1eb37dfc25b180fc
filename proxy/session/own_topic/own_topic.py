"""The proxy's own topic, and which topic ids are its or others'; what all connections of a process share.

The topic may be made anew at any time, and clients may learn its new id before the proxy does. So an id is
another topic's only once it has been named with that one's name: by an answer to Metadata that passes, or by
the brokers, whom the shell asks about the ids in `wanted`. A topic has its id for life. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sluice.protocol.apis import ErrorCode
from sluice.protocol.codec.wire import uuid_text
from sluice.usage.flow import TopicNames

_MOST_OWN: Final = 8
"""that its topic has had; of more the one told first is forgotten, and is nobody's then"""
_MOST_OTHERS: Final = 100_000
_MOST_WANTED: Final = 1_000
"""Anybody can make ids up; of more the brokers are not asked until these have been."""
_TWO_BYTES: Final = 128
"""A varint from here on has two."""
_LAST_OF_LONG: Final = range(0, 0x80, 0x10)
"""the last byte of a varint that is longer than it need be; in a fifth byte Java drops all but four bits"""
_NO_ID: Final = bytes(16)


class OwnTopic:
    """The topic that is guarded."""

    __slots__ = (
        "_answers", "admins", "ask", "id_texts", "name", "name_bytes", "name_forms", "others", "own_ids",
        "topic_id", "wanted",
    )  # fmt: skip

    def __init__(self, name: str, admins: frozenset[str], topic_id: bytes = b"") -> None:
        """`topic_id`: 16 bytes, or empty as long as it is not known."""
        self.name: Final = name
        self.name_bytes: Final = name.encode()
        size = len(self.name_bytes)
        compact = size + 1 if size + 1 < _TWO_BYTES else (size + 1) // _TWO_BYTES
        lengths = size.to_bytes(2, "big"), *(bytes([last]) for last in {compact, *_LAST_OF_LONG})
        self.name_forms: Final = tuple(length + self.name_bytes for length in lengths)
        """how its name stands in requests: behind its length, or the last byte of that. First as
        versions before the compact ones have it"""
        self.admins = admins
        self.own_ids: tuple[bytes, ...] = ()
        """that it has, or had before it was made anew"""
        self.id_texts: tuple[str, ...] = ()
        """the same, as the codec writes them"""
        self.others: dict[bytes, None] = {}
        """ids of topics that are not this one"""
        self.wanted: dict[bytes, None] = {}
        """ids of which the brokers are to be asked whose they are"""
        self.ask: Callable[[], None] = _nobody
        """told when there is something in `wanted`"""
        self._answers = TopicNames()
        self.topic_id = b""
        self.is_known_as(topic_id)

    def is_known_as(self, topic_id: bytes) -> None:
        """Its id, from now on, as the brokers told it; empty: it is not known."""
        self.topic_id = topic_id
        if topic_id:
            self._is_own(topic_id)

    def error_of(self, topic_id: bytes) -> int:
        """What is answered to who reads or writes by this id: 0, it is another topic's; TOPIC_AUTHORIZATION_
        FAILED; UNKNOWN_TOPIC_ID, nobody knows yet: clients then ask for Metadata, and try again."""
        if topic_id in self.own_ids:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic_id in self.others:
            return ErrorCode.NONE
        if len(self.wanted) < _MOST_WANTED:
            self.wanted[topic_id] = None
            self.ask()
        return ErrorCode.UNKNOWN_TOPIC_ID

    def is_new(self, mark: int) -> bool:
        """As TopicNames.is_new, of the answers read for this topic."""
        return self._answers.is_new(mark)

    def was_read(self, mark: int) -> None:
        """As TopicNames.was_read, of the answers read for this topic."""
        self._answers.was_read(mark)

    def learn(self, topic_id: bytes, name: str) -> None:
        """A broker named this topic so."""
        if topic_id == _NO_ID:  # of a topic that is not there
            return
        if name == self.name:
            self._is_own(topic_id)
        elif topic_id not in self.own_ids:
            others = self.others
            if topic_id not in others and len(others) >= _MOST_OTHERS:
                del others[next(iter(others))]
            others[topic_id] = None

    def _is_own(self, topic_id: bytes) -> None:
        # It may have been taken for another's: the brokers' words on it are not of one moment.
        self.others.pop(topic_id, None)
        if topic_id not in self.own_ids:
            self.own_ids = (*self.own_ids, topic_id)[-_MOST_OWN:]
            self.id_texts = tuple(uuid_text(each) for each in self.own_ids)


def _nobody() -> None:
    """Until the brokers can be asked."""
