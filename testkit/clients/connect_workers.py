"""Kafka Connect and MirrorMaker, each a worker process that can be killed and started again in its place.

Exactly once: a worker's tasks produce in transactions, which also hold the offsets of what they have read.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from testkit.kafka.added_jars import CONNECT
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import java_command
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_port, give_back, keep

READY_WITHIN_S: Final = 90.0
_TASKS: Final = 4
_BATCH_RECORDS: Final = 50
"""of each transaction, so that there are many"""
_STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
_EXACTLY_ONCE: Final = {
    "exactly.once.source.support": "enabled",
    # A killed worker's tasks would else wait for it for five minutes.
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    # For so long its successor waits for what a killed worker has left open, at any broker.
    "producer.transaction.timeout.ms": "20000",
}
_ONE_REPLICA: Final = {
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "1",
}


class Worker:
    """The process, its REST port and its log; ends with the `with` block."""

    main_class: str

    def __init__(self, dist: KafkaDist, folder: Path, configuration: Mapping[str, str]) -> None:
        self._dist = CONNECT.beside(dist)
        self.port = free_port()
        keep([self.port])
        self.log = folder / "worker.log"
        self._file = folder / "worker.properties"
        properties = {**configuration, "listeners": f"http://{LOOPBACK}:{self.port}"}
        self._file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._end()
        give_back([self.port])

    def start(self) -> None:
        """Begin, or begin again; it needs a while until it works."""
        command = java_command(self._dist, self.main_class, [str(self._file)], heap="384m")
        self._process = GuardedProcess(command, output=self.log)

    def kill(self) -> None:
        """SIGKILL: its transactions stay open, its group waits for it."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def check_runs(self) -> None:
        """AssertionError with the log's tail if the process has ended."""
        assert self._process is not None
        code = self._process.exit_code()
        assert code is None, f"it ended with exit code {code}:\n{log_tail(self.log)}"

    def await_that(self, seen: Callable[[], bool], what: str, within_s: float = READY_WITHIN_S) -> None:
        """Wait while it runs; AssertionError with the log's tail if it cannot be seen in time."""
        deadline_s = time.monotonic() + within_s
        while not seen():
            self.check_runs()
            assert time.monotonic() < deadline_s, f"not {what} in {within_s} s:\n{log_tail(self.log)}"
            time.sleep(0.3)

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class ConnectWorker(Worker):
    """A worker of Kafka Connect in distributed mode."""

    main_class = "org.apache.kafka.connect.cli.ConnectDistributed"

    def __init__(self, dist: KafkaDist, folder: Path, bootstrap: str, name: str) -> None:
        super().__init__(
            dist,
            folder,
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "key.converter": _STRINGS,
                "value.converter": _STRINGS,
                "config.storage.topic": f"{name}-config",
                "offset.storage.topic": f"{name}-offsets",
                "status.storage.topic": f"{name}-status",
                **_ONE_REPLICA,
                **_EXACTLY_ONCE,
            },
        )

    def add_file_source(self, name: str, file: Path, topic: str) -> None:
        """A connector whose one task brings the lines of a file."""
        configuration = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "exactly.once.support": "required",
            "file": str(file),
            "topic": topic,
            "batch.size": str(_BATCH_RECORDS),
        }
        # 404 until it serves, 409 while its group rebalances.
        self.await_that(
            lambda: self._ask("PUT", f"connectors/{name}/config", configuration) is not None, "configured"
        )

    def task_states(self, names: Sequence[str]) -> list[str]:
        """The states of all tasks of these connectors."""
        found = [self._ask("GET", f"connectors/{name}/status") or {"tasks": []} for name in names]
        return [task["state"] for status in found for task in status["tasks"]]

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.port}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        return None


class MirrorMaker(Worker):
    """MirrorMaker 2 as a process of its own, from one cluster "a" to one "b"; a.TOPIC is the copy."""

    main_class = "org.apache.kafka.connect.mirror.MirrorMaker"

    def __init__(self, dist: KafkaDist, folder: Path, bootstraps: tuple[str, str], topic: str) -> None:
        source, target = bootstraps
        super().__init__(
            dist,
            folder,
            {
                "clusters": "a, b",
                "a.bootstrap.servers": source,
                "b.bootstrap.servers": target,
                "a->b.enabled": "true",
                "a->b.topics": topic,
                "b->a.enabled": "false",
                "emit.heartbeats.enabled": "false",
                "tasks.max": str(_TASKS),
                "a.consumer.max.poll.records": str(_BATCH_RECORDS),
                # Without it the workers of a dedicated process cannot ask each other to fence.
                "dedicated.mode.enable.internal.rest": "true",
                "replication.factor": "1",
                "checkpoints.topic.replication.factor": "1",
                "offset-syncs.topic.replication.factor": "1",
                **_ONE_REPLICA,
                **{f"b.{name}": value for name, value in _EXACTLY_ONCE.items()},
            },
        )
