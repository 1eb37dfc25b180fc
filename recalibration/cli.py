"""The command `sluice recalibrate`, and the same for spark-submit (`__main__.py`).

`sluice` finds it by the entry point `sluice.commands`, and so need not know this package; Spark is imported
when a night begins, so that `sluice --help` stays quick, and says so where Spark is not installed.
"""

from __future__ import annotations

import errno
import io
import logging
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.names import printable
from sluice.quotas.numbers import number
from sluice.recalibration.given import quotas_at, settings_at
from sluice.recalibration.policy.settings import JobSettings

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
EXIT_NO_LOG: Final = 3
EXIT_INTERRUPTED: Final = 130
SHOWN_CHANGES: Final = 20
_FIRST_YEAR: Final = 2000
_NO_ROOM: Final = "No space left on device"
_SPARK_REMEDY: Final = (
    "which comes with the extra recalibration: in Sluice's folder pip install -r "
    "requirements/recalibration.txt (pinned), or pip install '.[recalibration]'; of a wheel pip install "
    "'FILE.whl[recalibration]'"
)


def _show_job_file(value: bool) -> None:
    if value:
        print(Path(__file__).with_name("__main__.py"))
        raise typer.Exit


LogsOption = Annotated[
    str, typer.Option("--logs", metavar="PATH", help="The access log: a folder, or s3://bucket/folder.")
]
QuotasOption = Annotated[
    str, typer.Option("--quotas", "-q", metavar="FILE", help="The quota file in force: a path or s3://….")
]
OutOption = Annotated[
    str, typer.Option("--out", metavar="PATH", help="Where states and plans go: a folder or s3://….")
]
DateOption = Annotated[
    str | None, typer.Option("--date", metavar="YYYY-MM-DD", help="Whose log (UTC); else yesterday's.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the changes; write and compact nothing. Local Spark only.")
]
SettingsOption = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="The job's settings, as YAML, a path or s3://…; else their defaults.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master, such as k8s://…; else local[*]."),
]
ApplyOption = Annotated[
    bool,
    typer.Option(
        "--apply",
        help="Write the proposed limits into --quotas, as `sluice quotas apply --unattended`; what is wanted "
        "beyond them waits for review.",
    ),
]
JobFileOption = Annotated[
    bool,
    typer.Option(
        "--job-file",
        callback=_show_job_file,
        is_eager=True,
        help="Print the path of the job's file, which spark-submit takes, and exit.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting; may be repeated."),
]


def recalibrate(
    logs: LogsOption,
    quotas: QuotasOption,
    out: OutOption,
    day: DateOption = None,
    dry_run: DryRunOption = False,
    settings: SettingsOption = None,
    master: MasterOption = None,
    apply: ApplyOption = False,
    conf: ConfOption = None,
    _job_file: JobFileOption = False,
) -> None:
    """Propose new quotas from a day's access log and the four weeks before it.

    The same date again gives the same plan; run it again when files of that date came late. The plan is put
    in force by `sluice quotas apply`, or with --apply at once.

    Exit codes: 0 a plan was made; 1 Spark, Java or a write failed, or the plan was not applied; 2 bad quota
    file, settings or arguments; 3 the log of the date cannot be used: missing, damaged where that is refused,
    or nobody in it has a limit.
    """
    night_of = _date(day)
    _check_places(out, quotas, apply=apply, dry_run=dry_run)
    try:
        of_spark, job, limits = _given(conf or [], settings, quotas)
        _refuse_without_log(logs, night_of)
        from sluice.recalibration.night import Night, run_night
        from sluice.recalibration.spark.session import spark_session
    except ImportError as error:
        _fail(f"it needs Spark ({error.name} is missing), {_SPARK_REMEDY}", EXIT_FAILED)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from sluice.recalibration.job import NothingToPlanError
    from sluice.recalibration.log.reader import LogError
    from sluice.recalibration.spark.java_runtime import JavaNotFoundError
    from sluice.recalibration.spark.maven_jars import JarError

    night = Night(logs, out, night_of, dry_run)
    try:
        with spark_session(f"sluice recalibrate {night_of}", master, of_spark) as spark:
            spark.sparkContext.setLogLevel("ERROR")
            with _ctrl_c_without_tracebacks():
                outcome = run_night(spark, night, limits, job, _tell)
    except (LogError, NothingToPlanError) as error:
        _fail(f"{night_of}: {error}", EXIT_NO_LOG)
    except (JavaNotFoundError, JarError, OSError) as error:
        _fail(_os_words(error, out), EXIT_FAILED)
    except (PySparkException, Py4JError) as error:
        _fail(_spark_words(error), EXIT_FAILED)
    if outcome.folder is None:
        _show(outcome.plan)
        return
    print(outcome.folder, flush=True)  # if it cannot be written, no limit has been changed yet
    if outcome.not_tidied:
        _tell(f"sluice recalibrate: {night_of}: {outcome.not_tidied}")
    if apply:
        _apply(outcome.folder, quotas)
    if outcome.not_tidied:
        raise typer.Exit(EXIT_FAILED)


