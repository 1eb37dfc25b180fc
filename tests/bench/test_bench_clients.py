"""The judgement of the clients benchmark: one that overlooks a fault would vouch for a broken proxy."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from bench.clients.__main__ import main
from bench.clients.cases import (
    BURST_S,
    CLIENTS,
    CONSUMING,
    GO,
    KAFKA_GO,
    NATIVE,
    NODE,
    PYTHON,
    SLUICE,
    Client,
)
from bench.clients.drivers.told import Work
from bench.clients.groups import reasons, rebalances, time_of_day_ms
from bench.clients.judge import (
    FAULTS,
    Figures,
    Numbered,
    Told,
    judge_consumers,
    judge_producers,
    judge_streams,
    number_of,
    read_told,
)
from bench.clients.programs import HERE
from bench.clients.report import ClientsRun, summary_of, without_a_bite
from bench.clients.rig import Bite
from sluice.proxy.config.pacing import PacingOptions

ANSWER_BUDGET_S = PacingOptions().answer_budget_s
KNOWN_BATCH_BYTES = 16_384
SENT = [(worker, seq) for worker in range(2) for seq in range(6)]


def exact() -> dict[int, list[Numbered]]:
    """What the broker has when nothing went wrong: two partitions, both producers in each."""
    return {partition: [(w, s) for s in range(partition, 6, 2) for w in range(2)] for partition in range(2)}


def faults(figures: Figures) -> dict[str, int]:
    return {name: count for name, count in figures.faults().items() if count}


def told(*lines: str) -> Told:
    return read_told([*lines, "end"])


ALL_ACKED = [f"ack {worker} {seq}" for worker, seq in SENT]


def test_what_was_acknowledged_and_is_there_once_in_order_has_no_fault() -> None:
    figures = judge_producers(told(*ALL_ACKED), exact(), SENT)
    assert figures.records == len(SENT)
    assert faults(figures) == {}


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    stored = exact()
    stored[0].remove((1, 2))
    assert faults(judge_producers(told(*ALL_ACKED), stored, SENT)) == {"lost": 1}


def test_every_further_copy_is_doubled_and_not_reordered() -> None:
    stored = exact()
    stored[1] += [(0, 1), (0, 3), (0, 1)]
    assert faults(judge_producers(told(*ALL_ACKED), stored, SENT)) == {"doubled": 3}


def test_a_copy_in_another_partition_is_doubled() -> None:
    stored = exact()
    stored[1].append((0, 0))
    assert judge_producers(told(*ALL_ACKED), stored, SENT).doubled == 1


def test_a_record_behind_a_later_one_of_its_producer_is_reordered() -> None:
    stored = exact()
    stored[0].remove((0, 0))
    stored[0].append((0, 0))
    assert faults(judge_producers(told(*ALL_ACKED), stored, SENT)) == {"reordered": 1}


def test_what_failed_and_what_nobody_heard_of_was_given_up() -> None:
    lines = [line for line in ALL_ACKED if line not in ("ack 0 5", "ack 1 5")]
    judged = judge_producers(told(*lines, "fail 0 5 MessageTimedOut: 300 s"), exact(), SENT)
    assert faults(judged) == {"gave_up": 2}
    assert judged.notes == {"failed: MessageTimedOut: 300 s": 1}


def test_a_driver_that_said_nothing_gave_up_everything() -> None:
    assert faults(judge_producers(Told(), {}, SENT)) == {"gave_up": len(SENT)}


def test_failed_commits_are_counted_and_what_is_no_word_of_a_driver_is_left_out() -> None:
    read = told(
        "% a warning of a library", "commit_failed Fenced: by a newer one", "closing 1234", *ALL_ACKED
    )
    assert (read.commit_failures, read.closing_ms, read.ended) == (1, 1234, True)
    assert sorted(read.acked) == SENT
    assert not read_told(["ack 0 1"]).ended


THERE = {0: range(3), 1: range(2)}
ALL_READ = ["read 0 0", "read 1 0", "read 0 1", "read 0 2", "read 1 1"]


def test_a_group_that_read_everything_once_in_order_has_no_fault() -> None:
    assert faults(judge_consumers(told(*ALL_READ), THERE, {0: 3, 1: 2})) == {}


def test_an_unread_record_is_lost_if_the_group_has_gone_past_it_and_else_given_up() -> None:
    lines = [line for line in ALL_READ if line not in ("read 0 1", "read 1 1")]
    assert faults(judge_consumers(told(*lines), THERE, {0: 3, 1: 1})) == {"lost": 1, "gave_up": 1}


def test_what_a_group_reads_twice_or_out_of_order_is_told() -> None:
    assert faults(judge_consumers(told(*ALL_READ, "read 0 0"), THERE, {0: 3, 1: 2})) == {"doubled": 1}
    swapped = ["read 0 1", "read 0 0", *ALL_READ[1:2], *ALL_READ[3:]]
    assert faults(judge_consumers(told(*swapped), THERE, {0: 3, 1: 2})) == {"reordered": 1}


def test_streams_lost_what_it_committed_and_did_not_write() -> None:
    source = {0: [(0, 0), (0, 1), (0, 2)], 1: [(1, 0), (1, 1)]}
    copied = {1: [(0, 0), (0, 1), (1, 0), (1, 0)]}
    judged = judge_streams(told(), source, copied, {0: 3, 1: 1})
    assert faults(judged) == {"lost": 1, "doubled": 1, "gave_up": 1}
    everything = {1: [*source[0], *source[1]]}
    assert faults(judge_streams(told(), source, everything, {0: 3, 1: 2})) == {}


def test_a_records_number_is_read_as_it_was_written() -> None:
    names = [field.name for field in fields(Work)]
    values = dict.fromkeys(names, "") | {"record_bytes": 1_000, "partitions": 4}
    value = Work(**values).value(7, 4_399)  # type: ignore[arg-type]
    assert len(value) == 1_000
    assert number_of(value) == (7, 4_399)


# Rebalances -------------------------------------------------------------------------------------------------

MANAGER = "[group-coordinator] INFO GroupMetadataManager - [GroupCoordinator id=1 partition=0]"


def preparing(at: str, generation: int, reason: str, group: str = "g") -> str:
    state = f"Preparing to rebalance group {group} in state PreparingRebalance"
    return f"{at} {MANAGER} {state} with old generation {generation} (reason: {reason})."


FIRST = preparing("10:00:00.000", 0, "Adding new member a")
EXPIRED = preparing("10:00:30.000", 1, "removing member a on heartbeat expiration.")
AGAIN = preparing("10:00:31.000", 2, "Adding new member a")
LEFT = preparing("10:01:00.500", 1, "explicit `LeaveGroup` request for (a) members.")
CLOSING_MS = time_of_day_ms("10:01:00.000")


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([FIRST, LEFT], 0),
        ([FIRST, EXPIRED, LEFT], 1),
        ([FIRST, EXPIRED, AGAIN, LEFT], 2),
        ([FIRST, preparing("10:00:04.000", 1, "Adding new member b"), LEFT], 0),
        ([FIRST, *[preparing("10:00:04.000", 1, "Adding new member b")] * 2, LEFT], 1),
        ([FIRST, preparing("10:00:30.000", 1, "removing member", group="g2")], 0),
        (["a line without a time, of a message about g", FIRST], 0),
    ],
)
def test_a_classic_group_is_rebalanced_beyond_its_first_join(lines: list[str], found: int) -> None:
    assert rebalances(lines, "g", 2, CLOSING_MS) == found


def test_before_midnight_is_before_a_closing_behind_it() -> None:
    late = [preparing("23:59:59.000", 1, "removing member"), preparing("00:00:02.000", 1, "removing member")]
    assert rebalances(late, "g", 2, time_of_day_ms("00:00:01.000")) == 1


def test_a_group_with_epochs_is_rebalanced_when_its_epoch_rises_once_all_have_joined() -> None:
    def bumped(at: str, epoch: int) -> str:
        what = f"[GroupId g][MemberId m] Bumped streams group epoch to {epoch} with metadata hash 1"
        return f"{at} {MANAGER} {what}"

    joined = [bumped("10:00:00.000", 2), bumped("10:00:00.100", 3)]
    assert rebalances(joined, "g", 2, CLOSING_MS) == 0
    assert rebalances([*joined, bumped("10:00:30.000", 4)], "g", 2, CLOSING_MS) == 1
    assert rebalances([*joined, bumped("10:01:00.100", 4)], "g", 2, CLOSING_MS) == 0


# Loads, drivers, summary ------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_the_quotas_bite(client: Client) -> None:
    for role in client.roles:
        load = client.load(role, quick=False)
        brought = (
            load.records * load.record_bytes * (1 if role not in ("produce", "transact") else load.workers)
        )
        assert brought > ANSWER_BUDGET_S * load.bytes_per_s, role
        if role not in CONSUMING and client.produce is not KAFKA_GO:
            assert load.workers > load.ids_per_hour / 3600 * BURST_S, role


def test_every_client_has_its_driver() -> None:
    chosen = (HERE / "go" / "main.go").read_text(encoding="utf-8")
    for client in CLIENTS:
        if client.language == PYTHON:
            assert (HERE / "drivers" / f"{client.module}.py").is_file(), client
        elif client.language == GO:
            assert f'"{client.name}":' in chosen, client
        else:
            assert client.language == NODE
            assert (HERE / "node" / f"{client.name}.mjs").is_file(), client


def test_the_drivers_in_go_and_for_node_ask_for_nothing_that_they_are_not_told() -> None:
    told_names = {field.name for field in fields(Work)}
    go = (HERE / "go" / "main.go").read_text(encoding="utf-8")
    assert set(re.findall(r'`json:"(\w+)"`', go)) <= told_names
    for path in (HERE / "node").glob("*.mjs"):
        assert set(re.findall(r"\bwork\.(\w+)", path.read_text(encoding="utf-8"))) <= told_names, path


def test_the_summary_adds_up_what_went_through_sluice_and_of_the_broker_alone_what_doubled() -> None:
    ours, theirs = Figures(10, **dict.fromkeys(FAULTS, 2)), Figures(10, **dict.fromkeys(FAULTS, 7))  # type: ignore[arg-type]
    sides = {SLUICE: {"produce": ours, "consume": ours}, NATIVE: {"produce": theirs, "consume": theirs}}
    summary = summary_of({"java": sides, "sarama": sides})
    assert summary == {"clients": 2, **dict.fromkeys(FAULTS, 8), "native_doubled": 28}


def test_a_part_that_no_quota_made_wait_is_named() -> None:
    sides = {SLUICE: {"produce": Figures(1), "consume": Figures(1)}}
    bites = {"java": {"produce": Bite(0.0, 3.0, 1), "consume": Bite(2.0, 0.0, 0)}}
    run = ClientsRun({"java": sides}, {}, bites, 1.0, quick=True)
    assert without_a_bite(run) == [("java", "produce")]


def test_a_machine_without_go_and_node_is_told_which_clients_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    names = [client.name for client in CLIENTS if client.language in (GO, NODE)]
    assert main(["--only", *names, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    for name in names:
        assert f"{name} cannot run: there is no " in said
    assert "none of the clients can run here" in said


def test_nothing_of_npms_or_gos_is_kept_in_the_tree() -> None:
    assert not [path for path in (HERE / "node").iterdir() if path.suffix not in (".mjs", ".json")]
    assert "resolved" not in Path(HERE / "node" / "package-lock.json").read_text(encoding="utf-8")


def test_the_broker_says_why_a_group_was_rebalanced() -> None:
    lines = [FIRST, EXPIRED, AGAIN, LEFT]
    expired = "removing member a on heartbeat expiration."
    assert reasons(lines, "g", CLOSING_MS) == [expired, "Adding new member a"]
    assert reasons(lines, "g", None)[-1] == "explicit `LeaveGroup` request for (a) members."
    assert reasons(lines, "h", None) == []
