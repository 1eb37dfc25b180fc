"""One mutant against tests, in a process forked for it, which ends with the first that fails.

A test that takes far more processor time than it did without the mutant is a loop without an end: the system
ends the process. So does the memory that a mutant may take.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Sequence
from typing import Final, NoReturn

import pytest

from tools.mutants.mutant import Mutant, NotApplicable, Process

SURVIVED: Final = 0
KILLED: Final = 1
NOT_APPLICABLE: Final = 2
_LEAST_CPU_S: Final = 5.0
_CPU_FACTOR: Final = 10.0
_MORE_MEMORY_BYTES: Final = 2 * 2**30


class _Watch:
    """As a plugin: has a test failed?"""

    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed


def run(
    process: Process, mutant: Mutant | None, items: Sequence[pytest.Item], seconds: Sequence[float], told: int
) -> NoReturn:
    """In the child: ends the process with one of the codes above. `told`: the file descriptor on which the
    number of each test is written as it begins."""
    code = NOT_APPLICABLE
    try:
        _be_quiet_and_small()
        if mutant is not None:
            process.apply(mutant)
        code = _first_failure(items, seconds, told)
    except NotApplicable:
        pass
    except BaseException:
        code = KILLED
    finally:
        os._exit(code)


def _be_quiet_and_small() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    most = pages * resource.getpagesize() + _MORE_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _first_failure(items: Sequence[pytest.Item], seconds: Sequence[float], told: int) -> int:
    if not items:
        return SURVIVED
    watch = _Watch()
    plugins = items[0].config.pluginmanager
    plugins.register(watch)
    plugins.unregister(name="terminalreporter")
    for number, item in enumerate(items):
        os.write(told, number.to_bytes(4, "big"))
        signal.setitimer(signal.ITIMER_PROF, max(_LEAST_CPU_S, _CPU_FACTOR * seconds[number]))
        # No next item: what fixtures share is taken down, and made again, by each test.
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        if watch.failed:
            return KILLED
    return SURVIVED
