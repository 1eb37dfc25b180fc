"""How far the costs of request_percentage are from what a real broker's threads spent, by its own figures.

    python -m bench.request_cost [--quick] [--rounds N] [--seconds S] [--out FOLDER]

Costs are measured on one broker (4 I/O and 2 network threads) and judged, beside those that Sluice brings, by
mixes that they were not fitted to, on brokers of 4 + 2, 2 + 1 and 8 + 3 threads, each in a JVM of its own.
Goal: ± 20 %. The last line of standard output is one JSON object; docs/request-percentage.md says more.
"""

import argparse
import shlex
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rich.table import Table

from bench.lib.plots import figure, save
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.tls_socket import HOST, KEYS, write_certificate
from sluice.proxy.calibration.calibrate import Calibration, DrivenMix, MixResult, Target, calibrate, fit_table
from sluice.proxy.calibration.request_cost_file import load_request_costs
from sluice.proxy.calibration.rig import CalibrationError
from sluice.usage.request_cost import RequestCosts
from testkit.kafka.config import BrokerTls
from testkit.kafka.dist import ensure_kafka
from testkit.kafka.java_tools import tool_command
from testkit.kafka.jmx import jmx_options, jmx_url
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import free_port

THREADS: Final = ((4, 2), (2, 1), (8, 3))
"""I/O and network threads; the costs are fitted on the first"""
ROUNDS: Final = 4
MIX_ROUNDS: Final = 5
LOAD_S: Final = 1.5
WITHIN: Final = 0.2
"""the goal, of the broker's figure"""
BROUGHT: Final = "brought by Sluice"
FITTED: Final = "fitted in this run"


@dataclass(frozen=True, slots=True)
class Error:
    """The error of one mix on one broker, relative: 0.1 says that the costs ask a tenth too much."""

    costs: str
    threads: str
    mix: str
    rounds: tuple[float, ...]
    broker_us: float
    """a request, in the mean, by the broker"""

    @property
    def middle(self) -> float:
        return median(self.rounds)

    def as_json(self) -> dict[str, object]:
        return {
            "costs": self.costs,
            "threads": self.threads,
            "mix": self.mix,
            "error": round(self.middle, 3),
            "rounds": [round(error, 3) for error in self.rounds],
            "broker_us_per_request": round(self.broker_us, 1),
        }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.request_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round: says nothing, shows the way")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of the fit ({ROUNDS})")
    parser.add_argument("--seconds", type=float, default=LOAD_S, help=f"a load runs for so long ({LOAD_S})")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    rounds, mix_rounds, load_s = (
        (1, 1, 0.3) if arguments.quick else (arguments.rounds, MIX_ROUNDS, arguments.seconds)
    )
    out = results_folder(arguments.out, official=not arguments.quick)
    try:
        fitted = _fit(rounds, load_s, out / "request-costs.yaml")
        costs = {BROUGHT: load_request_costs(None).plain, FITTED: fitted}
        errors = [
            error
            for threads in THREADS
            for error in _errors(costs, _named(threads), _judged(threads, mix_rounds, load_s))
        ]
    except (CalibrationError, OSError) as error:
        print(f"bench-request-cost: {error}", file=sys.stderr)
        return 2
    _report(errors, out)
    return 0


def _fit(rounds: int, load_s: float, file: Path) -> RequestCosts:
    """Costs of a broker of the first kind, over TLS too; `file` holds them."""
    here = machine()
    threads = f"{_named(THREADS[0])} threads, {here['processor']}, {here['cores']} cores"
    note = f"Kafka {ensure_kafka().version}, {threads}"
    with _broker(THREADS[0]) as (plain, over_tls):
        text, found, tables = calibrate(plain, over_tls, load_s=load_s, rounds=rounds, measured=note)
    file.write_text(text, encoding="utf-8")
    print(fit_table(found, tables.plain), file=sys.stderr)
    return tables.plain


def _judged(threads: tuple[int, int], rounds: int, load_s: float) -> list[DrivenMix]:
    with _broker(threads) as (plain, _):
        print(f"a broker of {_named(threads)} threads", file=sys.stderr, flush=True)
        return Calibration(plain, load_s).drive_mixes(rounds)


