"""One night at a time in an object store."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import boto3
import pytest
from botocore.exceptions import ClientError

from sluice.recalibration.state.object_lock import object_lock
from sluice.recalibration.state.run_lock import AnotherNightError
from testkit.spark.object_store import BUCKET, ObjectStore

Create = Callable[[str, bytes], bool]


@pytest.fixture
def out(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    return f"{store.uri}/{request.node.name}"


@pytest.fixture
def create(store: ObjectStore) -> Create:
    """By AWS's own client, so that no Spark is needed."""
    environ = store.environ
    client = boto3.client(
        "s3",
        endpoint_url=environ["AWS_ENDPOINT_URL"],
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        region_name=environ["AWS_REGION"],
    )

    def made(uri: str, content: bytes) -> bool:
        try:
            client.put_object(
                Bucket=BUCKET, Key=uri.removeprefix(f"{store.uri}/"), Body=content, IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "PreconditionFailed":
                return False
            raise
        return True

    return made


def numbers(store: ObjectStore, out: str) -> list[str]:
    return store.names(f"{out.removeprefix(store.uri + '/')}/.night")


def test_a_second_night_is_told_and_the_next_may_run(store: ObjectStore, out: str, create: Create) -> None:
    with object_lock(out, create):
        with pytest.raises(AnotherNightError, match=r"another night runs here \(process \d+ on .*\)"):
            object_lock(out, create).__enter__()
        with object_lock(f"{out}-other", create):
            pass
    for _ in range(2):
        with object_lock(out, create):
            pass
    assert numbers(store, out) == ["3"], "one object is left, and no probe"


def test_whoever_finds_its_predecessor_removed_meanwhile_is_told(
    out: str, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.recalibration.state.object_lock._numbers", lambda *_: [7])
    with pytest.raises(AnotherNightError, match="another night has begun here at this moment"):
        object_lock(out, create).__enter__()


def test_of_many_at_once_one_has_it(out: str, create: Create) -> None:
    for _ in range(5):
        begin, end = Barrier(8), Barrier(8)
        told: list[str] = []

        def night(_: int, begin: Barrier = begin, end: Barrier = end, told: list[str] = told) -> None:
            begin.wait(60)
            try:
                with object_lock(out, create):
                    told.append("it is mine")
                    end.wait(60)  # held until all others have been told
            except BrokenBarrierError:
                pass  # of who broke it there is a word
            except Exception as error:
                told.append(type(error).__name__ if isinstance(error, AnotherNightError) else repr(error))
                with suppress(BrokenBarrierError):
                    end.wait(60)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(night, range(8)))
        assert sorted(told) == ["AnotherNightError"] * 7 + ["it is mine"]


def test_an_object_whose_answer_was_lost_is_ours(out: str, create: Create) -> None:
    def lost(uri: str, content: bytes) -> bool:
        return create(uri, content) and create(uri, content)

    with object_lock(out, lost), pytest.raises(AnotherNightError):
        object_lock(out, create).__enter__()


@pytest.mark.long
def test_the_lock_of_a_machine_that_died_is_taken_over_and_not_that_of_one_that_lives(
    out: str, create: Create
) -> None:
    dead = object_lock(out, create, renew_s=1_000.0)
    dead.__enter__()
    with pytest.raises(AnotherNightError):
        object_lock(out, create, stale_s=60.0).__enter__()
    time.sleep(3.0)  # the store's times are whole seconds
    with object_lock(out, create, renew_s=0.2, stale_s=2.0):
        time.sleep(6.0)
        with pytest.raises(AnotherNightError):
            object_lock(out, create, stale_s=5.0).__enter__()


def test_who_has_looked_long_ago_does_not_get_a_number_that_was_removed(
    store: ObjectStore, out: str, create: Create
) -> None:
    def slow(uri: str, content: bytes) -> bool:
        """Two nights pass between the look and this."""
        for _ in range(2):
            with object_lock(out, create):
                pass
        return create(uri, content)

    with pytest.raises(AnotherNightError):
        object_lock(out, slow).__enter__()
    assert numbers(store, out) == ["2"]
