#!/usr/bin/env python3
"""The proxy's image: the Dockerfile's steps run, its proxy works in it read-only, its size.

In the image's root, which has no shell, as its user, with the root read-only: `sluice version`, then
`sluice run` in front of a real Kafka; records go through it and back; the HEALTHCHECK says no before it runs
and yes while it does; SIGTERM ends it with code 0. What the image's files are linked with is there.
"""

# debian: binutils debootstrap debian-archive-keyring
# limit: 900 s

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from clean_root import Bind, CleanRootError, entered, gzip_bytes
from confluent_kafka import Consumer, Producer
from dockerfile_steps import UnknownStep
from image_build import Image, build, need_root, work_folder

from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port, free_port_range

WORK: Final = work_folder("proxy")
LARGEST_BYTES: Final = 120_000_000
"""of the root as one gzip layer, Debian's base included"""
LABELS: Final = {"title", "description", "licenses", "version", "revision", "base.name"}
SHELLS: Final = ("sh", "dash", "bash", "busybox", "perl", "apt-get", "dpkg", "pip", "pip3", "gcc", "strip")
"""none of these programs may be in the image"""
RECORDS: Final = 500
WITHIN_S: Final = 30.0


def main() -> None:
    need_root()
    since = time.monotonic()
    image = build("proxy")
    print(f"built in {time.monotonic() - since:.0f} s", flush=True)
    check_config(image)
    check_files(image.root)
    version = run_in(image, ["version"]).stdout.strip()
    print(f"sluice version: {version}", flush=True)
    if not version.startswith("sluice "):
        sys.exit(f"sluice version says {version!r}")
    check_proxy(image)
    size = gzip_bytes(image.root)
    print(f"root as one gzip layer, base included: {size / 1e6:.1f} MB")
    if size > LARGEST_BYTES:
        sys.exit(f"the image has {size / 1e6:.1f} MB, more than {LARGEST_BYTES / 1e6:.0f}")
    (WORK / "is-built").touch()  # sbom.py may read the root


def check_config(image: Image) -> None:
    """What the image says of itself: no root, no shell between, a health check, labels."""
    config = image.config
    user = config.user.split(":")[0]
    if not user.isdecimal() or user == "0":
        sys.exit(f"USER {config.user}: Kubernetes' runAsNonRoot wants a number other than 0")
    if not config.entrypoint or config.entrypoint[0].endswith("sh"):
        sys.exit(f"ENTRYPOINT {config.entrypoint}: goes through a shell")
    if not config.healthcheck:
        sys.exit("no HEALTHCHECK")
    missing = {f"org.opencontainers.image.{name}" for name in LABELS} - set(config.labels)
    if missing:
        sys.exit(f"labels missing: {', '.join(sorted(missing))}")


def check_files(root: Path) -> None:
    """Nothing of the build stayed, and the proxy's user can change nothing of its program."""
    left = [name for name in SHELLS for folder in ("bin", "usr/bin") if (root / folder / name).exists()]
    left += [str(path) for path in root.glob("opt/sluice/bin/pip*")]
    left += [name for name in ("src", "build", "dist") if (root / name).exists()]
    left += [str(path) for path in (root / "var/lib/apt/lists").glob("*_*")]
    if left:
        sys.exit(f"left over from the build: {', '.join(left)}")
    for path in (root / "opt/sluice").rglob("*"):
        status = path.lstat()
        if status.st_uid or status.st_gid or (not path.is_symlink() and status.st_mode & 0o022):
            sys.exit(f"{path.relative_to(root)} is not root's alone to change")
    missing = missing_libraries(root)
    if missing:
        sys.exit(f"libraries that are linked with and not there: {', '.join(missing)}")


def missing_libraries(root: Path) -> list[str]:
    """What programs and libraries in the root are linked with, and no file there is called."""
    present = {path.name for path in root.rglob("*.so*")}
    linked = [path for path in root.rglob("*") if is_elf(path)]
    shown = subprocess.run(
        ["readelf", "--dynamic", "--wide", *linked], check=True, capture_output=True, text=True
    ).stdout
    return sorted(set(re.findall(r"\(NEEDED\).*\[(.+)\]", shown)) - present)


