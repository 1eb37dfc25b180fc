"""`sluice recalibrate` from its arguments to its exit code."""

from __future__ import annotations

import errno
import json
import logging
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.proxy.cli.main import main
from sluice.recalibration.log.compaction import PREFIX
from sluice.recalibration.log.reader import LogError
from testkit.access_log.access_logs import DAY, row, write

SLUICE = str(Path(sys.executable).with_name("sluice"))

QUOTAS = """
quotas:
  - user: alice
    producer_byte_rate: 1000
  - user: <default>
    producer_byte_rate: 50000
"""
SETTINGS = "policy: {min_traffic_s: 30}\n"


@dataclass
class Job:
    """A folder with a quota file and settings, and the command."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def run(self, *options: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
        arguments = [f"--logs={self.logs}", f"--out={self.out}", f"--quotas={self.folder / 'quotas.yaml'}"]
        arguments += [f"--settings={self.folder / 'settings.yaml'}", f"--date={DAY}", *options]
        self.monkeypatch.setattr(sys, "argv", ["sluice", "recalibrate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self.capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    return Job(tmp_path, monkeypatch, capsys)


def log(job: Job) -> list[Path]:
    """Alice throttled at twice her limit, bob at ease; in two files."""
    return [
        write(
            job.logs, [row(window, request_bytes=10_000, mutes=1, throttle_ms=5_000.0) for window in range(9)]
        ),
        write(job.logs, [row(window, request_bytes=20_000, user="bob") for window in range(9)], "b.parquet"),
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_night_writes_a_plan_and_the_same_night_again_writes_the_same(
    spark: SparkSession, job: Job
) -> None:
    log(job)
    code, printed, told = job.run()
    assert (code, printed) == (0, f"{job.out}/plans/{DAY}-1\n"), told
    assert "state of 2026-11-20: from 2 file(s) of the rollup" in told
    assert "compacted: 2 file(s) of 2026-11-20 are 1 now" in told
    first = json.loads((job.out / f"plans/{DAY}-1/plan.json").read_text())
    alice = next(entry for entry in first["entries"] if entry["entity"] == {"user": "alice"})
    assert (alice["current"], alice["proposed"]) == (1_000, 2_000)
    # 1,000 B/s passed where 2,000 were wanted: the debt grows by 10 s a window, and is paid as long again.
    assert alice["expected"] == pytest.approx(
        {"day_now": 9 * 10 + 9 * 10 - 2, "day_proposed": 0, "week_now": 178, "week_proposed": 0}, abs=2
    )
    assert [path.name[: len(PREFIX)] for path in job.logs.rglob("*.parquet")] == [PREFIX]
    code, printed, _ = job.run()
    assert (code, printed) == (0, f"{job.out}/plans/{DAY}-2\n")
    second = json.loads((job.out / f"plans/{DAY}-2/plan.json").read_text())
    assert second | {"log_files": 2} == first, "but that it comes from one file now"
    assert (job.out / "LATEST").read_text() == f"{DAY}-2\n"


@pytest.mark.long
def test_a_dry_run_shows_the_changes_and_writes_nothing(spark: SparkSession, job: Job) -> None:
    log(job)
    before = files_below(job.folder)
    code, printed, told = job.run("--dry-run")
    assert code == 0, told
    assert (
        '{"user": "alice"} producer_byte_rate: 1,000 -> 2,000 (growth_guard; above that it waits for '
        in printed
    )
    assert "waits for review, up to " in printed
    assert ", 1 waiting for review beyond that" in printed
    assert files_below(job.folder) == before


def test_a_date_without_a_log_ends_with_3_and_writes_nothing(spark: SparkSession, job: Job) -> None:
    job.logs.mkdir()
    code, printed, told = job.run()
    assert (code, printed) == (3, "")
    where = f"{job.logs}/rollup/date={DAY}/"
    assert told.splitlines()[-1] == (
        f"sluice recalibrate: {DAY}: no log of this date: no Parquet file in {where}"
    )
    assert not job.out.exists()


def test_a_file_damaged_in_its_middle_is_named_and_left_out_or_refused(spark: SparkSession, job: Job) -> None:
    good, bad = log(job)
    content = bytearray(bad.read_bytes())
    content[4:-1_000] = b"\xff" * (len(content) - 1_004)
    bad.write_bytes(content)
    (job.folder / "settings.yaml").write_text(SETTINGS + "damaged_files: refuse\n")
    code, _, told = job.run()
    assert code == 3, told
    assert str(bad) in told
    assert not (job.out / "plans").exists()
    (job.folder / "settings.yaml").write_text(SETTINGS)
    code, _, told = job.run()
    assert code == 0, told
    plan = json.loads((job.out / f"plans/{DAY}-1/plan.json").read_text())
    assert list(plan["damaged_files"]) == [str(bad)]
    assert [entry["entity"] for entry in plan["entries"]] == [{"user": "alice"}]
    assert good.exists() or any(path.name.startswith(PREFIX) for path in job.logs.rglob("*.parquet"))


def test_a_log_of_nobody_with_a_limit_ends_with_3(spark: SparkSession, job: Job) -> None:
    log(job)
    (job.folder / "quotas.yaml").write_text("quotas: [{user: carol, producer_byte_rate: 5}]")
    code, _, told = job.run()
    assert code == 3
    assert "no client in the log of 2026-11-20 has a limit: there is nothing to recalibrate" in told
    assert not (job.out / "plans").exists()


def test_a_folder_in_the_place_of_latest_ends_with_1_before_the_log_is_read(
    spark: SparkSession, job: Job
) -> None:
    log(job)
    (job.out / "LATEST").mkdir(parents=True)
    code, _, told = job.run()
    assert (code, told) == (
        1,
        f"sluice recalibrate: {job.out}/LATEST: is no file; a night keeps one there: move it away\n",
    )
    assert [path.name for path in job.out.iterdir()] == ["LATEST"]


def test_a_wrong_quota_file_ends_with_2_and_its_line_before_spark_starts(job: Job) -> None:
    (job.folder / "quotas.yaml").write_text("quotas:\n  - user: alice\n    producer_bite_rate: 1\n")
    code, _, told = job.run()
    assert code == 2
    assert f"{job.folder}/quotas.yaml:3: quotas[0].producer_bite_rate: unknown key; did you mean" in told


def test_a_log_that_is_not_there_ends_with_3_before_spark_starts(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting it takes a quarter of a minute, in which nothing was told."""
    monkeypatch.setattr("sluice.recalibration.spark.session.spark_session", None)
    assert job.run() == (
        3,
        "",
        f"sluice recalibrate: {DAY}: no log of this date: there is no folder {job.logs}\n",
    )


