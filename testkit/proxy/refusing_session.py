"""Sessions under a producer_byte_rate with `over_budget: refuse`, and what they answer."""

from __future__ import annotations

from typing import Any, Final

from sluice.protocol.apis import PRODUCE
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.usage.records import Recorder
from testkit.frames.frames import decoded
from testkit.proxy.playbook import Shell

BUDGET_MS: Final = 2_000.0
USERS: Final = QuotaEntity(DEFAULT, None)


def limits_of(rate: int = 1_000, *, refuses: bool = True, shadow: bool = False, **more: float) -> QuotaLimits:
    return QuotaLimits(
        [(USERS, {"producer_byte_rate": rate, **more})],
        shadow={USERS: ["producer_byte_rate"]} if shadow else {},
        refusing=[USERS] if refuses else [],
    )


def shells(count: int, limits: QuotaLimits | None = None) -> list[Shell]:
    """Connections of one user."""
    ids = ProducerIds(ProducerIdSettings(forced_after_ms=3_600_000.0))
    shared = SharedState(QuotaManager(limits or limits_of()), Recorder(), producer_ids=ids)
    policy = SessionPolicy(delays=DelayLimits(answer_budget_ms=BUDGET_MS))
    return [Shell(Session(shared, policy, "10.0.0.1")) for _ in range(count)]


def refusals_of(shell: Shell, version: int = 9) -> list[tuple[int, int, str]]:
    """(correlation id, throttle_time_ms, message) of each refusal that went to the client, and no more."""
    found = []
    while shell.to_client:
        size = 4 + int.from_bytes(shell.to_client[:4], "big")
        frame: Any = decoded("response", PRODUCE, version, bytes(shell.to_client[:size]))
        del shell.to_client[:size]
        for topic in frame.body["responses"]:
            for partition in topic["partitionResponses"]:
                assert (partition["errorCode"], partition["baseOffset"]) == (19, -1)
        message = frame.body["responses"][0]["partitionResponses"][0].get("errorMessage", "")
        found.append((frame.header["correlationId"], frame.body["throttleTimeMs"], message))
    return found
