"""JSON in pieces: the same text, and no piece of a large value is large."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.proxy.admin.socket import _send
from sluice.proxy.quota_store.topic_copy import Copied, QuotaCopy
from sluice.proxy.quota_store.topic_records import Stored
from sluice.proxy.runtime.json_pieces import pieces_of
from sluice.quotas.entity import QuotaEntity
from testkit.thorough import cases

ENTRY = {"entity": {"user": "alice", "client-id": None}, "limits": {"producer_byte_rate": 1}, "shadow": []}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=cases(200))
@given(VALUES, st.booleans(), st.integers(90, 350))
def test_the_pieces_are_what_json_makes_of_the_whole(value: Any, ensure_ascii: bool, count: int) -> None:
    for one in (value, [value] * count, {"a": [value] * count, "b": {"c": 'é"\U0001f600' * 300 * count}}):
        pieces = pieces_of(one, ensure_ascii=ensure_ascii)
        assert "".join(pieces) == json.dumps(one, ensure_ascii=ensure_ascii)


def answered() -> None:
    writer = SimpleNamespace(write=lambda _: None, drain=lambda: asyncio.sleep(0))
    asyncio.run(_send(cast(Any, writer), {"ok": True, "entries": [ENTRY] * 10_000}))


def copied(folder: Path) -> None:
    entries = {QuotaEntity(f"user-{number}"): Stored({"producer_byte_rate": 1}) for number in range(10_000)}
    QuotaCopy(folder / "copy.json", "quotas").write(Copied(entries))


@pytest.mark.parametrize("what", ["the answer of the admin socket", "the copy of the quota topic"])
def test_of_a_large_one_little_is_made_at_once(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 entities took 45 ms in one call, in a thread, but with the interpreter's lock."""
    sizes: list[int] = []
    dumps: Callable[..., str] = json.dumps

    def noted(*args: Any, **options: Any) -> str:
        sizes.append(len(dumps(*args, **options)))
        return dumps(*args, **options)

    monkeypatch.setattr(json, "dumps", noted)
    answered() if what.startswith("the answer") else copied(tmp_path)
    assert sum(sizes) > 500_000
    assert max(sizes) < 100_000