def test_wrong_settings_dates_folders_and_spark_settings_end_with_2(job: Job) -> None:
    assert job.run("--date=yesterday")[0] == 2
    code, _, told = job.run("--date=")  # a shell's variable without a value: not yesterday
    assert (code, "'' is no date such as" in told) == (2, True), told
    assert job.run("--conf=spark.x")[0] == 2
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    code, _, told = job.run(f"--date={tomorrow}")
    assert (code, f"{tomorrow} is yet to come" in told) == (2, True)
    assert job.run("--date=0001-01-01")[0] == 2
    job.out.write_text("")
    code, _, told = job.run()
    assert (code, "must be a folder, or not be there" in told) == (2, True), told
    (job.folder / "settings.yaml").write_text("policy: {headrom: 1}")
    job.out.unlink()
    code, _, told = job.run()
    assert (code, "settings.yaml:1: policy.headrom: unknown key; did you mean headroom?" in told) == (2, True)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        PySparkException(
            "An error occurred while calling o246.parquet.\n\tat java.io: No space left on device"
        ),
    ],
)
def test_a_full_disk_is_told_in_a_line_that_says_where(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def is_full(*_: object) -> NoReturn:
        raise error

    job.logs.mkdir()
    monkeypatch.setattr("sluice.recalibration.night.run_night", is_full)
    code, _, told = job.run()
    assert (code, "left on" in told.splitlines()[-1]) == (1, True), told
    assert tempfile.gettempdir() in told.splitlines()[-1]


@pytest.mark.long
def test_a_damaged_state_of_an_earlier_night_is_named_with_what_to_do(spark: SparkSession, job: Job) -> None:
    """It said: "An error occurred while calling o6322.toPythonIterator"."""
    log(job)
    assert job.run()[0] == 0
    (file,) = (job.out / "state" / f"date={DAY}").glob("*.parquet")
    earlier = job.out / "state" / f"date={DAY - timedelta(days=1)}" / file.name
    earlier.parent.mkdir()
    earlier.write_bytes(file.read_bytes()[:100])
    code, _, told = job.run()
    assert code == 1
    assert f"Spark cannot read {earlier}: it is damaged; put it back" in told


def test_ctrl_c_ends_a_night_with_a_sentence(
    spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with two pages of tracebacks: PySpark's handler, and what py4j logs of it."""
    log(job)
    before = signal.getsignal(signal.SIGINT)

    def interrupted(*_: object) -> None:
        logging.error("KeyboardInterrupt while sending command.")
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("sluice.recalibration.night.take_day", interrupted)
    code, printed, told = job.run()
    assert (code, printed) == (130, "")
    assert told.splitlines()[-1] == "sluice recalibrate: interrupted; run the same date again"
    assert "Traceback" not in told
    assert "sending command" not in told
    assert signal.getsignal(signal.SIGINT) is before


def test_other_commands_load_neither_spark_nor_the_job() -> None:
    program = (
        "import sys; from sluice.proxy.cli.main import main\n"
        "sys.argv = ['sluice', 'version']\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if 'pyspark' in name or 'recalibration' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.long
def test_a_later_date_reads_the_earlier_ones(spark: SparkSession, job: Job) -> None:
    log(job)
    job.run()
    tomorrow = DAY + timedelta(days=1)
    write(job.logs, [row(0, day=tomorrow, request_bytes=10)], day=tomorrow)
    code, _, told = job.run(f"--date={tomorrow}")
    assert code == 0, told
    plan = json.loads((job.out / f"plans/{tomorrow}-1/plan.json").read_text())
    assert (plan["entities"], plan["replayed_days"]) == (2, 2)


def test_with_apply_the_plan_is_in_the_quota_file_at_once(spark: SparkSession, job: Job) -> None:
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    throttled = [
        row(window, day=yesterday, request_bytes=10_000, mutes=1, throttle_ms=5_000.0) for window in range(9)
    ]
    write(job.logs, throttled, day=yesterday)
    code, _, told = job.run(f"--date={yesterday}", "--apply")
    assert code == 0, told
    assert (job.folder / "quotas.yaml").read_text() == QUOTAS.replace("1000\n", "2000\n", 1)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, "Read-only file system"),
        pytest.param(LogError("files are removed all the time"), marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_log_that_cannot_be_written_keeps_no_plan_from_being_applied(
    error: Exception, spark: SparkSession, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    throttled = [
        row(window, day=yesterday, request_bytes=10_000, mutes=1, throttle_ms=5_000.0) for window in range(9)
    ]
    write(job.logs, throttled, day=yesterday)

    def failing(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr("sluice.recalibration.night.compact", failing)
    code, printed, told = job.run(f"--date={yesterday}", "--apply")
    assert (code, printed.splitlines()[0]) == (1, f"{job.out}/plans/{yesterday}-1"), told
    assert f"the plan is written; behind it: {error}" in told
    assert (job.folder / "quotas.yaml").read_text() == QUOTAS.replace("1000\n", "2000\n", 1)


@pytest.mark.long
def test_with_apply_a_plan_that_is_refused_ends_with_1_and_changes_nothing(
    spark: SparkSession, job: Job
) -> None:
    long_ago = date(2020, 1, 2)
    write(
        job.logs,
        [row(window, day=long_ago, request_bytes=10_000, mutes=1) for window in range(9)],
        day=long_ago,
    )
    code, _, _ = job.run(f"--date={long_ago}", "--apply")
    assert code == 1
    assert (job.out / "LATEST").exists(), "the plan was made"
    assert (job.folder / "quotas.yaml").read_text() == QUOTAS


def test_apply_goes_neither_with_a_dry_run_nor_with_an_object_store(job: Job) -> None:
    for more in ("--dry-run", "--out=s3://bucket/plans"):
        code, _, told = job.run("--apply", more)
        assert (code, "goes with an --out that is a folder" in " ".join(told.split())) == (2, True), told


# For who builds images and clusters -----------------------------------------------------------------------


def test_the_jobs_file_is_one_that_spark_submit_can_run() -> None:
    told = subprocess.run(
        [SLUICE, "recalibrate", "--job-file"], check=True, capture_output=True, text=True, cwd="/"
    )
    asked = subprocess.run(
        [sys.executable, told.stdout.strip(), "--help"], check=True, capture_output=True, text=True, cwd="/"
    )
    assert "--quotas" in asked.stdout


@pytest.mark.parametrize(
    "command", [[SLUICE, "spark-jars"], [sys.executable, "-m", "sluice.recalibration.spark_jars"]]
)
def test_spark_jars_wants_a_folder_by_its_new_and_its_old_name(command: list[str]) -> None:
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    assert asked.returncode == 2
    assert "give either FOLDER or --lock" in asked.stderr


def test_spark_jars_tells_which_folder_it_cannot_make(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sluice", "spark-jars", "/proc/nope"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (
        1,
        "sluice spark-jars: /proc/nope: no such file or directory\n",
    )
