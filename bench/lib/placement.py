"""Where benchmark and proxies run on the machine's cores. Source: sched(7), sched_setaffinity(2)."""

import os
from enum import Enum


class Placement(Enum):
    """FREE: as the scheduler likes, which is what who runs the proxy gets.

    ONE_CORE: load, fake broker and proxy take turns on one core, each until it has nothing left to do.

    Then a proxy always finds all the work there is, as one does that is saturated, however slow the load
    generator; without it a fast proxy wakes up for every single request, and pays for that, not for its work.
    SCHED_BATCH keeps a woken process from interrupting the running one, which would bring that back.
    TWO_CORES: load and fake broker on one core, the proxy on another, as on a machine that is half idle.
    """

    FREE = "free"
    ONE_CORE = "one-core"
    TWO_CORES = "two-cores"

    def __str__(self) -> str:
        return self.value


def place_benchmark(placement: Placement) -> None:
    """Sets this process, and what it starts from now on, on the cores for the benchmark itself."""
    os.sched_setaffinity(0, _cores() if placement is Placement.FREE else _cores()[-1:])
    policy = os.SCHED_BATCH if placement is Placement.ONE_CORE else os.SCHED_OTHER
    os.sched_setscheduler(0, policy, os.sched_param(0))


def place_proxy(placement: Placement, pid: int) -> None:
    """Sets a proxy, all its threads, on its core; else it is there by inheritance."""
    if placement is Placement.TWO_CORES:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {_cores()[0]})


_ALL_CORES = sorted(os.sched_getaffinity(0))


def _cores() -> list[int]:
    return _ALL_CORES