@contextmanager
def _broker(threads: tuple[int, int]) -> Iterator[tuple[Target, Target]]:
    """A new one, plain and over TLS."""
    io, network = threads
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        certificate, key = write_certificate(folder, KEYS[0])
        keystore = folder / "keystore.pem"
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        jmx_port = free_port()
        node = stack.enter_context(
            KafkaNode(
                native=["SSL"],
                tls=BrokerTls(keystore, certificate),
                config={"num.io.threads": str(io), "num.network.threads": str(network)},
                heap="1g",
                java_options=jmx_options(jmx_port),
                quick_jit=False,
            )
        )
        command, url = tuple(tool_command(node.dist, "jmx")), jmx_url(jmx_port)
        context = ssl.create_default_context(cafile=str(certificate))
        yield (
            Target(*node.address("PLAINTEXT"), command, url),
            Target(HOST, node.address("SSL")[1], command, url, context),
        )


def _errors(costs: Mapping[str, RequestCosts], threads: str, driven: Sequence[DrivenMix]) -> Iterator[Error]:
    for name, each in costs.items():
        by_mix: dict[str, list[MixResult]] = {}
        for mix in driven:
            by_mix.setdefault(mix.name, []).append(mix.judged(each))
        for mix_name, results in by_mix.items():
            broker_us = 1e3 * sum(x.measured_ms for x in results) / sum(x.requests for x in results)
            yield Error(name, threads, mix_name, tuple(sorted(x.error for x in results)), broker_us)


def _named(threads: tuple[int, int]) -> str:
    return f"{threads[0]} + {threads[1]}"


def _report(errors: Sequence[Error], out: Path) -> None:
    console = wide_console()
    summary: dict[str, object] = {"goal": WITHIN}
    for costs in (BROUGHT, FITTED):
        table = Table(title=f"Error of the costs {costs}: median of the rounds, and their range")
        table.add_column("mix")
        for threads in THREADS:
            table.add_column(f"{_named(threads)} threads", justify="right")
        own = [error for error in errors if error.costs == costs]
        for mix in dict.fromkeys(error.mix for error in own):
            table.add_row(mix, *(_cell(error) for error in own if error.mix == mix))
        console.print(table)
        key = "brought" if costs == BROUGHT else "fitted"
        for pace in ("flat out", "paced"):
            middles = [abs(error.middle) for error in own if error.mix.endswith(pace)]
            name = f"{key}_{pace.replace(' ', '_')}"
            summary[f"{name}_within"] = f"{sum(middle <= WITHIN for middle in middles)} of {len(middles)}"
            summary[f"{name}_median_error"] = round(median(middles), 3)
            summary[f"{name}_largest_error"] = round(max(middles), 3)
    content = {"summary": summary, "machine": machine(), "errors": [error.as_json() for error in errors]}
    write_json(out / "request-cost.json", content)
    _plot(errors, out / "request-cost.png")
    console.print(
        f"written: {shlex.quote(str(out / 'request-cost.json'))}, request-cost.png, request-costs.yaml"
    )
    print_last_line(summary)


def _cell(error: Error) -> str:
    low, high = error.rounds[0], error.rounds[-1]
    return f"{error.middle:+.0%} ({low:+.0%} … {high:+.0%}), {error.broker_us:.0f} µs"


def _plot(errors: Sequence[Error], path: Path) -> None:
    plot, axes = figure(1, 2)
    for axis, costs in zip(axes, (BROUGHT, FITTED), strict=True):
        own = [error for error in errors if error.costs == costs]
        mixes = list(dict.fromkeys(error.mix for error in own))
        axis.axvspan(-WITHIN * 100, WITHIN * 100, color="tab:green", alpha=0.15, label="the goal")
        for place, threads in enumerate(map(_named, THREADS)):
            of_it = [error for error in own if error.threads == threads]
            rows = [mixes.index(error.mix) + 0.2 * (place - 1) for error in of_it]
            middles = [100 * error.middle for error in of_it]
            spread = (
                [100 * (error.middle - error.rounds[0]) for error in of_it],
                [100 * (error.rounds[-1] - error.middle) for error in of_it],
            )
            axis.errorbar(middles, rows, xerr=spread, fmt="o", capsize=2, label=f"{threads} threads")
        axis.set_yticks(range(len(mixes)), mixes)
        axis.invert_yaxis()
        axis.set_xlabel("error of the costs, % of the broker's figure")
        axis.set_title(f"Costs {costs}")
        axis.grid(axis="x", alpha=0.3)
    axes[0].legend(fontsize=8)
    save(plot, path)


if __name__ == "__main__":
    sys.exit(main())
