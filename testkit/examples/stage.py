"""One Kafka for all examples, made as deploy/examples/README.md says, and the proxies before it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testkit.clients.client_security import Security
from testkit.examples.broker import ExampleBroker, properties_of
from testkit.examples.proxy import EXAMPLES, ExampleProxy
from testkit.examples.readme import Sent, perf_command, run_perf, security_of
from testkit.kafka.dist import KafkaDist


@dataclass(frozen=True, slots=True)
class Stage:
    """The broker that runs, and the certificates that it was given."""

    broker: ExampleBroker
    certificates: Path

    def proxy(self, example: str) -> ExampleProxy:
        """`sluice run` with that folder's files, in a `with` block."""
        return ExampleProxy(EXAMPLES / example, self.broker.ports, certificates=self.certificates)

    def security(self, example: str, user: str) -> Security:
        """What that user's properties file says."""
        return security_of(EXAMPLES / example / f"{user}.properties", self.certificates)

    def run_readme(self, example: str, proxy: ExampleProxy) -> Sent:
        """The README's own traffic, by Kafka's own tool."""
        command = perf_command(example)
        return run_perf(self.broker, command, proxy.first_bootstrap, proxy.folder, self.certificates)


@contextmanager
def stage_of(dist: KafkaDist, folder: Path) -> Iterator[Stage]:
    """`folder`: for the certificates."""
    script = shutil.copy(EXAMPLES / "certificates.sh", folder)
    subprocess.run(["sh", script], check=True)
    properties = properties_of((EXAMPLES / "broker.properties").read_text(encoding="utf-8"))
    with ExampleBroker(dist, properties, folder / "certificates") as broker:
        yield Stage(broker, folder / "certificates")
