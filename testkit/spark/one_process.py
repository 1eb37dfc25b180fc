"""How the suite is split among processes: the tests that share a Spark go to one of them, and one that ends
its process is not tried again.

Of 1,230 s of processor time that the suite took in four processes, four Sparks had 308, most of
it on their way to warm.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK_FOLDER: Final = "tests/recalibration/"


def uses_spark(test: str) -> bool:
    """`test`: its id, as pytest tells it."""
    return test.startswith(SPARK_FOLDER)


class OneSparkScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but that folder stays together, and a test that hangs does so once, not
    as often as there may be new processes."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK_FOLDER if uses_spark(nodeid) else super()._split_scope(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        files = self.assigned_work.pop(node)
        running = next((tests for tests in files.values() if not all(tests.values())), None)
        if running is None:
            return None
        ended_it: str = next(test for test, is_done in running.items() if not is_done)
        running[ended_it] = True
        self.workqueue.update({file: tests for file, tests in files.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return ended_it
