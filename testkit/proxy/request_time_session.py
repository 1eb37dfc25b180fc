"""Sessions with a limit on request time, 10 ms a request and 100 ms a second, and requests through them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager
from sluice.usage.records import Recorder
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from testkit.frames.frames import METADATA, answer, request
from testkit.proxy.playbook import Shell

TEN_MS = RequestCosts([CostRow(Coefficients(request_ms=10.0))])
UPSTREAM_MS = 50.0
ANYBODY = QuotaEntity(DEFAULT, None)


def limits_of(limits: Mapping[str, float] | None = None, **options: Any) -> QuotaLimits:
    """For each user; 10 % of a thread if nothing is said."""
    return QuotaLimits([(ANYBODY, limits or {"request_percentage": 10.0})], **options)


def shared_of(limits: QuotaLimits | None = None, pacing: Pacing = "smooth") -> SharedState:
    return SharedState(QuotaManager(limits or limits_of(), pacing=pacing), Recorder())


def policy_of(costs: RequestCosts = TEN_MS, **options: Any) -> SessionPolicy:
    return SessionPolicy(request_costs=costs, **options)


def shell_of(
    shared: SharedState | None = None, policy: SessionPolicy | None = None, *, now_ms: float = 10_000.0
) -> Shell:
    return Shell(Session(shared or shared_of(), policy or policy_of(), "10.0.0.1"), now_ms=now_ms)


def metadata(correlation_id: int = 1, client_id: str = "app") -> bytes:
    return request(METADATA, 9, correlation_id=correlation_id, client_id=client_id)


def metadata_answer(correlation_id: int = 1, body: Struct | None = None) -> bytes:
    return answer(METADATA, 9, body, correlation_id=correlation_id)


def exchange(shell: Shell, sent: bytes, answered: bytes, upstream_ms: float = UPSTREAM_MS) -> bytes:
    """One request and its answer; returns what the client was sent."""
    shell.client_sends(sent)
    shell.advance(upstream_ms)
    shell.to_client.clear()
    shell.broker_sends(answered)
    got = bytes(shell.to_client)
    shell.to_client.clear()
    return got


def spend(shell: Shell, ms: float) -> None:
    """Take this much from the bucket of the only limit."""
    shell.client_sends(metadata())
    shell.broker_sends(metadata_answer())  # at once, so it costs nothing; now there is a sensor
    shell.to_client.clear()
    sensor = shell.sensor(QuotaKind.REQUEST)
    sensor.charge(sensor.tokens(shell.now_ms) + ms, shell.now_ms)


def muted_ms(shell: Shell) -> float:
    return shell.session.pace.wake_at_ms - shell.now_ms if shell.state is State.MUTED else 0.0
