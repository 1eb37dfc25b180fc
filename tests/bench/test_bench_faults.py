"""The fault benchmark's own parts: what counts as told, as lost, as survived; what its launcher injects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.faults.catalog import all_faults
from bench.faults.launch import CLOCK, SHIFT
from bench.faults.report import FaultRow, summary_of
from bench.faults.rig import Found
from bench.faults.told import Admin, Metric, Samples, Tells, Told, Watch
from bench.soak.log import Answers
from bench.soak.verdict import Stored, verdict


def row(
    *,
    stored: list[int],
    unread: int = 0,
    twice: int = 0,
    told: bool = True,
    recovered_s: float | None = 0.5,
    alive: bool = True,
) -> FaultRow:
    """Of one client that was told that 0, 1, 2 are stored, at 1, 2 and 9 s."""
    answers = Answers([(0, 1.0), (1, 2.0), (2, 9.0)])
    found = Found(verdict(answers, Stored({0: stored})), answers, unread, twice, 0)
    by = {"log: something": 0.1} if told else {}
    return FaultRow("a fault", 1.0, 3.0, recovered_s, alive, Told(by), {"plain": found}, 0, 1, 0, 0)


def test_a_fault_is_survived_when_all_is_well_and_everything_there_once_and_in_order() -> None:
    assert row(stored=[0, 1, 2]).survived
    assert row(stored=[0, 1, 2]).silence_s == 7.0
    for harmed in (
        row(stored=[0, 2]),
        row(stored=[0, 1, 2, 1]),
        row(stored=[0, 2, 1]),
        row(stored=[0, 1, 2], unread=1),
        row(stored=[0, 1, 2], twice=1),
        row(stored=[0, 1, 2], recovered_s=None),
        row(stored=[0, 1, 2], alive=False),
    ):
        assert not harmed.survived


def test_the_last_line_has_four_figures() -> None:
    rows = [
        row(stored=[0, 1, 2]),
        row(stored=[0]),
        row(stored=[0, 1, 2], unread=1),
        row(stored=[2], told=False),
    ]
    assert summary_of(rows) == {"faults": 4, "survived": 1, "lost_records": 5, "untold": 1}


def test_every_fault_has_a_name_of_its_own_and_something_that_would_tell_of_it() -> None:
    faults = all_faults(30)
    assert len({fault.name for fault in faults}) == len(faults)
    for fault in faults:
        assert fault.tells.events or fault.tells.metrics or fault.tells.ready, fault.name


class Operator(Admin):
    """The ports as a test wants them."""

    def __init__(self) -> None:
        self.found: Samples = [("refused", {"file": "quotas"}, 0.0), ("refused", {"file": "keys"}, 1.0)]
        self.why = ""
        self.refuses = False

    def ready(self) -> tuple[bool, str]:
        if self.refuses:
            raise ConnectionRefusedError
        return not self.why, self.why

    def samples(self) -> Samples:
        return self.found


def told_by(tmp_path: Path, tells: Tells, *lines: dict[str, str], why: str = "", gone: bool = False) -> Told:
    """What a watch sees of these lines and answers; the metric has risen meanwhile."""
    operator, log = Operator(), tmp_path / "log"
    log.write_text(json.dumps({"event": "boom", "level": "error"}) + "\n")  # before the fault
    watch = Watch(operator, log, tells)
    watch.start()
    with log.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    operator.found = [("refused", {"file": "quotas"}, 1.0), ("refused", {"file": "keys"}, 1.0)]
    operator.why, operator.refuses = why, gone
    watch.stop()
    return watch.told


def test_only_what_is_about_the_fault_counts_as_told(tmp_path: Path) -> None:
    tells = Tells(("boom",), (Metric("refused", {"file": "keys"}),), "cannot be reached")
    told = told_by(tmp_path, tells, {"event": "other", "level": "error"}, {"event": "boom", "level": "info"})
    assert (told.by, told.besides) == ({}, {"other": 1})
    assert not told_by(tmp_path, tells, why="draining").by
    assert not told_by(tmp_path, tells, gone=True).by


def test_log_metric_readiness_and_a_port_that_refuses_tell(tmp_path: Path) -> None:
    risen = Metric("refused", {"file": "quotas"})
    tells = Tells(("boom",), (risen,), "cannot be reached", gone=True)
    told = told_by(tmp_path, tells, {"event": "boom", "level": "warning"}, why="x cannot be reached")
    assert set(told.by) == {"log: boom", f"metric: {risen}", "readiness: 503"}
    assert set(told_by(tmp_path, Tells(gone=True), gone=True).by) == {"readiness: nobody answers the probe"}


INJECTED = """
import sys, threading, time
from pathlib import Path
from bench.faults import launch
control = Path(sys.argv[1])
launch.shift_clock(control / launch.CLOCK)
before = time.time()
with (control / launch.CLOCK).open("r+b") as file:
    file.write(launch.SHIFT.pack(3600.0))
shifted_s = time.time() - before
met = []
def work():
    try:
        while True:
            time.sleep(0.01)
    except launch.InjectedFault as error:
        met.append(threading.current_thread().name)
thread = threading.Thread(target=work, name="worker")
thread.start()
launch.throw_on_demand(control / launch.THROW)
(control / launch.THROW).write_text("worker")
thread.join(20.0)
print(round(shifted_s), met)
"""


def test_the_launcher_shifts_the_clock_and_raises_in_the_thread_that_is_named(tmp_path: Path) -> None:
    (tmp_path / CLOCK).write_bytes(SHIFT.pack(0.0))
    command = [sys.executable, "-c", INJECTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.stdout.strip() == "3600 ['worker']", done.stderr
