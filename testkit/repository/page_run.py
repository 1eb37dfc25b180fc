"""Run the blocks of the quick start as they stand, beside a client: `unshare … python -m … FOLDER`.

Runs in a network namespace of its own, since the page names its ports. Standard output: one JSON object,
what each shell block printed and what the client saw.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from testkit.repository.docs_blocks import Block, blocks_of

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "quick-start.md"
BOOTSTRAP: Final = "localhost:9092,localhost:9192"
PARTITIONS: Final = 4
RECORDS: Final = 3_000
VALUE: Final = bytes(1_000)
WITHIN_S: Final = 120.0
END: Final = "=== end of block"
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


def raise_loopback() -> None:
    """Bring up `lo` of a new network namespace (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


class Shell:
    """One bash for the whole page, which ends at the first command that fails."""

    def __init__(self, folder: Path) -> None:
        self._bash = subprocess.Popen(
            ["bash", "-e"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )

    def run(self, text: str) -> str:
        """What a block prints. Raises RuntimeError if its last command fails."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{text}\necho; echo {END} $?\n")
        self._bash.stdin.flush()
        said = ""
        for line in self._bash.stdout:
            if line.startswith(END):
                if line.split()[-1] != "0":
                    raise RuntimeError(f"{text}ended with {line.split()[-1]}:\n{said}")
                return said
            said += line
        raise RuntimeError(f"bash ended in:\n{text}{said}")


def await_answer(url: str) -> None:
    """Return once a URL answers 200. Raises TimeoutError."""
    deadline_s = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


def followers(admin_port: int) -> float:
    """Fetches of followers that this Sluice has seen, charged or exempt."""
    with urllib.request.urlopen(f"http://localhost:{admin_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("sluice_followers_total{"))


def use() -> dict[str, Any]:
    """Produce to two copies through both proxies, read all of it, and see which copies are in sync."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    asked = NewTopic("quick", PARTITIONS, 2, config={"min.insync.replicas": "2"})
    admin.create_topics([asked])["quick"].result(60)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "client.id": "reports"})
    failed: list[str] = []
    for number in range(RECORDS):
        producer.produce(
            "quick",
            VALUE,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    left = producer.flush(WITHIN_S)
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "quick", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["quick"])
    consumed = 0
    deadline_s = time.monotonic() + WITHIN_S
    while consumed < RECORDS and time.monotonic() < deadline_s:
        consumed += sum(not message.error() for message in consumer.consume(500, 1.0))
    consumer.close()
    told = admin.list_topics("quick", 30)
    partitions = told.topics["quick"].partitions.values()
    return {
        "failed": failed,
        "left": left,
        "consumed": consumed,
        "in_sync": [sorted(partition.isrs) for partition in partitions],
        "followers": sum(map(followers, (9308, 9408))),
        "addresses": sorted(f"{broker.host}:{broker.port}" for broker in told.brokers.values()),
    }


def follow(folder: Path) -> dict[str, Any]:
    """Do what the page says, block by block, and use the cluster where it says so."""
    shell = Shell(folder)
    said: dict[str, Any] = {"used": None}
    for block in blocks_of(PAGE.read_text(encoding="utf-8")):
        if block.not_run or block.is_make:
            continue
        if block.file_name:
            (folder / block.file_name).write_text(block.text, encoding="utf-8")
            continue
        said.update(_run(shell, block))
        if "sluice run" in block.text:
            await_answer("http://localhost:9309/readyz")
            await_answer("http://localhost:9409/readyz")
            said["used"] = use()
    return said


def _run(shell: Shell, block: Block) -> dict[str, str]:
    return {block.text.splitlines()[0].split(" #")[0].strip(): shell.run(block.text)}


if __name__ == "__main__":
    raise_loopback()
    print(json.dumps(follow(Path(sys.argv[1]))))
