"""What a connection owes: its requests and answers charged against their quotas, and the pace set by it.

Between the session, which knows frames, and the sensors, which know numbers: finds the sensors of (user,
client id), bounds every delay by what the connection has carried (delays.py), and writes the throttle events.
Pure.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from sluice.protocol.apis import FETCH, PRODUCE, PRODUCER_ID_APIS
from sluice.proxy.session.arrivals import Arrivals
from sluice.proxy.session.fetch.turns import FetchTurns
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import DECLARED, InFlight
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.produce.header_prediction import KnownProduce
from sluice.proxy.session.produce.turns import ProduceTurns
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.proxy.session.producer_ids.shared import Wake
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.request_time import (
    CLUSTER_ACTION_MAX_BYTES,
    RequestTime,
    count_cluster_action,
    has_taken,
)
from sluice.proxy.session.throttle_log import ThrottleLog
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind

_NEVER: Final = -1  # no generation has this number
_NO_TEMPLATES: Final = KnownProduce()


class Throttling:
    """What one connection owes, and how it is paced."""

    __slots__ = (
        "_address", "_budget", "_delays", "_identity", "_is_fetch_told", "_log", "_pace",
        "_policy", "_shared", "_wake", "_was_fetch_held", "are_ids_due", "arrivals", "charges_answers",
        "fetch_sensor", "fetches", "generation", "ids", "is_group", "known", "mutation_sensor",
        "produce_sensor", "produces", "request_time",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        address: str,
        in_flight: list[InFlight],
    ) -> None:
        self._shared = shared
        self._policy = policy
        self._delays = policy.delays
        self._budget = policy.delays.budget()
        self.arrivals = Arrivals(self._budget)
        """when what was read ahead came"""
        self._pace = pace
        self._identity = identity
        self._address = address
        self._log = ThrottleLog(shared.recorder, identity, address, in_flight)
        self.produce_sensor: Sensor | None = None
        """whose limit Produce is charged against; None: unlimited"""
        self.fetch_sensor: Sensor | None = None
        self.mutation_sensor: Sensor | None = None
        """whose limit CreateTopics, DeleteTopics and CreatePartitions are charged against"""
        self.request_time: RequestTime | None = None
        """charges what requests cost the broker; None: the principal has no limit on it"""
        self.charges_answers = False
        """request time is limited: every answer is charged"""
        self.generation = _NEVER
        """of the quotas when the sensors were looked up"""
        self.is_group = False
        """the connection has carried a group request"""
        self._was_fetch_held = False  # the Fetch that is answered next
        self._is_fetch_told = False  # and its hold is in the log
        self.ids: ProduceIds | None = None
        """judges the producer ids of Produce requests; None: the user has no limit for them"""
        self.are_ids_due = False
        """`ids` is not looked up yet, for most connections never send one of PRODUCER_ID_APIS. It is to be
        (`look_up_ids`) before the first of those is judged"""
        self.known = _NO_TEMPLATES
        """those of `ids`"""
        self._wake: Wake | None = None
        self.produces = ProduceTurns(shared, pace, identity, self._log, self.delay_limit_ms, self.arrivals)
        """lets Produces go, or wait"""
        self.fetches = FetchTurns(pace, self.delay_limit_ms)
        """lets Fetches go, or wait"""

    def look_up(self, now_ms: float, api_key: int) -> None:
        """Find the sensors of the identity: at first, and when the client id or the quotas have changed."""
        quotas = self._shared.quotas
        user, client_id, address = self._identity.user, self._identity.client_id, self._address
        produce_sensor = quotas.sensor(QuotaKind.PRODUCE, user, client_id, now_ms, address)
        if produce_sensor is not self.produce_sensor:
            self.produce_sensor = produce_sensor
            self.produces.use(produce_sensor, now_ms)
        self.produces.refuses = (
            produce_sensor is not None and produce_sensor.refuses and not produce_sensor.shadow
        )
        self.fetch_sensor = quotas.sensor(QuotaKind.FETCH, user, client_id, now_ms, address)
        self.fetches.use(self.fetch_sensor, now_ms)
        self.mutation_sensor = quotas.sensor(QuotaKind.CONTROLLER_MUTATION, user, client_id, now_ms, address)
        self.generation = quotas.generation
        request_sensor = None if self.request_time is None else self.request_time.sensor
        self._look_up_request_time(user, client_id, now_ms)
        self.charges_answers = self.request_time is not None
        if self.ids is not None or api_key in PRODUCER_ID_APIS:
            self.look_up_ids(now_ms)
        else:
            self.are_ids_due = (
                self.produces.refuses
                or QuotaKind.PRODUCER_IDS in quotas.limits.kinds
                or self._shared.producer_ids.tables.has_gates(user)
            )
        request_time = self.request_time
        if request_time is not None and request_time.sensor is not request_sensor:
            self._greet(request_time, api_key, now_ms)

    def _greet(self, request_time: RequestTime, api_key: int, now_ms: float) -> None:
        """The connection's first request in a bucket waits for what is owed there."""
        wait_ms = request_time.greet(now_ms)
        if wait_ms > 0.0:
            self._log.add(EventKind.MUTE, request_time.sensor, api_key, wait_ms, 0, now_ms)

    def look_up_ids(self, now_ms: float) -> None:
        """Find the limit on the producer ids of this identity."""
        self.are_ids_due = False
        ids, identity = self.ids, self._identity
        limit = self._shared.quotas.id_limit(identity.user, identity.client_id, self._address)
        if limit is not None:
            if ids is None:
                ids = self.ids = ProduceIds(self._shared.producer_ids, self._wake, self._pace)
                self.known = ids.known
            ids.use(identity.user, limit, (self._address, identity.client_id))
        elif self.produces.refuses or self._shared.producer_ids.tables.has_gates(identity.user):
            # What comes behind a batch that was refused waits for that, though nothing is refused now.
            if ids is None:
                ids = self.ids = ProduceIds(self._shared.producer_ids, self._wake, self._pace)
                self.known = ids.known
            elif not ids.gates_only:
                ids.dropped(now_ms)
            ids.use_gates(identity.user)
        elif ids is not None:
            ids.dropped(now_ms)  # what was admitted, and waits to be given again, goes without
            self.ids = None
            self.known = _NO_TEMPLATES

    def is_id_limit_another(self) -> bool:
        """The limit on producer ids is not the one any more that what waits was judged by."""
        identity = self._identity
        limit = self._shared.quotas.id_limit(identity.user, identity.client_id, self._address)
        return self.ids is not None and self.ids.judged_by != limit

    def _look_up_request_time(self, user: str, client_id: str, now_ms: float) -> None:
        quotas, request_time = self._shared.quotas, self.request_time
        sensor = quotas.sensor(QuotaKind.REQUEST, user, client_id, now_ms, self._address)
        if sensor is None or (
            sensor.exempt and quotas.limits.resolve(QuotaKind.REQUEST, user, client_id) is None
        ):
            if request_time is not None:
                request_time.dropped()
                self.request_time = None
            return
        if request_time is None:
            request_time = self.request_time = RequestTime(
                sensor, self._policy, self._shared, self._pace, self._identity, self._address
            )
        request_time.use(sensor, now_ms)

    @property
    def has_id_limit(self) -> bool:
        """Producer ids are judged, or would be."""
        identity = self._identity
        if self.are_ids_due:
            quotas = self._shared.quotas
            return quotas.id_limit(identity.user, identity.client_id, self._address) is not None
        return self.ids is not None and not self.ids.gates_only

    @property
    def held_bytes(self) -> int:
        """What a request that is held takes beside its bytes."""
        return 0 if self.ids is None else self.ids.gate.held_bytes

    def charge_cluster_action(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        entry: InFlight,
        now_ms: float,
        at_boundary: bool,
    ) -> int:
        """The answer to `entry`, of a request that brokers send each other, is counted as exempt from
        request_percentage; or charged, where nobody has declared its sender a broker, nor a short answer
        shows that the broker took him for one. Returns how many bytes of it were decoded for that."""
        is_declared, size_bytes = entry[9] is DECLARED, frame_end - pos
        is_read = not is_declared and size_bytes <= CLUSTER_ACTION_MAX_BYTES
        if is_declared or (is_read and has_taken(buf, pos, frame_end, entry[1], entry[2])):
            count_cluster_action(self._policy.request_costs, self._shared.recorder, entry, size_bytes, now_ms)
        elif self.request_time is not None:
            self.request_time.charge(
                buf, pos, end, frame_end, entry, self.delay_limit_ms, now_ms, at_boundary=at_boundary
            )
        return size_bytes if is_read else 0

    def wake_by(self, wake: Wake | None) -> None:
        """`wake` is the shell's: the turn of a held request has come earlier than it was told. None: the
        connection is closed."""
        self._wake = self.produces.wake = self.fetches.wake = wake

    def sensors(self) -> tuple[Sensor, ...]:
        """Those that were found the last time; for who looks at a connection, not for its requests."""
        request_sensor = None if self.request_time is None else self.request_time.sensor
        found = (self.produce_sensor, self.fetch_sensor, self.mutation_sensor, request_sensor)
        return tuple(sensor for sensor in found if sensor is not None)

    def forget(self) -> None:
        """The user is another now: the next request looks the sensors up."""
        self.generation = _NEVER

    def saw_session_timeout(self, session_timeout_ms: int) -> None:
        """The broker took a JoinGroup of this client: its other connections, which fetch, are bound by half
        of it."""
        identity = self._identity
        timeouts = self._shared.session_timeouts
        timeouts.saw(identity.user, identity.client_id, self._address, session_timeout_ms)

    # Fetch ------------------------------------------------------------------------------------------------

    def charge_fetch(
        self,
        sensor: Sensor,
        api_key: int,
        response_bytes: int,
        now_ms: float,
        *,
        held_ms: float,
        reserved: float,
        at_boundary: bool,
    ) -> float:
        """Charge an answer of Fetch or ShareFetch by its size, of which `reserved` bytes were expected and
        whose request was held for `held_ms`; mute what is owed. Returns the mute in ms."""
        charge = sensor.charge_whole if reserved and api_key == FETCH else sensor.charge
        clears_at_ms = charge(response_bytes, now_ms)
        mute_ms = 0.0
        was_held, self._was_fetch_held = self._was_fetch_held, False
        is_told, self._is_fetch_told = self._is_fetch_told, False
        if clears_at_ms > now_ms:
            if sensor.shadow:
                self._log.note_shadow(
                    sensor, api_key, clears_at_ms, self.delay_limit_ms(api_key), response_bytes, now_ms
                )
            else:
                last_ms = self._pace.latest_ms(self.left_ms(api_key, held_ms), now_ms)
                clears_at_ms = min(clears_at_ms, last_ms)
                mute_ms = clears_at_ms - now_ms
                sensor.count_over(response_bytes, clears_at_ms)
                if was_held and reserved and api_key == FETCH and not self.is_group:
                    # The next Fetch takes its place among those who wait, as in ProduceTurns.
                    self.fetches.paid_at_ms = clears_at_ms
                elif mute_ms:  # else the hold was all that it may be
                    self._pace.mute(clears_at_ms, now_ms, QuotaKind.FETCH, at_boundary=at_boundary)
                if mute_ms:
                    self._log.add(
                        EventKind.MUTE, sensor, api_key, mute_ms, response_bytes, now_ms, continues=is_told
                    )
        if reserved:
            self.fetches.settle(sensor, reserved, response_bytes, now_ms)
        return mute_ms

    def note_fetch_hold(self, sensor: Sensor, api_key: int, now_ms: float) -> None:
        """For the log: a Fetch waits for its turn. To wait for what another may bring is no throttling."""
        if sensor.tokens(now_ms) <= 0.0:
            self._was_fetch_held = True
            hold_ms = self._pace.wake_at_ms - max(now_ms, self.fetches.paid_at_ms)
            self._is_fetch_told = hold_ms > 0.0
            if self._is_fetch_told:
                self._log.add(EventKind.HOLD, sensor, api_key, hold_ms, 0, now_ms)

    @property
    def is_fetch_held(self) -> bool:
        """What waits is a Fetch, and no request that waits for its producer ids."""
        ids = self.ids
        return self.fetches.is_held and not (ids is not None and ids.is_holding)

    def let_fetch_go(self, now_ms: float) -> float:
        """A held Fetch goes, for its limit is none now, or in shadow mode. Returns how long it was held, in
        ms."""
        self._was_fetch_held = self._is_fetch_told = False
        return self.fetches.let_go(now_ms)

    def note_fetch_refusal(self, sensor: Sensor, now_ms: float) -> None:
        """For the log: a Fetch found no turn in time, and gets no records."""
        self._log.add(EventKind.REFUSAL, sensor, FETCH, 0.0, 0, now_ms)

    def written_fetch_throttle_ms(self, throttle_ms: float) -> int:
        """What a Fetch answer tells of its mute: some clients sleep on it, and would miss heartbeats."""
        return ceil(min(throttle_ms, self._delays.written_fetch_throttle_max_ms))

    # Controller mutations ---------------------------------------------------------------------------------

    def note_mutation(
        self, kind: EventKind, sensor: Sensor, api_key: int, delay_ms: float, charged: int, now_ms: float,
        *, continues: bool = False,
    ) -> None:  # fmt: skip
        """For the log: partitions were refused, delayed or given back (mutations/delays.py)."""
        self._log.add(kind, sensor, api_key, delay_ms, 0, now_ms, charged, continues=continues)

    # All --------------------------------------------------------------------------------------------------

    def delay_limit_ms(self, api_key: int) -> float:
        """The longest that a request of this API may wait, or its connection be muted, in ms."""
        delays, answer_ms = self._delays, self._budget.answer_ms
        if self.is_group:
            return delays.group_max_ms
        if api_key == PRODUCE:
            return answer_ms
        if api_key == FETCH:
            identity = self._identity
            timeouts = self._shared.session_timeouts
            limit_ms = timeouts.fetch_limit_ms(identity.user, identity.client_id, self._address, delays)
            return min(limit_ms, answer_ms)
        return min(delays.share_fetch_max_ms, answer_ms)

    def left_ms(self, api_key: int, held_ms: float) -> float:
        """The longest mute, or sleep of a client that is told, behind a Fetch that was held for `held_ms`. On
        a group's connection they are one delay; on another the client heartbeats between the two."""
        limit_ms = self.delay_limit_ms(api_key)
        return max(limit_ms - held_ms, 0.0) if self.is_group else limit_ms

    @property
    def half_session_ms(self) -> float:
        """Half the session timeout of this client, in ms; inf if none was seen."""
        identity = self._identity
        return self._shared.session_timeouts.half_ms(identity.user, identity.client_id, self._address)

    @property
    def id_limit_ms(self) -> float:
        """The longest that a request waits for its producer ids, before any time of a transaction runs.

        The same for all clients: after shorter waits one would be through with its retries before it is
        forced in (wire-semantics 3.9).
        """
        return self._delays.group_max_ms if self.is_group else self._delays.answer_budget_ms

    def use_software(self, name: str) -> None:
        """The client has told what it is."""
        self._budget = self.arrivals.budget = self._delays.budget(name)

    def hold_for_ids(self, ids: ProduceIds, request_bytes: int, now_ms: float) -> None:
        """A request waits for the turn of its producer ids, until its answer budget is over."""
        until_ms = ids.wake_at_ms
        self._pace.hold(until_ms, now_ms, QuotaKind.PRODUCER_IDS)
        self._log.add_ids(EventKind.HOLD, ids, until_ms - now_ms, request_bytes, now_ms)

    def refused_ids(self, ids: ProduceIds, request_bytes: int, now_ms: float) -> None:
        """A request is answered in the broker's place, or its connection ended, for its producer ids."""
        self._log.add_ids(EventKind.REFUSAL, ids, 0.0, request_bytes, now_ms)

    def refuse_held(self, now_ms: float) -> None:
        """The turn of a held Produce has not come in time, and its limit refuses: the shell gives it again,
        for its answer."""
        assert self.ids is not None  # a limit that refuses has them
        if self.request_time is not None and (held := self.produces.held) is not None:
            self.request_time.take_back(held.correlation_id)
        self.ids.refuse(self.produces.refuse(now_ms))
        self._pace.release(0.0)

    def refused_produce(
        self, ids: ProduceIds, request_bytes: int, now_ms: float
    ) -> tuple[float, int, str, Sensor | None]:
        """A Produce is answered in the broker's place, or its connection ended. Returns (ms it was held, what
        its answer tells as throttle_time_ms, and why, whose limit on bytes it was held for)."""
        refusal = ids.take_refusal(self.produce_sensor)
        if refusal is None:
            held_ms = ids.take_held_ms(now_ms)
            self.refused_ids(ids, request_bytes, now_ms)
            return held_ms, ids.gate.throttle_ms, ids.gate.message, None
        sensor, reason = refusal.sensor, refusal.reason.value
        self._log.add(EventKind.REFUSAL, sensor, PRODUCE, 0.0, request_bytes, now_ms, reason=reason)
        return refusal.held_ms, ceil(refusal.told_ms), refusal.message, sensor

    def closed(self, now_ms: float) -> None:
        """The connection is closed: return its part of the shared budgets, and what a held request was
        charged."""
        self.produces.closed(now_ms)
        self.fetches.closed(now_ms)
        self.wake_by(None)  # or the shell would stand in a circle, and not be freed at once
        self.ids = None
