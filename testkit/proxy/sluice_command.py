"""The command `sluice`, called in the tests' own process, and the files of its folder."""

from __future__ import annotations

from typing import Protocol

CONFIG = """\
listeners:
  - {name: clients, bind_port: 9092, upstream_host: kafka, upstream_port: 19092}
quotas: {file: quotas.yaml}
"""
QUOTAS = """\
quotas:
  - user: alice
    client-id: app-1
    producer_byte_rate: 1048576
  - user: <default>
    producer_byte_rate: 5000
"""


class Sluice(Protocol):
    def __call__(
        self, *arguments: str, stdin: str = "", environ: dict[str, str] | None = None
    ) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)"""
