"""Where the suite is split among processes, the tests that share a Spark go to one of them.

Of 1,230 s of processor time that the suite took in four processes, four Sparks had 308, most of
it on their way to warm.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadFileScheduling

SPARK_FOLDER: Final = "tests/recalibration/"


def uses_spark(test: str) -> bool:
    """`test`: its id, as pytest tells it."""
    return test.startswith(SPARK_FOLDER)


class OneSparkScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """As `--dist loadfile`, but that folder stays together."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK_FOLDER if uses_spark(nodeid) else super()._split_scope(nodeid)
