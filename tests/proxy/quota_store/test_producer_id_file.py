"""Known producer ids over a restart: what is written, taken over and refused, and what a client sees."""

from __future__ import annotations

import asyncio
import stat
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import structlog

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.quota_store.producer_id_file import ProducerIdFile, SnapshotOutcome, scope_of
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.snapshot import sealed, snapshot_parts
from sluice.quotas.producer_ids.ticket import Ticket
from testkit.frames.frames import PRODUCE, decoded, produce, record_batch
from testkit.frames.wire import dial
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.local_proxy import until
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = pytest.mark.usefixtures("log_lines")

SCOPE = "broker-1:9092"
RATE = 100.0


def quota_with(*ids: int) -> ProducerIdQuota:
    quota = ProducerIdQuota(ProducerIdSettings())
    admit(quota, *ids)
    return quota


def admit(quota: ProducerIdQuota, *ids: int) -> None:
    for producer_id in ids:
        now_ms = monotonic() * 1000.0
        ticket = Ticket(quota.principal("alice", RATE, now_ms), (producer_id,), (), (producer_id,))
        assert quota.ask(ticket, now_ms)
        quota.commit(ticket, now_ms)


def known(quota: ProducerIdQuota, producer_id: int) -> bool:
    now_ms = monotonic() * 1000.0
    return quota.principal("alice", RATE, now_ms).store.seen(producer_id, now_ms)


def outcomes(file: ProducerIdFile) -> dict[str, int]:
    return {name: count for name, count in file.outcomes.items() if count}


def told(lines: list[structlog.typing.EventDict]) -> list[tuple[str, str]]:
    return [(line["event"], line["log_level"]) for line in lines]


def written(path: Path, *ids: int) -> None:
    assert asyncio.run(ProducerIdFile(path, SCOPE).write(quota_with(*ids)))


def restored(path: Path, scope: str = SCOPE) -> tuple[ProducerIdQuota, ProducerIdFile]:
    quota, file = ProducerIdQuota(ProducerIdSettings()), ProducerIdFile(path, scope)
    file.restore(quota)
    return quota, file


def test_what_was_written_is_known_after_a_restart(tmp_path: Path) -> None:
    written(tmp_path / "ids", 1, 2, 3)
    quota, file = restored(tmp_path / "ids")
    assert [producer_id for producer_id in range(6) if known(quota, producer_id)] == [1, 2, 3]
    assert outcomes(file) == {SnapshotOutcome.RESTORED: 1}


