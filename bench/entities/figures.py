"""What configured entities cost in this process: to load, in memory, to look up. Needs no broker."""

import gc
import random
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

from bench.lib.stats import Spread, spread
from sluice.quotas.files.load import load_quotas
from sluice.quotas.files.quota_file import parse_quotas, parse_quotas_in_steps
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.manager import QuotaManager

COUNTS: Final = (1, 10, 100, 1_000, 10_000)
KEYS: Final = ("producer_byte_rate", "consumer_byte_rate")
PRODUCE: Final = QuotaKind.PRODUCE
CALLS: Final = 100_000

Names = Sequence[tuple[str, str]]


@dataclass(slots=True)
class Loads:
    """What loading costs with one number of entities, each with a user, a client id and both byte rates; one
    sample a repeat."""

    count: int
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    longest_step_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one entity: what the file's limits take, its running buckets, and its remembered look-ups."""

    shown: str
    limits: float
    buckets: float
    look_ups: float

    @property
    def total(self) -> float:
        return self.limits + self.buckets + self.look_ups


def names_of(count: int) -> Names:
    return [(f"user-{index:05}", f"app-{index:05}") for index in range(count)]


def quota_file(names: Names, *, client_ids: bool = True, keys: Sequence[str] = KEYS) -> str:
    """A quota file as people write them; no two limits are the same number."""
    numbers = random.Random(len(names))
    lines = ["quotas:"]
    for user, client_id in names:
        lines.append(f"  - user: {user}")
        if client_ids:
            lines.append(f"    client-id: {client_id}")
        lines += [f"    {key}: {numbers.randrange(10**6, 10**9)}" for key in keys]
    return "\n".join(lines) + "\n"


def load(loads: Loads) -> None:
    """One repeat: the file from the disk; then again in a reload's steps, of which the longest counts."""
    text = quota_file(names_of(loads.count))
    gc.collect()
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        cpu, wall = thread_time(), perf_counter()
        load_quotas(Path(file.name))
        loads.wall_s.append(perf_counter() - wall)
        loads.cpu_s.append(thread_time() - cpu)
    gc.collect()
    gc.freeze()  # as the server does at its start: what lives is not walked again
    steps, longest = parse_quotas_in_steps(text, "quotas.yaml"), 0.0
    while True:
        begun = thread_time()
        ended = next(steps, True)
        longest = max(longest, thread_time() - begun)
        if ended:
            break
    gc.unfreeze()
    loads.longest_step_ms.append(longest * 1e3)


def memory(count: int, shown: str, *, client_ids: bool, keys: Sequence[str]) -> Memory:
    """Traced by the allocator, so the same in each repeat."""
    names = names_of(count)
    text = quota_file(names, client_ids=client_ids, keys=keys)
    kinds = (PRODUCE, QuotaKind.FETCH)[: len(keys)]
    parse_quotas(text, "quotas.yaml")
    gc.collect()
    tracemalloc.start()
    limits = parse_quotas(text, "quotas.yaml")
    gc.collect()
    loaded = tracemalloc.get_traced_memory()[0]
    manager = QuotaManager(limits)
    for user, client_id in names:
        for kind in kinds:
            manager.sensor(kind, user, client_id, 0.0)
    with_all = tracemalloc.get_traced_memory()[0]
    manager.reload(limits, 0.0)  # forgets what is remembered, keeps the buckets
    gc.collect()
    running = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Memory(shown, loaded / count, (running - loaded) / count, (with_all - running) / count)


class LookUps:
    """What a connection's look-up of its bucket costs, in µs of processor time, one sample a repeat."""

    def __init__(self, count: int) -> None:
        names = names_of(count)
        self._limits = parse_quotas(quota_file(names), "quotas.yaml")
        self._manager = QuotaManager(self._limits)
        self._names = random.Random(count).sample(names, count)
        self._one = [self._names[0]] * CALLS
        self.empty_call: list[float] = []
        self.cached: list[float] = []
        """of the same name again and again, as a connection that reconnects"""
        self.cached_any: list[float] = []
        """of all names in any order"""
        self.cold: list[float] = []
        """not remembered, of a bucket that runs: the first after a reload"""
        _us_each(self._manager.sensor, self._names)

    def repeat(self) -> None:
        sensor = self._manager.sensor
        self.empty_call.append(_us_each(_nothing, self._one))
        self.cached.append(_us_each(sensor, self._one))
        self.cached_any.append(_us_each(sensor, self._names))
        self._manager.reload(self._limits, 0.0)
        self.cold.append(_us_each(sensor, self._names))

    def spreads(self) -> dict[str, Spread]:
        return {
            "an empty call, for scale": spread(self.empty_call),
            "again, one name": spread(self.cached),
            "again, all names in any order": spread(self.cached_any),
            "the first after a reload": spread(self.cold),
        }


def _us_each(call: Callable[[QuotaKind, str, str, float], object], names: Names) -> float:
    """Without the loop itself."""
    begun = thread_time()
    for user, client_id in names:
        call(PRODUCE, user, client_id, 0.0)
    ended = thread_time()
    for _user, _client_id in names:
        pass
    return (2 * ended - begun - thread_time()) / len(names) * 1e6


def _nothing(_kind: QuotaKind, _user: str, _client_id: str, _now_ms: float) -> None:
    return None
