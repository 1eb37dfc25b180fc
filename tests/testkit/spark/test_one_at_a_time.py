"""A store whose conditional writes are one step: what is looked for is made before another looks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from wsgiref.types import StartResponse, WSGIEnvironment

from testkit.spark.one_at_a_time import OneAtATime


def test_of_eight_that_look_and_make_one_makes() -> None:
    there: list[int] = []

    def look_and_make(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        if there:
            return [b"there"]
        time.sleep(0.01)  # the others look meanwhile
        there.append(1)
        return [b"made"]

    app, begin = OneAtATime(look_and_make), Barrier(8)

    def put(_: int) -> list[bytes]:
        begin.wait(60)
        return list(app({}, lambda *_: lambda _: None))

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(put, range(8)))
    assert sorted(told) == [[b"made"]] + [[b"there"]] * 7
