"""One real broker and one Sluice before it, for the cases that run alone: topics filled, sessions counted.

    native:  client → broker, with a quota for these client ids
    sluice:  client → Sluice → broker, with the same quota

Light clients only; a client id of its own for each case, so that no debt is carried over.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.evenness.cases import QUOTA_BYTES_PER_S
from bench.evenness.rig import ANSWER_BUDGET_S
from bench.lib.light_rig import NATIVE, LightRig
from bench.lib.quotas_admin import set_native_quotas
from testkit.kafka.java_tools import run_tool
from testkit.kafka.jmx import jmx_options, jmx_url
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import free_port
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy.proxies import SLUICE
from testkit.proxy.sluice_process import Door, SluiceProcess

SMALL_BYTES_PER_S: Final = 10_000
MIDDLE_BYTES_PER_S: Final = 100_000
RATES: Final[Mapping[str, int]] = {
    "": QUOTA_BYTES_PER_S,
    "-small": SMALL_BYTES_PER_S,
    "-middle": MIDDLE_BYTES_PER_S,
}
"""what a case's client ids end with → their byte rates, of producers and of consumers"""
BURST_S: Final = 1.0  # pacing.burst_s
SESSIONS: Final = "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions"
_OPEN_FILES: Final = 4096


@dataclass(slots=True)
class CaseRig(LightRig):
    """With the broker's own count of fetch sessions."""

    jmx_url: str = ""

    def sessions(self) -> int:
        """Fetch sessions in the broker's cache, by JMX."""
        where = ("--jmx-url", self.jmx_url, "--object-name", SESSIONS)
        shown = run_tool(self.node.dist, "jmx", *where, "--one-time", "--report-format", "tsv").stdout
        for line in shown.splitlines():
            key, _, value = line.partition("\t")
            if key == f"{SESSIONS}:Value":
                return int(value)
        raise BenchError(f"the broker does not tell its fetch sessions: {shown!r}")


@contextlib.asynccontextmanager
async def open_case_rig(names: Sequence[str]) -> AsyncIterator[CaseRig]:
    """Broker, its own quotas for the native clients of these cases, Sluice; all gone when the block ends."""
    raise_fd_limit(_OPEN_FILES)
    jmx_port = free_port()
    print("starting Kafka", flush=True)
    with contextlib.ExitStack() as stack:
        options = jmx_options(jmx_port)
        node = stack.enter_context(KafkaNode(heap="1g", quick_jit=False, java_options=options))
        for ending, bytes_per_s in RATES.items():
            ids = [client_id(NATIVE, name, ending) for name in names]
            set_native_quotas(node.address("PLAINTEXT")[1], ids, bytes_per_s)
        quotas: list[Mapping[str, object]] = [
            {"client-id": client_id(SLUICE, name, ending), **_limits(bytes_per_s)}
            for name in names
            for ending, bytes_per_s in RATES.items()
        ]
        door = Door("SLUICE", free_port(), node.address("PLAINTEXT"))
        pacing = {"answer_budget_s": ANSWER_BUDGET_S, "burst_s": BURST_S}
        sluice = SluiceProcess([door], quotas, pacing=pacing)
        stack.enter_context(sluice)
        yield CaseRig(node, sluice, jmx_url=jmx_url(jmx_port))


def client_id(side: str, case: str, ending: str = "") -> str:
    """A case's client id on a side; its ending says its rate (RATES)."""
    return f"{side}-{case}{ending}"


def _limits(bytes_per_s: int) -> dict[str, object]:
    return {"producer_byte_rate": bytes_per_s, "consumer_byte_rate": bytes_per_s}
