#!/usr/bin/env python3
"""The nightly job's image: the Dockerfile's steps run, a night over a small access log in it, its size.

In the image's root, read-only, as its user, with volumes at /tmp and /data as the chart mounts them: `sluice
recalibrate` reads a log that says that alice uses a tenth of her limit, and its plan must say so.
"""

# debian: debootstrap debian-archive-keyring
# limit: 1800 s
# on request

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow as pa
from clean_root import Bind, CleanRootError, entered, gzip_bytes
from dockerfile_steps import UnknownStep
from image_build import Image, build, need_root, work_folder
from pyarrow import parquet

from sluice.usage.access_record import ROLLUP_COLUMNS, ColumnType

WORK: Final = work_folder("recalibration")
NIGHT: Final = date(2026, 1, 5)
NIGHT_MS: Final = 1_767_571_200_000
"""its midnight, UTC"""
LIMIT_BYTES_PER_S: Final = 1_000_000
WINDOW_S: Final = 10
WITHIN_S: Final = 240.0
_TYPES: Final = {
    ColumnType.TEXT: (pa.string(), ""),
    ColumnType.INT: (pa.int32(), 0),
    ColumnType.LONG: (pa.int64(), 0),
    ColumnType.DOUBLE: (pa.float64(), 0.0),
}


def main() -> None:
    need_root()
    since = time.monotonic()
    image = build("recalibration")
    print(f"built in {time.monotonic() - since:.0f} s", flush=True)
    since = time.monotonic()
    plan = run_night(image)
    print(f"a night in {time.monotonic() - since:.0f} s: {plan}", flush=True)
    print(f"root as one gzip layer, base included: {gzip_bytes(image.root) / 1e6:.0f} MB")


def run_night(image: Image) -> str:
    """`sluice recalibrate` over a day's log; returns what the plan says of alice."""
    data, scratch = WORK / "data", WORK / "tmp"
    user = int(image.config.user.split(":")[0])
    for folder in (data, scratch, data / "out"):
        folder.mkdir()
        os.chown(folder, user, user)
    write_log(data / "logs")
    (data / "quotas.yaml").write_text(f"quotas: [{{user: alice, producer_byte_rate: {LIMIT_BYTES_PER_S}}}]\n")
    (image.root / "data").mkdir()
    options = ["--logs=/data/logs", "--out=/data/out", "--quotas=/data/quotas.yaml", f"--date={NIGHT}"]
    done = subprocess.run(
        entered(
            image.root,
            [*image.config.entrypoint, "recalibrate", *options],
            env=image.config.env,
            user=image.config.user,
            workdir=image.config.workdir,
            binds=[Bind(data, "/data", read_only=False), Bind(scratch, "/tmp", read_only=False)],
            read_only=True,
        ),
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    if done.returncode:
        sys.exit(
            f"sluice recalibrate ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
        )
    plans = list((data / "out").rglob("plan.json"))
    if len(plans) != 1:
        sys.exit(f"{len(plans)} plans were written: {done.stdout}")
    (entry,) = (one for one in json.loads(plans[0].read_text())["entries"] if "alice" in json.dumps(one))
    if not 0 < entry["wanted"] < entry["current"] == LIMIT_BYTES_PER_S:
        sys.exit(f"the plan says of alice: {entry}")
    return f"of {entry['current']:g} alice wants {entry['wanted']:.0f}; {entry['reason']}"


def write_log(folder: Path) -> None:
    """A day in which alice produced a tenth of what she may, in every window alike."""
    rows = []
    for number in range(24 * 3600 // WINDOW_S):
        row = {column.name: _TYPES[column.type][1] for column in ROLLUP_COLUMNS}
        row |= {"window_start_ms": NIGHT_MS + number * WINDOW_S * 1000, "proxy": "p", "user": "alice"}
        row |= {"client_id": "app", "api_class": "produce", "connections": 1, "requests": 100}
        rows.append(row | {"request_bytes": LIMIT_BYTES_PER_S * WINDOW_S // 10})
    schema = pa.schema([(column.name, _TYPES[column.type][0]) for column in ROLLUP_COLUMNS])
    file = folder / f"rollup/date={NIGHT}/hour=00/a.parquet"
    file.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows, schema), file)


if __name__ == "__main__":
    try:
        main()
    except (CleanRootError, UnknownStep) as error:
        sys.exit(str(error))
