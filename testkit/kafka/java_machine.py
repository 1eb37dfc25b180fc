"""A JVM with Kafka's jars, driven by py4j: Kafka's own classes at work, nothing compiled; a JRE will do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from testkit.kafka.dist import ensure_kafka


@contextmanager
def java_machine() -> Iterator[Any]:
    """py4j's view of it; ends with the `with` block."""
    kafka = ensure_kafka()
    port, token, process = launch_gateway(
        classpath=kafka.classpath,
        java_path=str(kafka.java),
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"],
        enable_auth=True,
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=30)
