"""Every known way round a limit, tried as an attack: at Sluice, and the same at the broker's own quota.

    python -m bench.bypass [--seconds 60] [--only fetch_50 …] [--sides sluice native]

A real Kafka, a real Sluice, attackers that write their own frames. Attacks that are found later are added
here. The last line of standard output is one JSON object. What is stated as bound: docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvloop
from confluent_kafka import KafkaException

from bench.bypass import fetches, produces, requests
from bench.bypass.outcome import FETCH, OTHER, PRODUCE, Attack, Outcome, Transactions
from bench.bypass.parts import Parts
from bench.bypass.report import report
from bench.bypass.rig import BypassRig, open_bypass_rig
from bench.bypass.transactions import transactions
from bench.lib.light_rig import NATIVE
from bench.lib.results import results_folder
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError
from testkit.proxy.proxies import SLUICE

SECONDS: Final = 60.0
TRANSACTIONS_SECONDS: Final = 600.0
TRANSACTIONS: Final = "transactions"
ONE_BATCH: Final = "rate, one batch, and 21 B a client each 3 s"
ONE_A_SECOND: Final = "max(percentage, 1 request a client and second)"
OUTSTANDING: Final = "max(rate, bytes outstanding ÷ 8 s)"


@dataclass(frozen=True, slots=True)
class Way:
    """One way round a limit."""

    run: Callable[[BypassRig, str, float], Awaitable[Outcome]]
    limits: str | None  # whose limits its client ids have (rig.LIMITS); None: a user's
    kind: str
    shown: str
    bound: str
    counts_for_fetch: bool = False


def _many(consumers: int, attack: str) -> Way:
    run = partial(fetches.many, consumers=consumers, attack=attack)
    return Way(run, "small", FETCH, f"{consumers} consumers", ONE_BATCH, counts_for_fetch=True)


WAYS: Final[Mapping[str, Way]] = {
    "fetch_50": _many(50, "fetch_50"),
    "fetch_200": _many(200, "fetch_200"),
    "fetch_reconnecting": Way(
        fetches.reconnecting,
        "flat",
        FETCH,
        "a new connection for each Fetch",
        ONE_BATCH,
        counts_for_fetch=True,
    ),
    "fetch_group": Way(
        fetches.of_a_group,
        "middle",
        FETCH,
        "20 group connections that fetch",
        ONE_BATCH,
        counts_for_fetch=True,
    ),
    "share_fetch": Way(
        fetches.shared, "middle", FETCH, "10 share consumers", "max(rate, their max_bytes ÷ 2 s)"
    ),
    "produce_reconnecting": Way(
        produces.reconnecting, "flat", PRODUCE, "a new connection for each Produce", OUTSTANDING
    ),
    "produce_leaving": Way(
        produces.leaving, "flat", PRODUCE, "acks=0 and gone", "max(rate, 16 MiB left behind ÷ 8 s)"
    ),
    "produce_abandoning": Way(
        produces.abandoning, "flat", PRODUCE, "gone while held, and again", OUTSTANDING
    ),
    "produce_leaving_much": Way(
        produces.leaving_much, "flat", PRODUCE, "2.5 MB sent and gone, and again", OUTSTANDING
    ),
    "produce_leaving_many": Way(
        partial(produces.leaving_many, acks=0),
        "middle",
        PRODUCE,
        "8 requests with acks=0, gone, and again",
        OUTSTANDING,
    ),
    "produce_leaving_many_acked": Way(
        partial(produces.leaving_many, acks=-1), "middle", PRODUCE, "8 requests, gone, and again", OUTSTANDING
    ),
    "produce_announcing": Way(
        produces.announcing, "middle", PRODUCE, "20 MB announced, and gone after 300 B", OUTSTANDING
    ),
    "produce_group": Way(
        produces.of_a_group,
        "middle",
        PRODUCE,
        "20 group connections that produce",
        "max(rate, bytes outstanding ÷ 2 s)",
    ),
    "tokens": Way(
        produces.with_tokens,
        None,
        PRODUCE,
        "delegation tokens, one made past Sluice",
        "the owner's rate, and once for those not known",
    ),
    "unknown": Way(
        produces.without_a_name,
        None,
        PRODUCE,
        "bearer tokens with two subjects",
        "the lowest rate of any user",
    ),
    "create_topics": Way(
        requests.topics, "mutations", OTHER, "CreateTopics v4 on new connections", "burst of 22, rate"
    ),
    "request_time": Way(
        requests.request_time,
        "requests",
        OTHER,
        "Metadata on new connections",
        ONE_A_SECOND,
    ),
    "request_time_leaving": Way(
        requests.request_time_leaving, "requests", OTHER, "Metadata, and gone after 4 ms", ONE_A_SECOND
    ),
}


async def measure_all(
    arguments: argparse.Namespace,
) -> tuple[list[Attack], dict[str, Transactions]]:
    """Every chosen attack on every chosen side, one at a time. Raises BenchError when one cannot be made.

    Sluice's come first, all of them: what one leaves at the broker whose own quota alone holds it back
    (thousands of connections, a heap without room) would be counted for those at Sluice behind it.
    """
    chosen = arguments.only or [*WAYS, TRANSACTIONS]
    ways = {name: way for name, way in WAYS.items() if name in chosen}
    attacks: list[Attack] = []
    if ways:
        limits = {name: way.limits for name, way in ways.items() if way.limits is not None}
        async with open_bypass_rig(limits) as rig:
            came_to = {
                (name, side): await _attack(rig, name, way, side, arguments)
                for side in arguments.sides
                for name, way in ways.items()
            }
        attacks = [
            _of(name, way, came_to.get((name, SLUICE)), came_to.get((name, NATIVE)))
            for name, way in ways.items()
        ]
    found: dict[str, Transactions] = {}
    if TRANSACTIONS in chosen:
        parts, seconds = arguments.parts, arguments.transactions_seconds
        for side in arguments.sides:
            found[side] = parts.transactions(TRANSACTIONS, side, seconds) or await transactions(side, seconds)
            parts.keep(TRANSACTIONS, side, seconds, found[side])
            print(f"  {TRANSACTIONS}, {side}: survived {found[side].survived}, {found[side].how}", flush=True)
    return attacks, found


async def _attack(
    rig: BypassRig, name: str, way: Way, side: str, arguments: argparse.Namespace
) -> Outcome | str:
    """What it comes to; at the broker's own quota perhaps the broker's end, in words."""
    print(f"  {name}, {side}", flush=True)
    one: Outcome | str | None = arguments.parts.outcome(name, side, arguments.seconds)
    if one is None:
        try:
            one = await way.run(rig, side, arguments.seconds)
        except (EOFError, OSError, KafkaException, BenchError) as error:
            said = rig.node.log_tail(20)
            one = await rig.revive()
            if one is None or side != NATIVE:
                raise BenchError(
                    f"{name}, {side}: {error!r}; the broker {one or 'lives'}, its log:\n{said}"
                ) from error
    arguments.parts.keep(name, side, arguments.seconds, one)
    told = (
        f"the broker {one}"
        if isinstance(one, str)
        else f"{one.vs_limit:.2f} of the limit, {one.vs_bound:.2f} of the bound"
    )
    print(f"  {name}, {side}: {told}", flush=True)
    return one


def _of(name: str, way: Way, sluice: Outcome | str | None, native: Outcome | str | None) -> Attack:
    """The attack with what came of it on each side; None: not tried there."""
    return Attack(
        name,
        way.shown,
        way.kind,
        way.bound,
        sluice if isinstance(sluice, Outcome) else None,
        native if isinstance(native, Outcome) else None,
        way.counts_for_fetch,
        native if isinstance(native, str) else "",
    )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.bypass", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help=f"length of each attack ({SECONDS:.0f})")
    parser.add_argument(
        "--transactions-seconds",
        type=float,
        help=f"length of the attack by transactions ({TRANSACTIONS_SECONDS:.0f}; with --seconds: those)",
    )
    parser.add_argument("--only", nargs="+", choices=[*WAYS, TRANSACTIONS], help="only these attacks")
    parser.add_argument("--sides", nargs="+", choices=[SLUICE, NATIVE], default=[SLUICE, NATIVE])
    parser.add_argument(
        "--resume", action="store_true", help="take what earlier runs of the last hours have measured"
    )
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    arguments.full = not (arguments.seconds or arguments.only) and len(arguments.sides) > 1
    if arguments.transactions_seconds is None:
        arguments.transactions_seconds = arguments.seconds or TRANSACTIONS_SECONDS
    arguments.seconds = arguments.seconds or SECONDS
    arguments.parts = Parts(results_folder(None, official=False) / "bypass-parts", resumes=arguments.resume)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    try:
        attacks, found = uvloop.run(measure_all(arguments))
    except (BenchError, KafkaNodeError, KafkaDistError) as error:
        print(f"bench-bypass: {error}", file=sys.stderr)
        return 2
    report(attacks, found, arguments.seconds, results_folder(arguments.out, official=arguments.full))
    return 0


if __name__ == "__main__":
    sys.exit(main())
