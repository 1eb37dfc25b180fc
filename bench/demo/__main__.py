"""One quota, kept in two ways at the same time: by the broker itself, and by Sluice in front of it.

    make demo                          the same as: python -m bench.demo
    make demo ARGS='--seconds 40'

Starts a real Kafka 4.3.1 and Sluice, and four flat-out Java clients: a producer and a consumer straight to
the broker, whose native quota names them, and the same two through Sluice, whose quota file names them. Each
may move 1,000,000 B/s. Shows all four rates as they are, and at the end a table of what came of it.

How it counts: each client connects through a small relay in this process that passes everything on at once
and counts the bytes of Produce requests and Fetch answers, on both sides alike; it reads throttle_time_ms in
the answers as they pass. Latencies, and the throttle times in the table, are those that the clients print.
Everything runs on loopback in one temporary folder (about 400 MB), and is gone at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from bench.demo.figures import KINDS, NATIVE, SLUICE, LaneFigures, closing_sentence, figures
from bench.demo.interrupts import Interrupted, Interrupts
from bench.demo.screen import LineScreen, LiveScreen, closing_tables, notes
from bench.demo.traffic import Stage, client_id, records_of_each, run_traffic
from bench.evenness.cases import QUOTA_BYTES_PER_S
from bench.evenness.rig import FETCH_TOPIC, PRODUCE_TOPIC, RECORD_BYTES
from bench.lib.quotas_admin import set_native_quotas
from sluice.recalibration.spark.java_runtime import JavaNotFoundError
from testkit.kafka.lock import CURRENT, KafkaDistError
from testkit.kafka.node import KafkaNode, KafkaNodeError
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.proxies import sluice

MIN_SECONDS: Final = 30.0  # less shows no whole wave
SECONDS: Final = 70.0  # six or seven waves of the broker's; with what is behind it, 83 s of traffic
NEEDED_BYTES: Final = 600_000_000
FILL_WITHIN_S: Final = 60.0
FAILED: Final = 2


class Demo:
    """One run, from the first line to the last."""

    def __init__(self, arguments: argparse.Namespace, console: Console, interrupts: Interrupts) -> None:
        self._seconds: float = arguments.seconds
        self._console = console
        self._interrupts = interrupts
        self._is_live = sys.stdout.isatty() and not console.is_dumb_terminal and not arguments.plain
        self._folder = Path()

    def run(self) -> list[LaneFigures]:
        """Everything; nothing is left of it when this returns or raises. Empty when the user ended it.

        Raises BenchError, or the harness's own errors, saying what failed.
        """
        begin_s = time.monotonic()
        with self._own_folder(), contextlib.ExitStack() as stack:
            try:
                stage = self._set_up(stack)
                took_s = time.monotonic() - begin_s
                self._say(f"set up within {took_s:.0f} s; now four Java clients, flat out …")
                screen = LiveScreen(self._console) if self._is_live else LineScreen(self._console)
                with self._interrupts.deferred():  # run_traffic looks for itself whether one has come
                    lanes, reports = asyncio.run(run_traffic(stage, self._seconds, screen, self._interrupts))
            except (Interrupted, SystemExit):  # the latter is rich's answer to a closed pipe
                # Not passed on: those who clean up behind this would print logs that nobody asked for.
                return []
            finally:
                self._interrupts.hold()
        try:
            return [figures(lane, report, self._seconds) for lane, report in zip(lanes, reports, strict=True)]
        except ValueError as error:
            raise BenchError(f"there is nothing to tell: {error}") from error

    def _set_up(self, stack: contextlib.ExitStack) -> Stage:
        native_relay, sluice_relay = free_ports(2)
        advertised = {"NATIVE": (LOOPBACK, native_relay), "SLUICE": (LOOPBACK, sluice_relay)}
        with self._step(f"starting Kafka {CURRENT.version}"):
            with self._interrupts.deferred():
                node = KafkaNode(advertised=advertised)
                stack.callback(node.close)
                node.begin_start()
            node.await_start()
        records = records_of_each(self._seconds)
        with self._step(f"giving the consumers something to read, {records * RECORD_BYTES / 1e6:.0f} MB"):
            fill(node.bootstrap, records, self._interrupts)
        limits = {"producer_byte_rate": QUOTA_BYTES_PER_S, "consumer_byte_rate": QUOTA_BYTES_PER_S}
        with self._step("native quotas into the broker, and Sluice in front of it"):
            native_port = node.address("NATIVE")[1]
            set_native_quotas(
                native_port, [client_id(NATIVE, api_key) for api_key in KINDS], QUOTA_BYTES_PER_S
            )
            entries = [{"client-id": client_id(SLUICE, api_key), **limits} for api_key in KINDS]
            with self._interrupts.deferred():
                sluice_pid, ports = stack.enter_context(sluice([node.address("SLUICE")[1]], entries))
        relays = {NATIVE: (native_relay, native_port), SLUICE: (sluice_relay, ports[0])}
        return Stage(node, sluice_pid, self._folder, relays)

    @contextlib.contextmanager
    def _own_folder(self) -> Iterator[None]:
        """Everything temporary of this process goes into one folder, so that one removal is enough."""
        before = tempfile.tempdir
        free_bytes = shutil.disk_usage(tempfile.gettempdir()).free
        if free_bytes < NEEDED_BYTES:
            raise BenchError(
                f"{tempfile.gettempdir()} has {free_bytes / 1e6:.0f} MB left, this takes up to "
                f"{NEEDED_BYTES / 1e6:.0f}; TMPDIR chooses another folder"
            )
        with self._interrupts.deferred():
            self._folder = Path(tempfile.mkdtemp(prefix="sluice-demo-"))
            tempfile.tempdir = str(self._folder)
        try:
            yield
        finally:
            self._interrupts.hold()
            tempfile.tempdir = before
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """Says what is going on while it takes its time, and then how long it took."""
        begin_s = time.monotonic()
        if self._is_live:
            spinner = "dots" if self._console.encoding.startswith("utf") else "line"
            with self._console.status(f"{what} …", spinner=spinner):
                yield
        else:
            self._say(f"{what} …")
            yield
        self._say(f"{what}: {time.monotonic() - begin_s:.1f} s")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def fill(bootstrap: str, records: int, interrupts: Interrupts) -> None:
    """One-partition topics for both kinds of clients, and `records` in the one that is read.

    Raises BenchError when the broker does not take them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(topic, num_partitions=1, replication_factor=1) for topic in (PRODUCE_TOPIC, FETCH_TOPIC)
    ]
    try:
        for created in admin.create_topics(topics, request_timeout=30).values():
            created.result(timeout=FILL_WITHIN_S)
    except (KafkaException, TimeoutError) as error:
        raise BenchError(f"the broker made no topics: {error!r}") from error
    # Batches as the Java producer makes them, so that a consumer finds what it would find in real life.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 16_384})
    record = bytes(RECORD_BYTES)
    deadline_s = time.monotonic() + FILL_WITHIN_S
    sent = 0
    while (sent < records or len(producer)) and time.monotonic() < deadline_s:
        interrupts.check()
        try:
            while sent < records:
                producer.produce(FETCH_TOPIC, record)
                sent += 1
        except BufferError:  # its queue is full
            pass
        producer.poll(0.05)
    if sent < records or len(producer):
        raise BenchError(
            f"the broker took {sent - len(producer):,} of {records:,} records in {FILL_WITHIN_S:.0f} s"
        )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long to measure ({SECONDS:.0f})")
    parser.add_argument(
        "--plain", action="store_true", help="one line per second, as without a terminal: nothing moves"
    )
    arguments = parser.parse_args(argv)
    if arguments.seconds < MIN_SECONDS:
        parser.error(
            f"--seconds must be at least {MIN_SECONDS:.0f}: the broker's quota comes in waves of 12 s"
        )
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: shown to the end; 2: it failed, and the message says why; 128 + n: ended by signal n."""
    arguments = _arguments(argv)
    begin_s = time.monotonic()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # where a terminal is not UTF-8: question marks, no traceback
    console = Console(highlight=False)
    with Interrupts() as interrupts:
        try:
            lanes = Demo(arguments, console, interrupts).run()
        except (BenchError, KafkaNodeError, KafkaDistError, JavaNotFoundError, OSError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return FAILED
        except Interrupted:
            lanes = []
        if interrupts.signal_number is not None:
            print("demo: ended by you; nothing of it is left running", file=sys.stderr)
            return 128 + interrupts.signal_number
    if lanes:
        console.print(*closing_tables(lanes, console.width), sep="\n")
        console.print(notes(), style="dim")
        console.print(f"\n{closing_sentence(lanes)}", style="bold")
        took_s = time.monotonic() - begin_s
        console.print(f"{took_s:.0f} s in all; nothing of it is left running.", style="dim")
    return 0 if lanes else 1


if __name__ == "__main__":
    sys.exit(main())
