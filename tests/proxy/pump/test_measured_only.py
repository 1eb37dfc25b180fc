"""Request time that is only measured, in shadow mode or by an exempt rule, over the pump and over Python."""

from __future__ import annotations

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from sluice.proxy.session.in_flight import MAX_IN_FLIGHT
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.request_time import RequestTime
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import produce_answer, produce_of
from testkit.proxy.data_paths import path_of
from testkit.proxy.playbook import Shell
from testkit.pump.worlds import COSTS
from tests.proxy.pump.test_hand_over import numbered

EVERYBODY = QuotaEntity(DEFAULT, None)
LIMITS = [(EVERYBODY, {"request_percentage": 1_000_000.0})]
IN_SHADOW = QuotaLimits(LIMITS, shadow={EVERYBODY: ["request_percentage"]})
EXEMPT = QuotaLimits(LIMITS, exempt=[ExemptRule(user="ANONYMOUS")])
SENT = numbered([produce_of(140, producer_id=7)] * 60, 8)
ANSWERS = numbered([produce_answer()] * 60, 4)


def measured(name: str, limits: QuotaLimits) -> Shell:
    """Sixty Produces that were sent ahead, and then their answers."""
    shared = SharedState(QuotaManager(limits), Recorder())
    shell = Shell(path_of(name).session(shared, SessionPolicy(request_costs=COSTS), "10.0.0.1"))
    for frame in SENT:
        shell.client_sends(frame)
    assert bytes(shell.to_broker) == b"".join(SENT)
    shell.now_ms += 5.0
    shell.broker_sends(b"".join(ANSWERS))
    assert bytes(shell.to_client) == b"".join(ANSWERS)
    return shell


def measured_ms(shell: Shell) -> float:
    of_limit = sum(one.charged for one in shell.shared.quotas.sensors() if one.kind is QuotaKind.REQUEST)
    return of_limit + shell.shared.recorder.exempt_request_ms["rule"]


@pytest.mark.parametrize("limits", [IN_SHADOW, EXEMPT], ids=["in shadow mode", "exempt"])
def test_who_is_only_measured_has_as_many_under_way_as_without_a_limit(limits: QuotaLimits) -> None:
    shells = [measured(name, limits) for name in (PURE.name, PUMP)]
    assert [shell.session.pace.max_in_flight for shell in shells] == [MAX_IN_FLIGHT] * 2
    pure, pump = map(measured_ms, shells)
    assert pure == pump > 0


def test_what_a_limit_in_shadow_mode_measures_within_it_python_does_not_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path_of(PUMP)
    seen: list[float] = []
    charge = RequestTime.charge

    def counted(*args: object, **options: object) -> None:
        seen.append(1.0)
        charge(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestTime, "charge", counted)
    measured(PUMP, IN_SHADOW)
    of_pump = len(seen)
    measured(PURE.name, IN_SHADOW)
    assert (of_pump, len(seen) - of_pump) == (0, 60)
