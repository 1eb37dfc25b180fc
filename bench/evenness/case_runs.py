"""The cases by name, each run on Sluice or on the broker's own quota, and what the last line says of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.evenness.case_figures import CaseResult
from bench.evenness.case_rig import CaseRig, open_case_rig
from bench.evenness.fetch_cases import fetch_50_small, fetch_longest_wait, fetch_reconnect, fetch_useful
from bench.evenness.produce_cases import overload, small_beside_large, told
from testkit.proxy.proxies import SLUICE

LEAKED: Final = "broker_sessions_leaked"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: how it is run, for how long at most in a full run, and its key in the last line."""

    run: Callable[[CaseRig, str, float], Awaitable[CaseResult]]
    key: str
    client_ids: tuple[str, ...]
    most_s: float = 60.0


CASES: Final[Mapping[str, Case]] = {
    "fetch_50": Case(fetch_50_small, "fetch_50_small_vs_rate", ("fetch_50", "fetch_50_idle")),
    "fetch_reconnect": Case(fetch_reconnect, "fetch_reconnect_vs_rate", ("fetch_reconnect",), 30.0),
    "fetch_useful": Case(fetch_useful, "fetch_useful_share", tuple(f"fetch_useful_{x}" for x in range(4))),
    "fetch_wait": Case(
        fetch_longest_wait,
        "fetch_longest_wait_rounds",
        ("fetch_wait_consumers", "fetch_wait_partitions"),
        30.0,
    ),
    "small": Case(small_beside_large, "small_beside_large_p99_s", ("small_beside_large",), 30.0),
    "overload": Case(
        overload, "overload_peak_vs_bound", ("overload_20", "overload_50", "overload_burst"), 43.0
    ),
    "told": Case(told, "told_vs_waited", ("told", "fetch_told"), 40.0),
}


@dataclass(frozen=True, slots=True)
class CaseRun:
    """All cases that were run: case → side → result; and the broker's fetch sessions behind them."""

    results: Mapping[str, Mapping[str, CaseResult]]
    sessions: Mapping[str, int]


async def run_cases(names: Sequence[str], sides: Sequence[str], seconds: float) -> CaseRun:
    """Runs these cases one after the other. Raises BenchError when one cannot be measured."""
    results: dict[str, dict[str, CaseResult]] = {}
    client_ids = [client_id for name in names for client_id in CASES[name].client_ids]
    async with open_case_rig(client_ids) as rig:
        before = rig.sessions()
        for name in names:
            case = CASES[name]
            results[name] = {}
            for side in sides:
                print(f"  {name}, {side}", flush=True)
                result = await case.run(rig, side, min(seconds, case.most_s))
                print(f"  {name}, {side}: {result.figure:.3f}", flush=True)
                results[name][side] = result
        after = rig.sessions()
        sessions = {
            LEAKED: after - before - rig.abandoned,
            "left_without_closing": rig.abandoned,
            "answers_that_java_would_not_take": rig.misunderstood,
        }
    return CaseRun(results, sessions)


def case_summary(run: CaseRun) -> dict[str, object]:
    """What the last line says: Sluice's figures; the broker's own, where measured, with `native_` before."""
    summary: dict[str, object] = {}
    for name, sides in run.results.items():
        for side, result in sides.items():
            prefix = "" if side == SLUICE else f"{side}_"
            summary[prefix + CASES[name].key] = round(result.figure, 4)
    for key, of in (("overload_cv", "cv"), ("native_overload_cv", "native_cv")):
        for side, result in run.results.get("overload", {}).items():
            if side == SLUICE:
                summary[key] = _rounded(result.detail[of])
    for side, result in run.results.get("told", {}).items():
        if side == SLUICE:
            summary["fetch_told_vs_waited"] = _rounded(result.detail["fetch_told_vs_waited"])
            summary["fetch_told_most_s"] = _rounded(result.detail["fetch_told_most_s"])
    for side, result in run.results.get("fetch_50", {}).items():
        if side == SLUICE:
            parts = (result.detail["started_together"], result.detail["idle_and_then_data"])
            beyond = [x["bytes_beyond"] for x in parts if isinstance(x, dict)]
            summary["fetch_50_small_bytes_beyond"] = round(max(beyond))
    summary[LEAKED] = run.sessions[LEAKED]
    return summary


def _rounded(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value
