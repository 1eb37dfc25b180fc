"""One night at a time in a folder, wherever that is: by the file system's lock, or by the object store's.

The night's output is locked for as long as it runs, and the log for as long as its files are compacted:
nights with outputs of their own may read one log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from sluice.recalibration.spark.objects import CannotCreateOnceError, create_once
from sluice.recalibration.state.object_lock import object_lock
from sluice.recalibration.state.run_lock import AnotherNightError, NoLocksError, run_lock

_STEP_S: Final = 1.0


@contextmanager
def one_night(
    spark: SparkSession, folder: str, tell: Callable[[str], None], *, wait_s: float = 0.0
) -> Iterator[bool]:
    """Held while the body runs; False: nothing can be locked there, and that was told.

    `folder` is a path or a URI; it is made if it is missing. Raises AnotherNightError if another has had it
    for `wait_s`, OSError if nothing can be written there.
    """
    until_s = time.monotonic() + wait_s
    is_told = False
    with ExitStack() as held:
        while True:
            try:
                is_locked = _lock(held, spark, folder, tell)
                break
            except AnotherNightError as error:
                if wait_s and not is_told:
                    tell(f"waiting {wait_s:g} s at most: {error}")
                    is_told = True
                if time.monotonic() >= until_s:
                    raise
                time.sleep(_STEP_S)
        yield is_locked


def _lock(held: ExitStack, spark: SparkSession, folder: str, tell: Callable[[str], None]) -> bool:
    try:
        if "://" in folder:
            held.enter_context(object_lock(folder, partial(create_once, spark)))
        else:
            held.enter_context(run_lock(folder))
    except CannotCreateOnceError as error:
        tell(f"not locked: {folder} has no objects that are made once; run no second night there ({error})")
        return False
    except NoLocksError as error:
        tell(f"not locked: {folder} is on a file system without locks; run no second night there ({error})")
        return False
    return True
