"""One plan applied by two commands at the same time: each finds what the other has put on record."""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, read_plan, roll_back
from sluice.proxy.cli.plan.choice import Reviews
from sluice.proxy.cli.plan.record import PlanRecord, Replaced
from sluice.proxy.cli.quotas.edit import whom_of
from sluice.proxy.cli.quotas.places import Place, QuotaFilePlace
from tests.proxy.cli.plan.test_hostile import TODAY
from tests.proxy.cli.plan.test_nightly import DAY, KEY, of, plan, quotas
from tests.proxy.cli.plan.test_remote import Server, user


def files_of(folder: Path) -> list[Place]:
    for name in "ab":
        (folder / name).mkdir()
    return [quotas(folder / name, {"alice": 1_000, "bob": 1_000}) for name in "ab"]


def servers_of(_folder: Path) -> list[Place]:
    servers = [Server({user("alice"): 1_000.0, user("bob"): 1_000.0}) for _ in range(2)]
    servers[1].name = "another:9092"
    return list(servers)


@contextmanager
def meanwhile(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, other: Callable[[], object]
) -> Iterator[Future[object]]:
    """When `name` is called first, `other` runs in another thread, until it has ended or waits for a lock."""
    done, pool = getattr(importlib.import_module(module), name), ThreadPoolExecutor()
    went_on, others = threading.Event(), Future[object]()
    sleep = time.sleep

    def run() -> None:
        try:
            others.set_result(other())
        except BaseException as error:
            others.set_exception(error)
        finally:
            went_on.set()

    def waiting(seconds: float) -> None:
        went_on.set()
        sleep(seconds)

    def first(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(f"{module}.{name}", done)
        pool.submit(run)
        assert went_on.wait(60)
        return done(*given, **options)

    with pool:
        monkeypatch.setattr(f"{module}.{name}", first)
        monkeypatch.setattr(time, "sleep", waiting)
        yield others


@pytest.mark.parametrize("places_of", [files_of, servers_of])
def test_both_can_be_rolled_back(
    places_of: Callable[[Path], list[Place]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wrote what it had read before the other: what that one had replaced was no longer on record."""
    one, another = places_of(tmp_path)
    file = plan(tmp_path, DAY, [of("alice", 1_500, 1_000)])

    def other() -> object:
        return apply_plan(read_plan(file), another, today=TODAY)

    with meanwhile(monkeypatch, "sluice.proxy.cli.plan.apply", "choose", other) as others:
        assert len(apply_plan(read_plan(file), one, today=TODAY).found) == 1
        others.result(60)
    for place in (one, another):
        assert place.listing().limits[user("alice")][KEY] == 1_500
        assert len(roll_back(file, place, today=TODAY).found) == 1
        assert place.listing().limits[user("alice")][KEY] == 1_000


@pytest.mark.parametrize("places_of", [files_of, servers_of])
def test_both_have_granted_what_they_granted(
    places_of: Callable[[Path], list[Place]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, another = places_of(tmp_path)
    limits = [of(name, 1_500, 1_000, needs_review=True, up_to=4_000) for name in ("alice", "bob")]
    file = plan(tmp_path, DAY, limits)

    def granted(name: str, place: Place) -> object:
        return apply_plan(read_plan(file), place, reviews=Reviews(named=frozenset({user(name)})), today=TODAY)

    ledger = "sluice.proxy.cli.plan.ledger"
    with meanwhile(monkeypatch, ledger, "_forget", lambda: granted("bob", another)) as others:
        granted("alice", one)
        others.result(60)
    grants = json.loads((tmp_path / "out" / "grants.json").read_text())["grants"]
    assert sorted(json.loads(grant["entity"])["user"] for grant in grants) == ["alice", "bob"]


def test_a_record_that_is_shared_by_two_plans_has_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, another = servers_of(tmp_path)
    record = tmp_path / "kept" / "rollback.json"
    record.parent.mkdir()
    files = []
    for name in "ab":
        (tmp_path / name).mkdir()
        files.append(plan(tmp_path / name, DAY, [of("alice", 1_500, 1_000)]))

    def other() -> object:
        return apply_plan(read_plan(files[1]), another, record=record, today=TODAY)

    with meanwhile(monkeypatch, "sluice.proxy.cli.plan.record", "replace_with", other) as others:
        apply_plan(read_plan(files[0]), one, record=record, today=TODAY)
        others.result(60)
    assert [len(PlanRecord(record).of(place.name)) for place in (one, another)] == [1, 1]


def test_a_record_that_another_has_written_since_it_was_opened_keeps_that(tmp_path: Path) -> None:
    """Where nothing locks, as on NFS."""
    records = [PlanRecord(tmp_path / "rollback.json") for _ in range(2)]
    for place, record in zip("ab", records, strict=True):
        record.add(place, [Replaced(whom_of({"user": "alice"}), KEY, 10.0, 20.0)])
    assert [len(records[0].of(place)) for place in "ab"] == [1, 1]
    records[0].forget("a", records[1].of("a"))
    assert records[1].of("a") == []
    assert len(records[1].of("b")) == 1


def test_a_plan_beside_its_quota_file_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.proxy.cli.whole_file._WAIT_S", 0.1)
    file = plan(tmp_path, DAY, [of("alice", 1_500, 1_000)])
    place = quotas(file.parent, {"alice": 1_000})
    assert isinstance(place, QuotaFilePlace)
    assert len(apply_plan(read_plan(file), place, record=tmp_path / "r.json", today=TODAY).found) == 1
    assert len(roll_back(file, place, record=tmp_path / "r.json", today=TODAY).found) == 1
