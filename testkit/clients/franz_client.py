"""franz-go, built from testkit/clients/franz with the machine's Go: nothing else of the project needs Go.

Modules come by Go's own settings, and are checked against go.sum.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from testkit.clients.kafka_clients import Options
from testkit.clients.kafka_records import Record

_SOURCE: Final = Path(__file__).parent / "franz"
_BUILD_WITHIN_S: Final = 600
_ENVIRONMENT: Final = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}


def why_no_franz() -> str:
    """Why it cannot be built here; empty: it can."""
    wanted = re.search(r"^go (\d+)\.(\d+)", (_SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    at_least = f"franz-go needs Go {wanted[1]}.{wanted[2]} or newer"
    if shutil.which("go") is None:
        return f"{at_least}, and there is no Go here"
    said = subprocess.run(
        ["go", "env", "GOVERSION"], capture_output=True, text=True, env=_ENVIRONMENT, check=True
    ).stdout.strip()
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found is not None and (int(found[1]), int(found[2])) < (int(wanted[1]), int(wanted[2])):
        return f"{at_least}, and here is {said}"
    return ""


def build_franz(folder: Path) -> Path:
    """The program; half a minute at the first time, a second when Go's cache has it."""
    return _go(folder / "franz", "build", ".")


def build_franz_tests(folder: Path) -> Path:
    """franz-go's own tests of its client, as they come with the module."""
    return _go(folder / "kgo.test", "test", "-c", "github.com/twmb/franz-go/pkg/kgo")


def _go(program: Path, *command: str) -> Path:
    done = subprocess.run(
        ["go", *command[:-1], "-o", program, command[-1]],
        cwd=_SOURCE,
        env=_ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=_BUILD_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return program


def franz_produce(
    program: Path, bootstrap: str, topic: str, records: Iterable[Record], options: Options
) -> None:
    """Returns when every record was acknowledged; AssertionError with what franz-go says if one was not.

    Of the options it knows the client id, the transactional id and the records of a transaction.
    """
    transactions = []
    if options.transactional_id is not None:
        transactions = [options.transactional_id, str(options.records_per_transaction or 2**31 - 1)]
    lines = "".join(f"{record.partition} {record.value.hex()}\n" for record in records)
    done = subprocess.run(
        [program, bootstrap, topic, options.client_id, *transactions],
        input=lines,
        capture_output=True,
        text=True,
        timeout=2 * options.within_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
