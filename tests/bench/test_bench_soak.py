"""The soak's judgement: which records are lost, doubled or out of order, by what clients were told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager, TransactionState

from bench.soak.client import MAX_UNDER_WAY, WINDOW, KafkaPythonProducer, Pace, ProducerBeyondUseError
from bench.soak.log import AnswerLog, Answers, client_and_number, read_answers, read_java_answers, value_of
from bench.soak.run import Phase as SoakPhase
from bench.soak.run import Restart, Sample, SoakRun
from bench.soak.verdict import Stored, longest_silence, silences_by_phase, verdict


def told(acknowledged: list[int], failed: tuple[int, ...] = ()) -> Answers:
    """A client that was told this, a record each second."""
    return Answers([(number, float(at)) for at, number in enumerate(acknowledged)], list(failed))


def test_records_that_are_stored_once_and_in_order_in_each_partition_are_exact() -> None:
    found = verdict(told([1, 0, 2, 3]), Stored({0: [0, 2], 1: [1, 3]}))
    assert (found.is_exact, found.acknowledged, found.stored) == (True, 4, 4)


def test_an_acknowledged_record_that_is_not_stored_is_lost() -> None:
    found = verdict(told([0, 1, 2]), Stored({0: [0, 2]}))
    assert (found.lost, found.is_exact, list(found.examples)) == (1, False, ["lost: 1"])


def test_a_copy_is_doubled_wherever_it_is_and_does_not_count_as_out_of_order() -> None:
    found = verdict(told([0, 1, 2]), Stored({0: [0, 1, 0], 1: [2, 1]}))
    assert (found.doubled, found.out_of_order, found.is_exact) == (2, 0, False)


def test_a_record_behind_a_later_one_of_its_partition_is_out_of_order() -> None:
    found = verdict(told([0, 1, 2, 3]), Stored({0: [0, 2, 1], 1: [3]}))
    assert (found.out_of_order, found.doubled, found.lost, found.is_exact) == (1, 0, 0, False)


def test_a_failed_record_may_be_stored_or_not_and_one_that_nobody_was_told_of_is_unexplained() -> None:
    found = verdict(told([0], failed=(1, 2)), Stored({0: [0, 1, 3]}))
    assert (found.is_exact, found.failed, found.unexplained) == (True, 2, 1)


def test_the_longest_silence_lies_between_two_acknowledgements() -> None:
    assert longest_silence([1.0, 2.0, 7.0, 8.0]) == (2.0, 5.0)
    assert longest_silence([1.0]) == (0.0, 0.0)
    assert silences_by_phase([1.0, 2.0, 7.0, 10.0], {"a": (0.0, 5.0), "b": (5.0, 9.0)}) == {
        "a": 5.0,
        "b": 3.0,
    }


def test_a_value_tells_client_and_number_with_or_without_padding() -> None:
    assert client_and_number(value_of(3, 1200, 500)) == (3, 1200)
    assert len(value_of(3, 1200, 500)) == 500
    assert client_and_number(b"7.42") == (7, 42)


def test_what_a_python_client_was_told_is_read_again_and_half_an_entry_is_left_out(tmp_path: Path) -> None:
    entries, ended = tmp_path / "entries", tmp_path / "log"
    with entries.open("wb") as output:
        log = AnswerLog(output)
        log.acknowledged(0, 2)
        log.failed(1, ValueError("no"))
        log.acknowledged(2, 1)
        log.flush_now()
        output.write(b"half")
    ended.write_text(
        "a warning\n" + json.dumps({"errors": log.errors, "replaced": 1, "unanswered": 2}) + "\n"
    )
    found = read_answers(entries, ended)
    assert [number for number, _ in found.acknowledged] == [0, 2]
    assert (found.failed, found.errors) == ([1], {"ValueError('no')": 1})
    assert (found.replaced, found.unanswered, found.ended_in_order, found.hung) == (1, 2, True, True)


def test_what_java_printed_is_read_and_a_line_in_the_making_is_left_out(tmp_path: Path) -> None:
    def line(name: str, **fields: object) -> str:
        return json.dumps({"name": name, "timestamp": 1_700_000_000_000, **fields}) + "\n"

    (tmp_path / "log").write_text(
        "12:00:00 WARN something\n"
        + line("producer_send_success", value="1.5", partition=0)
        + line("producer_send_error", value="1.6", exception="class X", message="no")
        + line("producer_send_success", value="1.7", partition=0)[:20]
    )
    found = read_java_answers(tmp_path / "log")
    assert [number for number, _ in found.acknowledged] == [5]
    assert (found.failed, found.errors, found.ended_in_order) == ([6], {"class X: no": 1}, False)


def test_a_client_without_a_rate_has_a_window_and_one_with_a_rate_is_bounded_too() -> None:
    assert Pace(0.0).allowed(sent=1000, answered=900) == 900 + WINDOW
    assert Pace(1e12).allowed(sent=0, answered=5) == 5 + MAX_UNDER_WAY


def test_flat_is_judged_where_no_proxy_was_restarted_and_its_beginning_is_left_out() -> None:
    def sample(at_s: float, mib: int, files: int) -> Sample:
        return Sample("sluice-1", at_s, mib * 2**20, files)

    run = SoakRun(
        proxy="sluice",
        mode="broker",
        phases=[SoakPhase("restarts", 0.0, 500.0, restarts=9), SoakPhase("kills", 500.0, 600.0, kills=3)],
        events=[],
        restarts=[Restart("sluice-1", 1.0, 0.1, 0.2, 0, 1, 1)],
        samples=[
            sample(400.0, 10, 10),
            sample(510.0, 20, 20),
            *(sample(530.0 + 10 * index, 50 + index, 30 + index % 2) for index in range(7)),
        ],
        stopped_s=600.0,
        took_s=600.0,
        answers={},
        verdicts={},
        faults_logged=[],
    )
    flat = run.flat()["sluice-1"]
    assert (flat.rss_first, flat.rss_last) == (51 * 2**20, 56 * 2**20)
    assert (flat.open_files_first, flat.open_files_last) == (31, 31)


def test_a_kafka_python_producer_that_has_given_its_id_away_is_beyond_use() -> None:
    """What 3.0.12 does when a batch that was sent runs out of time. Fails when kafka-python has mended it."""
    manager = TransactionManager(api_version=(2, 8))
    producer = object.__new__(KafkaPythonProducer)
    producer._producer = SimpleNamespace(_transaction_manager=manager)
    producer.check()  # it has not begun
    manager.init_producer_id()
    producer.check()  # it asks
    manager.next_request_handler(False)
    manager.set_producer_id_and_epoch(ProducerIdAndEpoch(7, 0))
    manager._transition_to(TransactionState.READY)
    producer.check()  # it has one

    manager.reset_producer_id()
    manager.init_producer_id()

    assert manager.next_request_handler(False) is None
    with pytest.raises(ProducerBeyondUseError):
        producer.check()