def is_elf(path: Path) -> bool:
    """A program or a library."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def command(image: Image, argv: Sequence[str], binds: Sequence[Bind] = ()) -> list[str]:
    """`argv` in the image as a container's engine starts it: read-only, as its user."""
    return entered(
        image.root,
        argv,
        env=image.config.env,
        user=image.config.user,
        workdir=image.config.workdir,
        binds=binds,
        read_only=True,
    )


def run_in(image: Image, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`sluice` with arguments; exits with what it said if it fails."""
    argv = [*image.config.entrypoint, *arguments]
    done = subprocess.run(
        command(image, argv),
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr}")
    return done


def check_proxy(image: Image) -> None:
    """`sluice run` in front of a real Kafka, asked, used and ended as in production."""
    port, admin_port = free_port(), free_port_range(2)
    with KafkaNode(advertised={"SLUICE": (LOOPBACK, port)}) as kafka:
        upstream_host, upstream_port = kafka.address("SLUICE")
        files = WORK / "etc-sluice"
        files.mkdir()
        listener = {"name": "clients", "bind_port": port, "upstream_host": upstream_host}
        config = {
            "listeners": [{**listener, "upstream_port": upstream_port}],
            "quotas": {"file": "quotas.yaml"},
            "admin": {"bind_port": admin_port},
        }
        (files / "sluice.yaml").write_text(json.dumps(config))
        (files / "quotas.yaml").write_text("quotas: [{user: <default>, producer_byte_rate: 10000000}]\n")
        for file in (files, *files.iterdir()):
            file.chmod(0o755 if file.is_dir() else 0o644)
        (image.root / "etc/sluice").mkdir()  # an engine makes the place of a volume, too
        volume = [Bind(files, "/etc/sluice")]
        healthy = command(image, image.config.healthcheck, volume)

        def is_healthy() -> bool:
            return subprocess.run(healthy, check=False, capture_output=True).returncode == 0

        if is_healthy():
            sys.exit("HEALTHCHECK succeeds while no proxy runs")
        argv = [*image.config.entrypoint, *image.config.cmd]
        log = WORK / "proxy.log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                command(image, argv, volume), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            ) as process,
        ):
            try:
                await_true(lambda: answers(f"http://{LOOPBACK}:{admin_port}/readyz"), "ready", log)
                await_true(is_healthy, "healthy", log)
                check_process(inner_pid(process.pid), image.config.user.split(":")[0])
                send_and_read(f"{LOOPBACK}:{port}")
                since = time.monotonic()
                os.kill(inner_pid(process.pid), signal.SIGTERM)
                code = process.wait(WITHIN_S)
            finally:
                process.kill()
        (image.root / "etc/sluice").rmdir()
        if code:
            sys.exit(f"after SIGTERM the proxy ended with {code}:\n{log.read_text()[-2000:]}")
        print(f"{RECORDS} records through it and back; SIGTERM ended it in {time.monotonic() - since:.1f} s")


def inner_pid(pid: int) -> int:
    """The process inside: the only child of unshare."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def check_process(pid: int, user: str) -> None:
    """Not root, no capability, and none to be won."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    seen = (status["Uid"].split()[1], int(status["CapEff"], 16), status["NoNewPrivs"])
    if seen != (user, 0, "1"):
        sys.exit(f"the proxy runs with (uid, capabilities, no_new_privs) {seen}")


def send_and_read(bootstrap: str) -> None:
    """Records to a topic and back, all of them."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent = [str(number).encode() for number in range(RECORDS)]
    for value in sent:
        producer.produce("image", value)
    if producer.flush(WITHIN_S):
        sys.exit("records were not acknowledged")
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "image", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["image"])
    read: list[bytes] = []
    until = time.monotonic() + WITHIN_S
    while len(read) < RECORDS and time.monotonic() < until:
        for message in consumer.consume(RECORDS, 1.0):
            if message.error() is None:
                read.append(message.value() or b"")
    consumer.close()
    if sorted(read) != sorted(sent):
        sys.exit(f"{len(read)} of {RECORDS} records came back")


def answers(address: str) -> bool:
    """Whether an HTTP address answers with success."""
    try:
        with urllib.request.urlopen(address, timeout=2):
            return True
    except OSError:
        return False


def await_true(condition: Callable[[], bool], what: str, log: Path) -> None:
    """Wait; exits with the proxy's log if it does not come true."""
    until = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"not {what} within {WITHIN_S:.0f} s:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


if __name__ == "__main__":
    try:
        main()
    except (CleanRootError, UnknownStep) as error:
        sys.exit(str(error))