def test_the_file_is_its_owners_alone_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    written(tmp_path / "ids", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["ids"]
    assert stat.S_IMODE((tmp_path / "ids").stat().st_mode) == 0o600


def test_the_first_start_begins_empty_and_says_so(
    tmp_path: Path, log_lines: list[structlog.typing.EventDict]
) -> None:
    quota, file = restored(tmp_path / "ids")
    assert list(quota.principals()) == []
    assert outcomes(file) == {SnapshotOutcome.ABSENT: 1}
    assert [(line["event"], line["log_level"]) for line in log_lines] == [
        ("producer_ids_begin_empty", "info")
    ]


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_a_damaged_file_is_told_and_kept_aside_and_the_quota_begins_empty(
    tmp_path: Path, cut: int, log_lines: list[structlog.typing.EventDict]
) -> None:
    path = tmp_path / "ids"
    written(path, *range(50))
    damaged = path.read_bytes()[:cut]
    path.write_bytes(damaged)
    quota, file = restored(path)
    assert list(quota.principals()) == []
    assert outcomes(file) == {SnapshotOutcome.REFUSED: 1}
    assert [(line["event"], line["log_level"]) for line in log_lines] == [
        ("producer_ids_begin_empty", "error")
    ]
    assert (tmp_path / "ids.refused").read_bytes() == damaged
    assert not path.exists()


def test_another_brokers_file_is_refused_by_name(
    tmp_path: Path, log_lines: list[structlog.typing.EventDict]
) -> None:
    written(tmp_path / "ids", 1)
    quota, file = restored(tmp_path / "ids", "broker-2:9092")
    assert not known(quota, 1)
    assert outcomes(file) == {SnapshotOutcome.REFUSED: 1}
    assert log_lines[-1]["reason"] == "snapshot of 'broker-1:9092', not of 'broker-2:9092'"


def test_what_is_no_file_of_ours_to_read_begins_empty(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.symlink_to(path)  # a loop: root may read everything else
    quota, file = restored(path)
    assert list(quota.principals()) == []
    assert outcomes(file) == {SnapshotOutcome.UNREADABLE: 1}


def test_a_missing_folder_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerIdFile(tmp_path / "away" / "ids", SCOPE)
    assert str(caught.value) == (
        f"producer_ids.snapshot_file: there is no folder {tmp_path}/away; make it, "
        "or name a file in one that is there"
    )


def test_a_folder_in_the_files_place_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        ProducerIdFile(tmp_path, SCOPE)


def test_a_write_that_fails_is_told_and_the_last_good_state_stays(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    written(path, 1)
    file = ProducerIdFile(path, SCOPE)
    (tmp_path / ".ids.new").mkdir()  # nothing can be written there
    assert not asyncio.run(file.write(quota_with(2)))
    assert outcomes(file) == {SnapshotOutcome.FAILED: 1}
    assert file.last_written_unix_s == 0.0
    assert known(restored(path)[0], 1)


def test_an_earlier_state_never_takes_the_place_of_a_later_one(tmp_path: Path) -> None:
    file = ProducerIdFile(tmp_path / "ids", SCOPE)
    now_ms = monotonic() * 1000.0
    early, late = (snapshot_parts(quota_with(one), SCOPE, now_ms, 0.0) for one in (1, 2))
    file._put(late, 2)
    file._put(early, 1)
    assert (tmp_path / "ids").read_bytes() == sealed(late)


@pytest.mark.asyncio
async def test_it_is_written_again_and_again_until_the_end(tmp_path: Path) -> None:
    file, quota = ProducerIdFile(tmp_path / "ids", SCOPE), quota_with(1)
    async with asyncio.timeout(20):
        task = asyncio.ensure_future(file.run(quota, 0.001))
        while file.outcomes[SnapshotOutcome.WRITTEN] < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        admit(quota, 2)
        before = file.outcomes[SnapshotOutcome.WRITTEN]
        while file.outcomes[SnapshotOutcome.WRITTEN] < before + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert known(restored(tmp_path / "ids")[0], 2)


@pytest.mark.asyncio
async def test_at_the_end_the_last_state_is_written_behind_one_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, quota = ProducerIdFile(tmp_path / "ids", SCOPE), quota_with(1)
    begun, may_go_on, put = threading.Event(), threading.Event(), file._put

    def slow(*state: Any) -> None:
        begun.set()
        assert may_go_on.wait(30.0)
        put(*state)

    monkeypatch.setattr(file, "_put", slow)
    periodic = asyncio.ensure_future(file.write(quota))
    await until(begun.is_set)
    periodic.cancel()
    admit(quota, 2)
    last = asyncio.ensure_future(file.write(quota, is_last=True))
    await asyncio.sleep(0)
    may_go_on.set()
    assert await last
    assert known(restored(tmp_path / "ids")[0], 2)


def test_the_scope_is_the_brokers_behind_in_whatever_order_the_listeners_stand() -> None:
    one = ListenerOptions(name="a", bind_port=1, upstream_host="k1", upstream_port=9092)
    same = ListenerOptions(name="b", bind_port=2, upstream_host="k1", upstream_port=9092)
    two = ListenerOptions(name="c", bind_port=3, upstream_host="k0", upstream_port=9092)
    assert scope_of([one, same, two]) == scope_of([two, one]) == "k0:9092; k1:9092"


async def errors_of(proxy: SluiceProcess, *producer_ids: int) -> list[int]:
    """The error code of one request each, sequence 0."""
    codes = []
    for producer_id in producer_ids:
        with await dial(proxy.doors["D"].port) as client:
            batch = record_batch(b"records", producer_id=producer_id, epoch=0, sequence=0)
            await client.send(produce({"orders": [(0, batch)]}))
            frame = decoded("response", PRODUCE, 9, await client.frame())
            responses: list[dict[str, list[dict[str, int]]]] = frame.body["responses"]  # type: ignore[assignment]
            codes.append(responses[0]["partitionResponses"][0]["errorCode"] if responses else 0)
    return codes


def shows_who_was_refused(proxy: SluiceProcess) -> None:
    """In metrics by user, in the log by client."""
    of_others = {"user": "ANONYMOUS"}
    assert proxy.metric("sluice_producer_ids_new_total", **of_others) == 2
    assert proxy.metric("sluice_producer_ids_refused_total", **of_others, reason="producer_ids_rate") == 1
    assert 0.1 < proxy.metric("sluice_producer_ids_throttle_time_seconds_total", **of_others) < 60
    assert proxy.metric("sluice_producer_ids_broker_heap_bytes") == 540
    whom = {"quota": "producer_ids", "user": "ANONYMOUS", "client_id": "app", "address": LOOPBACK}
    assert len(proxy.log_lines("throttling_began", **whom)) == 1


@pytest.mark.asyncio
async def test_a_live_id_goes_on_through_a_restart_and_a_new_one_still_waits(tmp_path: Path) -> None:
    async with FaultBroker(answers) as broker:
        proxy = SluiceProcess(
            [Door("D", free_port(), (LOOPBACK, broker.port))],
            [{"user": "<default>", "producer_ids_rate": 2}],
            producer_ids={"snapshot_file": str(tmp_path / "ids")},
            pacing={"answer_budget_s": 0.2},
        )
        await asyncio.to_thread(proxy.__enter__)
        try:
            assert await errors_of(proxy, 1, 2, 3) == [0, 0, 19]
            await asyncio.to_thread(shows_who_was_refused, proxy)
            assert await asyncio.to_thread(proxy.stop) == 0
            await asyncio.to_thread(proxy.start)
            assert await errors_of(proxy, 3, 1, 2) == [19, 0, 0]
            assert len(proxy.log_lines("producer_ids_restored", ids=2)) == 1
            await asyncio.to_thread(proxy.check_unharmed)
        finally:
            await asyncio.to_thread(proxy.close)


@pytest.mark.asyncio
async def test_a_process_whose_file_is_damaged_serves_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    path.write_bytes(b"something else")
    async with FaultBroker(answers) as broker:
        doors = [Door("D", free_port(), (LOOPBACK, broker.port))]
        options = {"snapshot_file": str(path), "snapshot_interval_s": 1}
        proxy = SluiceProcess(doors, [{"user": "<default>", "producer_ids_rate": 2}], producer_ids=options)
        await asyncio.to_thread(proxy.__enter__)
        try:
            assert await errors_of(proxy, 1) == [0]
            assert len(proxy.log_lines("producer_ids_begin_empty", level="error")) == 1
            await asyncio.to_thread(proxy.wait_until, path.exists, "written while it runs")
            await asyncio.to_thread(proxy.check_unharmed)
        finally:
            await asyncio.to_thread(proxy.close)