def spark_jars(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", show_default=False, help="Where the jars go.")
    ] = None,
    hadoop: Annotated[
        str | None,
        typer.Option("--hadoop", metavar="VERSION", help="Spark's Hadoop; else that of the installed Spark."),
    ] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Write the lock files anew instead: for developers.")
    ] = False,
) -> None:
    """Fetch the jars that Spark lacks for S3 into FOLDER, each checked against its pinned SHA-256.

    For who builds an image: `SLUICE_SPARK_JARS=FOLDER` then has the job use them. They must be of the Hadoop
    whose jars Spark brings: hadoop-client-api-VERSION.jar among them. Needs PyPI's jgo.
    """
    from sluice.recalibration.spark.maven_jars import JarError
    from sluice.recalibration.spark.spark_jars import fetch_jars, jar_set, write_lock

    if lock == (folder is not None):
        raise typer.BadParameter("give either FOLDER or --lock")
    try:
        if folder is None:
            write_lock()
        else:
            jars = jar_set(hadoop)
            _tell(f"{fetch_jars(folder, jars)} jars for Hadoop {jars.hadoop} in {folder}")
    except (JarError, ImportError, OSError) as error:
        print(f"sluice spark-jars: {_in_words(error)}", file=sys.stderr)
        raise typer.Exit(EXIT_FAILED) from None


def main() -> NoReturn:
    """The entry point of spark-submit and `python -m sluice.recalibration`."""
    run_alone(recalibrate)


def run_alone(command: Callable[..., None]) -> NoReturn:
    """Run one command without `sluice` before it, and exit with its code."""
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(command)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as `sluice` does for what a locale has not
    try:
        app()
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_CONFIG)
    sys.exit(0)


@contextmanager
def _ctrl_c_without_tracebacks() -> Iterator[None]:
    """PySpark's own handler asks Java to cancel, while we wait for Java's answer: two pages of tracebacks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    root = logging.getLogger()  # py4j tells there that it was interrupted
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        yield
    except KeyboardInterrupt:
        _fail("interrupted; run the same date again", EXIT_INTERRUPTED)
    finally:
        root.setLevel(level)
        signal.signal(signal.SIGINT, before)


def _check_places(out: str, quotas: str, *, apply: bool, dry_run: bool) -> None:
    if apply and (dry_run or "://" in out + quotas):
        raise typer.BadParameter(
            "it goes with an --out that is a folder and --quotas that is a file, and not with --dry-run",
            param_hint="--apply",
        )
    if "://" not in out and Path(out).exists() and not Path(out).is_dir():
        raise typer.BadParameter(f"{out} is a file; it must be a folder, or not be there", param_hint="--out")


def _given(
    conf: list[str], settings: str | None, quotas: str
) -> tuple[dict[str, str], JobSettings, QuotaLimits]:
    """What Spark, the job and users are to go by. Raises typer.BadParameter, ConfigError, ImportError."""
    of_spark = _spark_settings(conf)
    return of_spark, JobSettings() if settings is None else settings_at(settings), quotas_at(quotas)


def _refuse_without_log(logs: str, night_of: date) -> None:
    """Before a JVM is started, which takes its time."""
    if "://" not in logs and not Path(logs).is_dir():
        _fail(f"{night_of}: no log of this date: there is no folder {logs}", EXIT_NO_LOG)


def _date(text: str | None) -> date:
    today = datetime.now(UTC).date()
    if text is None:
        return today - timedelta(days=1)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.year < _FIRST_YEAR:
        raise typer.BadParameter(f"{text!r} is no date such as 2026-11-20", param_hint="--date")
    if day > today:
        # A proxy's clock may have been there. By such a night all states there are would be too old to keep.
        raise typer.BadParameter(f"{text} is yet to come: today is {today} (UTC)", param_hint="--date")
    return day


def _os_words(error: Exception, out: str) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        return f"no space left on the disk of {out}, or of {tempfile.gettempdir()}"
    return _in_words(error)


def _in_words(error: Exception) -> str:
    """`/nope: no such file or directory`, without Python's number."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror.lower()}"
    return str(error)


def _spark_words(error: Exception) -> str:
    from sluice.recalibration.log.reader import unreadable_file

    for path in unreadable_file(error):
        return (
            f"Spark cannot read {path}: it is damaged; put it back from a backup, or remove its folder and "
            "run that date again"
        )
    if _NO_ROOM in str(error):
        return f"Spark: {_NO_ROOM}, where it writes: the output folder, or its own ({tempfile.gettempdir()})"
    return f"Spark: {str(error).splitlines()[0]}"


def _spark_settings(given: list[str]) -> dict[str, str]:
    found = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals:
            raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--conf")
        found[key] = value
    return found


def _show(plan: Plan) -> None:
    """The largest changes first."""
    changes = sorted(
        (entry for entry in plan.entries if entry.is_change),
        key=lambda entry: -abs(entry.proposed / entry.current - 1.0),
    )
    for entry in changes[:SHOWN_CHANGES]:
        review = (
            f"; above that it waits for review, up to {number(entry.up_to)}" if entry.needs_review else ""
        )
        step = f"{number(entry.current)} -> {number(entry.proposed)}"
        print(f"{printable(entry.entity)} {entry.key}: {step} ({entry.reason}{review})")
    if len(changes) > SHOWN_CHANGES:
        print(f"and {len(changes) - SHOWN_CHANGES} more")
    reviews = sum(entry.needs_review for entry in plan.entries)
    print(
        f"{len(plan.entries)} limits, {len(changes)} to change, {reviews} waiting for review beyond that; a "
        "dry run: nothing was written"
    )


def _apply(folder: str, quotas: str) -> None:
    """By the command, whose exit code becomes this one's: this package does not know the proxy's."""
    command = [sys.executable, "-m", "sluice.proxy", "quotas", "apply", folder, "--unattended"]
    code = subprocess.run([*command, "--quotas", quotas], check=False).returncode
    if code:
        raise typer.Exit(code)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _fail(message: str, code: int) -> NoReturn:
    print(f"sluice recalibrate: {message}", file=sys.stderr)
    raise typer.Exit(code)
