"""The copy on disk of the limits in the quota topic, from which a proxy starts when the topic cannot be read.

One that is damaged or of another topic is told and moved aside (`.refused`). Holds the topic's id too, by
which clients may ask for it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sluice.proxy.quota_store.topic_records import BadRecord, Stored, copy_of, entries_of
from sluice.proxy.runtime.file_work import within
from sluice.proxy.runtime.json_pieces import pieces_of
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.private_file import PrivateFile, unusable
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import read_bytes

_VERSION: Final = 1
_KEY: Final = "quotas.topic.copy_file"
_MAX_BYTES: Final = 256 * 1024 * 1024

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy holds."""

    entries: dict[QuotaEntity, Stored] = field(default_factory=dict)
    topic_id: bytes = b""
    """16 bytes; empty: it was not known"""


class QuotaCopy:
    """Keeps the copy of one process."""

    def __init__(self, path: Path, topic: str) -> None:
        """Raises ConfigError if no file could ever be written there."""
        problem = unusable(path)
        if problem:
            raise ConfigError([Problem(problem, path=_KEY)])
        self._path = path
        self._file = PrivateFile(path)
        self._topic = topic

    def read(self) -> Copied | None:
        """What the file holds; None: there is none, or none of use. Blocks."""
        try:
            text = within(str(self._path), lambda: read_bytes(self._path, _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ConfigError) as error:
            _log.error("quota_copy_unreadable", file=str(self._path), reason=str(error))
            return None
        try:
            return self._parsed(text)
        except (ValueError, KeyError, TypeError, BadRecord, RecursionError) as error:
            kept_as = self._file.move_aside()
            _log.error("quota_copy_refused", file=str(self._path), reason=str(error), kept_as=kept_as)
            return None

    def write(self, copied: Copied) -> None:
        """Put it in the file's place. Blocks; for a thread. Raises OSError."""
        number = self._file.take_number()
        inner = {"topic": self._topic, "topic_id": copied.topic_id.hex(), "entries": copy_of(copied.entries)}
        body = "".join(pieces_of(inner))
        digest = hashlib.sha256(body.encode()).hexdigest()
        text = "".join(pieces_of({"version": _VERSION, "sha256": digest, "body": body}))
        self._file.replace(text.encode(), number)

    def _parsed(self, text: bytes) -> Copied:
        outer: dict[str, Any] = json.loads(text)
        if outer["version"] != _VERSION:
            raise ValueError(f"version {outer['version']!r}, known is {_VERSION}")
        body: str = outer["body"]
        if hashlib.sha256(body.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("damaged: its checksum is another")
        inner: dict[str, Any] = json.loads(body)
        if inner["topic"] != self._topic:
            raise ValueError(f"it is of the topic {inner['topic']!r}")
        return Copied(entries_of(inner["entries"]), bytes.fromhex(inner["topic_id"]))
