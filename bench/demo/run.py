"""Three acts: what a broker does alone, and what it does behind Sluice, at the same time, side by side.

    make demo                          the same as: python -m bench.demo
    make demo ARGS='--plain'           one line per second: nothing moves

1. One quota of 1,000,000 B/s. Four flat-out Java clients: a producer and a consumer straight to a real Kafka
   4.3.1, whose native quota names them, and the same two through Sluice, whose quota file names them.
2. Overload. On each side 50 connections of one principal, which together may move 1,000,000 B/s.
3. A storm of new producer ids (KIP-936), against two brokers with small heaps: one alone, the other behind
   Sluice with `producer_ids_rate`. Another user's producer goes on beside it. They run with Kafka's own
   collector and -XX:+ExitOnOutOfMemoryError; who is silent for 10 s with a full heap counts as dead, too.

How it counts: in the first act each client connects through a small relay in this process that passes
everything on at once and counts the bytes of Produce requests and Fetch answers, on both sides alike; it
reads throttle_time_ms in the answers as they pass. Latencies, and the throttle times in the table, are those
that the clients print. In the second, bytes count when they are answered. In the third, ids count when the
broker has answered them without an error, and the heap is what the broker's own collector logs.
Everything runs on loopback in one temporary folder (about 400 MB), and is gone at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console

from bench.demo import setup
from bench.demo.closing import READ_ON, Outcome, storm_sentences, summary, three_numbers
from bench.demo.figures import LaneFigures, closing_sentence, figures
from bench.demo.interrupts import Interrupted, Interrupts
from bench.demo.overload import CONNECTIONS, DEPTH, REQUEST_BYTES, run_overload
from bench.demo.overload_figures import OverloadFigures
from bench.demo.overload_screen import OverloadLines, OverloadLive
from bench.demo.screen import LineScreen, LiveScreen, closing_tables, notes
from bench.demo.storm import HEAP_MIB, IDS_PER_HOUR, RATE, StormStage
from bench.demo.storm_figures import StormFigures
from bench.demo.storm_screen import StormLines, StormLive
from bench.demo.traffic import Stage, Traffic
from bench.evenness.cases import QUOTA_BYTES_PER_S
from sluice.recalibration.spark.java_runtime import JavaNotFoundError
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError

MIN_SECONDS: Final = 26.0  # less shows no whole wave
SECONDS: Final = 28.0  # two waves of the broker's, and the begin of a third
OVERLOAD_SECONDS: Final = 18.0
STORM_SECONDS: Final = 28.0  # at most
BROKERS_BEGIN_S: Final = (4.0, 9.0)  # of the third act, within the first: one behind the other
FAILED: Final = 2
QUOTA: Final = f"{QUOTA_BYTES_PER_S / 1e6:g} MB/s"


class Demo:
    """One run, from the first line to the last."""

    def __init__(self, arguments: argparse.Namespace, console: Console, interrupts: Interrupts) -> None:
        self._seconds: float = arguments.seconds
        self._console = console
        self._interrupts = interrupts
        self._is_live = sys.stdout.isatty() and not console.is_dumb_terminal and not arguments.plain
        self.set_up_s = 0.0

    def run(self) -> Outcome | None:
        """Everything; nothing is left of it when this returns or raises. None when the user ended it.

        Raises BenchError, or the harness's own errors, saying what failed.
        """
        begin_s = time.monotonic()
        with setup.own_folder(self._interrupts) as folder, contextlib.ExitStack() as stack:
            try:
                stage, storm = setup.set_up(folder, self._seconds, stack, self._step, self._interrupts)
                self.set_up_s = time.monotonic() - begin_s
                self._say(f"set up within {self.set_up_s:.0f} s")
                with self._interrupts.deferred():  # the acts look for themselves whether one has come
                    lanes, overload = asyncio.run(self._bytes(stage, storm))
                return Outcome(lanes, overload, self._storm(storm))
            except (Interrupted, SystemExit):  # the latter is rich's answer to a closed pipe
                # Not passed on: those who clean up behind this would print logs that nobody asked for.
                return None
            finally:
                self._interrupts.hold()

    async def _bytes(
        self, stage: Stage, storm: StormStage
    ) -> tuple[list[LaneFigures], list[OverloadFigures]]:
        """The first two acts. The clients of the first run on to their end within the second."""
        begins_s = list(BROKERS_BEGIN_S)

        def begin_brokers(since_start_s: float) -> None:
            if begins_s and since_start_s >= begins_s[0]:
                begins_s.pop(0)
                storm.begin_next()

        self._head(1, f"one quota of {QUOTA} for each of four Java clients, flat out")
        with Traffic(stage, self._seconds, self._interrupts) as traffic:
            screen = LiveScreen(self._console) if self._is_live else LineScreen(self._console)
            await traffic.follow(screen, begin_brokers)
            self._head(
                2,
                f"overload: {QUOTA} for {CONNECTIONS} connections of one client id on each side, flat out; "
                f"requests of {REQUEST_BYTES // 1000} kB, {DEPTH} in flight",
            )
            ports = {side: port for side, (_, port) in stage.ports.items()}
            flood = OverloadLive(self._console) if self._is_live else OverloadLines(self._console)
            overload = await run_overload(ports, OVERLOAD_SECONDS, flood, self._interrupts)
            reports = await traffic.reports()
        try:
            pairs = zip(traffic.lanes, reports, strict=True)
            return [figures(lane, report, self._seconds) for lane, report in pairs], overload
        except ValueError as error:
            raise BenchError(f"there is nothing to tell: {error}") from error

    def _storm(self, storm: StormStage) -> list[StormFigures]:
        """The third act."""
        self._head(
            3,
            f"a user who brings {RATE:,.0f} new producer ids a second (KIP-936), at two brokers with a heap "
            f"of {HEAP_MIB} MiB: one alone, one behind Sluice (producer_ids_rate: {IDS_PER_HOUR:,} an hour)",
        )
        with self._interrupts.deferred():
            storm.begin_all()
        storm.complete_start()
        with contextlib.ExitStack() as stack, self._interrupts.deferred():
            good = stack.enter_context(storm.clients())
            screen = StormLive(self._console) if self._is_live else StormLines(self._console)
            return storm.run(good, STORM_SECONDS, screen, self._interrupts)

    def _head(self, act: int, what: str) -> None:
        self._console.print(f"\nAct {act} of 3: {what}", style="bold", highlight=False, markup=False)

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


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"how long to measure the first act ({SECONDS:.0f})"
    )
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
        demo = Demo(arguments, console, interrupts)
        try:
            outcome = demo.run()
        except (BenchError, KafkaNodeError, KafkaDistError, JavaNotFoundError, OSError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return FAILED
        except Interrupted:
            outcome = None
        if interrupts.signal_number is not None:
            print("demo: ended by you; nothing of it is left running", file=sys.stderr)
            return 128 + interrupts.signal_number
    if outcome is None:
        return 1
    tell(outcome, console)
    took_s = time.monotonic() - begin_s
    console.print(f"{took_s:.0f} s in all; nothing of it is left running.", style="dim")
    if not sys.stdout.isatty():
        print(json.dumps(summary(outcome, demo.set_up_s, took_s)), flush=True)
    return 0


def tell(outcome: Outcome, console: Console) -> None:
    """Everything that is said at the end; the three numbers last."""
    console.print("\nAct 1 in figures", style="bold")
    console.print(*closing_tables(outcome.lanes, console.width), sep="\n")
    console.print(notes(), style="dim")
    console.print(f"\n{closing_sentence(outcome.lanes)}")
    for sentence in storm_sentences(outcome):
        console.print(sentence, markup=False)
    console.print("", three_numbers(outcome), sep="\n")
    console.print("Read on:")
    for what, where in READ_ON:
        console.print(f"  {what:<36}{where}", markup=False, highlight=False)
