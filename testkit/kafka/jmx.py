"""A JVM's JMX port, and the way to it without JNDI: PyPI's Java has no provider for it (jdk.naming.rmi)."""

from __future__ import annotations

from testkit.kafka.java_machine import java_machine
from testkit.processes.ports import LOOPBACK


def jmx_options(port: int) -> list[str]:
    """The JVM's options that open it, on the loopback alone."""
    remote = "-Dcom.sun.management.jmxremote"
    return [
        *(remote, f"{remote}.host={LOOPBACK}", f"{remote}.port={port}", f"{remote}.rmi.port={port}"),
        *(f"{remote}.authenticate=false", f"{remote}.ssl=false", f"-Djava.rmi.server.hostname={LOOPBACK}"),
    ]


def jmx_url(port: int) -> str:
    """The service URL of a running JVM's, with what its RMI registry has under `jmxrmi` in it."""
    with java_machine() as java:
        stub = java.java.rmi.registry.LocateRegistry.getRegistry(LOOPBACK, port).lookup("jmxrmi")
        written = java.java.io.ByteArrayOutputStream()
        java.java.io.ObjectOutputStream(written).writeObject(stub)
        encoded = java.java.util.Base64.getEncoder().encodeToString(written.toByteArray())
    return f"service:jmx:rmi:///stub/{encoded}"
