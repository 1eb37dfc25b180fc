"""One connection's limits by themselves: which are found, what is told of them, what a Fetch owes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.protocol.apis import FETCH, PRODUCE, SHARE_FETCH
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import CHARGE, InFlight
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.producer_ids.verdict import Verdict
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling
from sluice.quotas.entity import DEFAULT, QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.sensors.smooth import SmoothSensor
from sluice.usage.records import EventKind, Recorder
from testkit.frames.frames import HEARTBEAT, METADATA, produce, record_batch

ANYBODY = QuotaEntity(DEFAULT, None)
IDS = {"producer_ids_rate": 1.0}


def limits_of(limits: dict[str, float] | None = None, *, refuses: bool = False) -> QuotaLimits:
    return QuotaLimits([(ANYBODY, limits)] if limits else [], refusing=[ANYBODY] if refuses else [])


class Connection:
    """One of alice, in a process with these limits."""

    def __init__(self, limits: dict[str, float] | None = None, *, refuses: bool = False) -> None:
        settings = replace(ProducerIdSettings(), forced_after_ms=1e9)
        quotas = QuotaManager(limits_of(limits, refuses=refuses))
        self.shared = SharedState(quotas, Recorder(), producer_ids=ProducerIds(settings))
        self.pace = Pace()
        identity = Identity(authentication_required=False, user="alice")
        fetch: InFlight = (1, FETCH, 12, identity.flow, 90, 0.0, 0.0, 0.0, None, CHARGE)
        policy = SessionPolicy()
        self.throttling = Throttling(self.shared, policy, self.pace, identity, "10.0.0.1", [fetch])

    def finds(self, limits: dict[str, float] | None, *, refuses: bool = False) -> Throttling:
        """Other limits are in force, and its next request is a Produce."""
        self.shared.quotas.reload(limits_of(limits, refuses=refuses), 0.0)
        self.throttling.look_up(0.0, PRODUCE)
        return self.throttling

    def brings(self, producer_id: int) -> Verdict | None:
        """A Produce with a new id."""
        ids = self.throttling.ids
        assert ids is not None
        batch = record_batch(b"x", producer_id=producer_id, epoch=0, sequence=0)
        frame = bytearray(produce({"t": [(0, batch)]}, version=9))
        end = len(frame)
        return ids.judge(frame, 0, 18, end, end, 9, -1, 0.0, 8_000.0)

    @property
    def logged(self) -> list[tuple[EventKind, float, int, bool]]:
        throttles = self.shared.recorder.throttles
        return [(event.kind, event.delay_ms, event.charged_bytes, event.continues) for event in throttles]


def bucket(*, max_debt_ms: float = 60_000.0) -> SmoothSensor:
    entity = QuotaEntity("alice")
    kind = QuotaKind.FETCH
    return SmoothSensor(kind, QuotaLevel.USER, entity, 1_000, 0.0, burst_s=1.0, max_debt_ms=max_debt_ms)


def test_before_anything_is_looked_up_there_is_no_limit_and_no_answer_is_charged() -> None:
    throttling = Connection({"request_percentage": 10.0}).throttling
    assert throttling.generation != throttling._shared.quotas.generation
    assert (throttling.sensors(), throttling.charges_answers) == ((), False)
    assert (throttling.is_group, throttling.are_ids_due, throttling.ids) == (False, False, None)
    throttling.look_up(0.0, HEARTBEAT)
    assert throttling.charges_answers
    assert throttling.generation == throttling._shared.quotas.generation
    throttling.forget()
    assert throttling.generation != throttling._shared.quotas.generation, "another user is looked up"


def test_a_limit_on_ids_is_looked_up_by_the_first_request_that_may_bring_any() -> None:
    connection = Connection(IDS)
    throttling = connection.throttling
    throttling.look_up(0.0, METADATA)
    assert (throttling.are_ids_due, throttling.ids, throttling.has_id_limit) == (True, None, True)
    throttling.look_up_ids(0.0)
    ids = throttling.ids
    assert ids is not None
    assert (throttling.are_ids_due, throttling.has_id_limit, ids.limit) == (False, True, 1.0)
    assert throttling.known is ids.known
    connection.finds({"producer_ids_rate": 2.0})
    assert throttling.ids is ids
    assert ids.limit == 2.0


def test_where_the_rate_refuses_there_are_gates_without_a_limit_on_ids() -> None:
    connection = Connection({"producer_byte_rate": 1e6}, refuses=True)
    throttling = connection.throttling
    throttling.look_up(0.0, PRODUCE)
    ids = throttling.ids
    assert ids is not None
    assert (ids.gates_only, throttling.known is ids.known, throttling.has_id_limit) == (True, True, False)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_limit_on_ids_that_goes_takes_along_what_waited_for_it(*, refuses: bool) -> None:
    """Nobody waits any more; without gates nothing is remembered of the connection either."""
    both = {"producer_byte_rate": 1e6, **IDS}
    connection = Connection(both)
    throttling = connection.finds(both, refuses=refuses)
    assert connection.brings(1) is Verdict.ADMIT
    principal = next(iter(connection.shared.producer_ids.quota.principals()))
    assert (principal.main.reserved, principal.waiting_tickets) == (1, 0)
    before = throttling.ids
    connection.finds({"producer_byte_rate": 1e6}, refuses=refuses)
    assert principal.main.reserved == 0, "what was admitted goes without"
    assert throttling.ids is (before if refuses else None)
    assert (throttling.known is before.known) is refuses  # type: ignore[union-attr]
    connection.finds({"producer_byte_rate": 2e6}, refuses=refuses)
    assert throttling.ids is (before if refuses else None)


def test_only_a_fetch_that_has_reserved_owes_all_that_it_brought() -> None:
    """A second's debt is the most otherwise: 1,000 B are there, and 1,000 come."""
    for api_key, reserved, forgiven in (
        (FETCH, 100.0, 0), (FETCH, 0.0, 3_000), (SHARE_FETCH, 100.0, 3_000), (SHARE_FETCH, 0.0, 3_000),
    ):  # fmt: skip
        connection, sensor = Connection(), bucket(max_debt_ms=1_000.0)
        connection.throttling.charge_fetch(
            sensor, api_key, 5_000, 0.0, held_ms=0.0, reserved=reserved, at_boundary=True
        )
        assert (sensor.charged, sensor.forgiven) == (5_000, forgiven)


