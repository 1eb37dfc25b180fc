"""The copy on disk of the limits in the quota topic, from which a proxy starts when the topic cannot be read.

Written beside and put in its place, so that a reader sees all of one state; one that is damaged or of another
topic is told and moved aside (`.refused`). Holds the topic's id too, by which clients may ask for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sluice.proxy.log import get_logger
from sluice.proxy.quota_topic_records import BadRecord, Stored, copy_of, entries_of
from sluice.quotas.config_error import ConfigError, Problem
from sluice.quotas.entity import QuotaEntity

_VERSION: Final = 1
_KEY: Final = "quotas.topic.copy_file"

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy holds."""

    entries: dict[QuotaEntity, Stored] = field(default_factory=dict)
    topic_id: bytes = b""
    """16 bytes; empty: it was not known"""


class QuotaCopy:
    """Of one process."""

    def __init__(self, path: Path, topic: str) -> None:
        """Raises ConfigError if no file could ever be written there."""
        self._path = path
        self._topic = topic
        self._beside = path.with_name(f".{path.name}.new")
        self._lock = threading.Lock()
        self._taken = 0
        self._written = 0
        folder = path.parent
        if not folder.is_dir() or path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError([Problem(f"{path} cannot be written; name a file in a folder", path=_KEY)])

    def read(self) -> Copied | None:
        """What the file holds; None: there is none, or none of use. Blocks."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.error("quota_copy_unreadable", file=str(self._path), reason=str(error))
            return None
        try:
            return self._parsed(text)
        except (ValueError, KeyError, TypeError, BadRecord, RecursionError) as error:
            aside = self._path.with_name(f"{self._path.name}.refused")
            try:
                os.replace(self._path, aside)
                kept_as = str(aside)
            except OSError as problem:
                kept_as = f"not kept: {problem}"
            _log.error("quota_copy_refused", file=str(self._path), reason=str(error), kept_as=kept_as)
            return None

    def write(self, copied: Copied) -> None:
        """Put it in the file's place. Blocks; for a thread. Raises OSError."""
        with self._lock:
            self._taken += 1
            number = self._taken
        body = json.dumps(
            {"topic": self._topic, "topic_id": copied.topic_id.hex(), "entries": copy_of(copied.entries)}
        )
        digest = hashlib.sha256(body.encode()).hexdigest()
        text = json.dumps({"version": _VERSION, "sha256": digest, "body": body})
        with self._lock:
            if number < self._written:
                return
            with open(self._beside, "w", encoding="utf-8", opener=_private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._beside, self._path)
            self._written = number

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


def _private(path: str, flags: int) -> int:
    """Names of users stand in it."""
    return os.open(path, flags, 0o600)
