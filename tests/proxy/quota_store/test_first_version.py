"""What the first version wrote is read: producer ids, the quota topic, its options' names."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from sluice.proxy.config.schema import config_schema_text
from sluice.proxy.quota_store.entities import key_of
from sluice.proxy.quota_store.producer_id_file import ProducerIdFile, SnapshotOutcome
from sluice.proxy.quota_store.schema import quotas_schema_text
from sluice.proxy.quota_store.topic_records import Stored, read_key, read_value, value_of
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from testkit.releases import FIRST_VERSION

WRITTEN_UNIX_S = 1_795_623_826.0
"""about when the file of producer ids was written; they are forgotten with time"""


def test_its_producer_ids_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(shutil.copy(FIRST_VERSION / "producer-ids", tmp_path))
    monkeypatch.setattr(time, "time", lambda: WRITTEN_UNIX_S)
    quota, file = ProducerIdQuota(ProducerIdSettings()), ProducerIdFile(path, "broker-1:9092")
    file.restore(quota)
    assert file.outcomes[SnapshotOutcome.RESTORED] == 1
    now_ms = monotonic() * 1000.0
    alice, bob = (quota.principal(user, 100.0, now_ms).store for user in ("alice", "bob"))
    assert [number for number in range(1_003) if alice.seen(number, now_ms)] == list(range(1, 1_001))
    assert [number for number in (1, 7, 8, 5_000_000_000) if bob.seen(number, now_ms)] == [7, 5_000_000_000]


def test_its_records_of_the_quota_topic_say_the_same_and_are_written_the_same() -> None:
    pairs = [
        (key.encode(), value.encode())
        for key, value in json.loads((FIRST_VERSION / "quota-topic.json").read_text())
    ]
    found = {read_key(key): read_value(read_key(key), value) for key, value in pairs}
    assert found == {
        QuotaEntity("alice", "reports"): Stored(
            {"producer_byte_rate": 1_048_576.0, "consumer_byte_rate": 2.5e6}
        ),
        QuotaEntity(DEFAULT): Stored(
            {"consumer_byte_rate": 5_242_880.0, "request_percentage": 150.0},
            frozenset({"request_percentage"}),
        ),
        QuotaEntity(None, DEFAULT): Stored({"controller_mutation_rate": 10.0}),
        QuotaEntity("bob"): Stored({"producer_ids_rate": 100.0}),
        QuotaEntity(None, None, "192.0.2.7"): Stored({"connection_creation_rate": 5.0}),
        QuotaEntity("née/ü", DEFAULT): Stored({"producer_byte_rate": 1.0}),
    }
    # Proxies of both versions write and read one topic.
    written = [(key_of(entity), json.loads(value_of(stored) or b"")) for entity, stored in found.items()]
    assert written == [(key, json.loads(value)) for key, value in pairs]


def names_of(schema: dict[str, Any], root: dict[str, Any], before: str) -> set[str]:
    if "$ref" in schema:
        return names_of(root["$defs"][schema["$ref"].rpartition("/")[2]], root, before)
    found: set[str] = set()
    for way in ("anyOf", "allOf", "oneOf"):
        for part in schema.get(way, []):
            found |= names_of(part, root, before)
    if isinstance(schema.get("items"), dict):
        found |= names_of(schema["items"], root, f"{before}[]")
    for name, part in schema.get("properties", {}).items():
        found |= {f"{before}.{name}"} | names_of(part, root, f"{before}.{name}")
    return found


def test_no_option_has_gone_but_those_that_the_changelog_tells() -> None:
    gone = {"config.access_log.topic.copy_file"}  # it was accepted and did nothing
    now: set[str] = set()
    for name, text in (("config", config_schema_text()), ("quotas", quotas_schema_text())):
        schema = json.loads(text)
        now |= names_of(schema, schema, name)
    then = set((FIRST_VERSION / "options.txt").read_text().split())
    assert len(then) > 200
    assert then - now == gone
