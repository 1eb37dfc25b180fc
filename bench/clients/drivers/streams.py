"""Drives Kafka Streams by py4j: copies a topic exactly once (EOS v2), its group classic or KIP-1071's.

What it wrote is judged by the output topic alone; this tells when it began to close, and what its log says of
transactions that did not commit.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from bench.clients.drivers.told import Work, read_work, tell, tell_closing
from testkit.clients.client_security import Login, Security, java_security
from testkit.kafka.added_jars import STREAMS
from testkit.kafka.dist import ensure_kafka

KIP_1071: Final = "streams-kip1071"
FAILED: Final = re.compile(
    r"TaskCorruptedException|TaskMigratedException|ProducerFenced|InvalidProducerEpoch|TimeoutException"
)
POLL_S: Final = 0.5
_BYTES: Final = "org.apache.kafka.common.serialization.Serdes$ByteArraySerde"


@contextmanager
def _machine(log: Path) -> Iterator[Any]:
    kafka = STREAMS.beside(ensure_kafka())
    with log.open("w", encoding="utf-8") as output:
        port, token, process = launch_gateway(
            classpath=kafka.classpath,
            java_path=str(kafka.java),
            javaopts=[
                *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx384m"),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            ],
            enable_auth=True,
            die_on_exit=True,
            return_proc=True,
            redirect_stderr=output,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield gateway.jvm
        finally:
            gateway.shutdown()
            process.stdin.close()
            process.wait(timeout=30)


def _settings(work: Work, state: str) -> Mapping[str, object]:
    return {
        "bootstrap.servers": work.bootstrap,
        "application.id": work.group,
        "client.id": work.client_id,
        "processing.guarantee": "exactly_once_v2",
        "group.protocol": "streams" if work.client == KIP_1071 else "classic",
        "num.stream.threads": work.workers,
        "state.dir": state,
        "default.key.serde": _BYTES,
        "default.value.serde": _BYTES,
        "auto.offset.reset": "earliest",
        **java_security(Security(login=Login("PLAIN", work.user, work.password))),
    }


def run(work: Work, folder: Path) -> None:
    """Copies until all is there and committed, or the time is up."""
    log = folder / "streams.log"
    with _machine(log) as jvm:
        properties = jvm.java.util.Properties()
        for name, value in _settings(work, str(folder / "state")).items():
            properties.put(name, str(value))
        builder = jvm.org.apache.kafka.streams.StreamsBuilder()
        builder.stream(work.topic).to(work.output)
        streams = jvm.org.apache.kafka.streams.KafkaStreams(builder.build(), properties)
        streams.start()
        deadline_s = time.monotonic() + work.within_s
        state = ""
        while time.monotonic() < deadline_s and not _is_done(work):
            time.sleep(POLL_S)
            if (now := streams.state().toString()) != state:
                state = now
                tell("state", state)
            if state == "ERROR":
                tell("broke", "the application is in state ERROR")
                break
        tell_closing()
        streams.close(jvm.java.time.Duration.ofSeconds(20))
    text = log.read_text(encoding="utf-8", errors="replace")
    sys.stderr.write(text)
    for line in text.splitlines():
        if line.startswith("[") and FAILED.search(line):
            tell("commit_failed", line[:300])


_checker: list[Consumer] = []


def _is_done(work: Work) -> bool:
    """All that there is to read is committed; asked by a client of its own, which fetches nothing."""
    if not _checker:
        _checker.append(
            Consumer(
                {
                    "bootstrap.servers": work.bootstrap,
                    "client.id": f"{work.client_id}-watch",
                    "group.id": work.group,
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": work.user,
                    "sasl.password": work.password,
                    "log_level": 0,
                }
            )
        )
    asked = [TopicPartition(work.topic, partition) for partition in range(work.partitions)]
    committed = _checker[0].committed(asked, 30.0)
    return sum(max(each.offset, 0) for each in committed) >= work.records


def main() -> None:
    """Does what the command line asks for."""
    with tempfile.TemporaryDirectory(prefix="sluice-streams-") as folder:
        run(read_work(), Path(folder))
    tell("end")


if __name__ == "__main__":
    main()