def test_a_fetch_that_waits_while_nothing_is_there_is_told_of_and_its_mute_goes_on_from_there() -> None:
    for spent, is_told in ((999, False), (1_000, True), (1_500, True)):
        connection, sensor = Connection(), bucket()
        sensor.charge(spent, 0.0)
        connection.pace.hold(700.0, 0.0, QuotaKind.FETCH)
        connection.throttling.note_fetch_hold(sensor, FETCH, 0.0)
        hold = [(EventKind.HOLD, 700.0, 0, False)] if is_told else []
        assert connection.logged == hold
        connection.pace.release(0.0)
        for continues in (is_told, False):
            mute_ms = connection.throttling.charge_fetch(
                sensor, FETCH, 2_000, 0.0, held_ms=0.0, reserved=0.0, at_boundary=True
            )
            assert connection.logged[-1] == (EventKind.MUTE, mute_ms, 2_000, continues)


def test_a_refusal_for_ids_or_of_a_fetch_is_no_delay() -> None:
    connection = Connection(IDS)
    throttling = connection.finds(IDS)
    assert throttling.ids is not None
    throttling.refused_ids(throttling.ids, 99, 0.0)
    throttling.note_fetch_refusal(bucket(), 0.0)
    assert connection.logged == [(EventKind.REFUSAL, 0.0, 99, False), (EventKind.REFUSAL, 0.0, 0, False)]


def test_the_first_request_of_who_owes_request_time_is_told_of_with_its_wait_and_no_other() -> None:
    connection = Connection({"request_percentage": 10.0})
    quotas = connection.shared.quotas
    sensor = quotas.sensor(QuotaKind.REQUEST, "alice", "", 0.0, "10.0.0.1")
    assert sensor is not None
    sensor.charge(100.05, 0.0)
    for _ in range(2):
        connection.throttling.look_up(0.0, HEARTBEAT)
        ((kind, delay_ms, charged_bytes, continues),) = connection.logged
        assert (kind, charged_bytes, continues) == (EventKind.MUTE, 0, False)
        assert delay_ms == pytest.approx(0.5)
