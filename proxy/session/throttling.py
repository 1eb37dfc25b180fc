"""What a connection owes: its requests and answers charged against their quotas, and the pace set by it.

Between the session, which knows frames, and the sensors, which know numbers: finds the sensors of (user,
client id), bounds every delay by what the connection has carried (delays.py), and writes the throttle events.
Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import ceil, inf
from typing import Final

from sluice.protocol.headers import FETCH, PRODUCE
from sluice.proxy.session.fetch.turns import FetchTurns
from sluice.proxy.session.header_prediction import KnownProduce
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import CLUSTER_ACTION, FOLLOWER, Held, InFlight
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.admission import ProduceIds
from sluice.proxy.session.producer_ids.shared import Wake
from sluice.proxy.session.read_gate import EARLY_MS, Pace
from sluice.proxy.session.request_time import RequestTime, count_cluster_action, is_refused
from sluice.proxy.session.throttle_log import ThrottleLog
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.hold_queue import HoldTicket
from sluice.quotas.sensors.place import Place
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind

_LOOK_AGAIN_MS: Final = 60_000.0
_NEVER: Final = -1  # no generation has this number
_NO_TEMPLATES: Final = KnownProduce()


class Throttling:
    """One connection's."""

    __slots__ = (
        "_address", "_delays", "_identity", "_is_new", "_left_behind_bytes", "_log", "_pace", "_place",
        "_policy", "_shared", "_ticket", "fetch_sensor", "fetches", "generation", "held", "ids",
        "is_for_nobody", "is_group", "known", "mutation_sensor", "produce_sensor", "request_time", "wake",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        policy: SessionPolicy,
        pace: Pace,
        identity: Identity,
        address: str,
        in_flight: deque[InFlight],
    ) -> None:
        self._shared = shared
        self._policy = policy
        self._delays = policy.delays
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
        self.generation = _NEVER
        """of the quotas when the sensors were looked up"""
        self.is_group = False
        """the connection has carried a group request"""
        self._is_new = True  # no request has been judged whose user is known
        self.is_for_nobody = False
        """its client has left: what it left behind waits for the quota, however long"""
        self.held: Held | None = None
        """the Produce that waits for its turn, in state HOLDING"""
        self._ticket: HoldTicket | None = None  # of the request that is held
        self._place = Place()  # among the connections of the bucket that Produce is charged to
        self.ids: ProduceIds | None = None
        """judges the producer ids of Produce requests; None: the user has no limit for them"""
        self.known = _NO_TEMPLATES
        """those of `ids`"""
        self.wake: Wake | None = None
        """the shell's: a held request's turn has come earlier than it was told"""
        self.fetches = FetchTurns(pace, self.delay_limit_ms)
        """lets Fetches go, or wait"""
        self._left_behind_bytes = 0

    def look_up(self, now_ms: float, api_key: int) -> None:
        """Find the sensors of the identity: at first, and when the client id or the quotas have changed."""
        quotas = self._shared.quotas
        user, client_id, address = self._identity.user, self._identity.client_id, self._address
        produce_sensor = quotas.sensor(QuotaKind.PRODUCE, user, client_id, now_ms, address)
        if produce_sensor is not self.produce_sensor:
            self._leave_turns()
            self.produce_sensor, self._place = produce_sensor, Place()
        self.fetch_sensor = quotas.sensor(QuotaKind.FETCH, user, client_id, now_ms, address)
        self.fetches.use(self.fetch_sensor, now_ms)
        self.mutation_sensor = quotas.sensor(QuotaKind.CONTROLLER_MUTATION, user, client_id, now_ms, address)
        self.generation = quotas.generation
        self._look_up_request_time(user, client_id, now_ms)
        self._look_up_ids(quotas.id_limit(user, client_id, address), now_ms)
        if self._is_new and self.request_time is not None:
            self._log.waits_as_new(self.request_time, api_key, now_ms)
        self._is_new = False

    def _look_up_ids(self, limit: tuple[float, bool, str] | None, now_ms: float) -> None:
        ids = self.ids
        if limit is not None:
            if ids is None:
                ids = self.ids = ProduceIds(self._shared.producer_ids, self.wake)
                self.known = ids.known
            ids.use(self._identity.user, limit, (self._address, self._identity.client_id))
        elif ids is not None:
            ids.dropped(now_ms)  # what was admitted, and waits to be given again, goes without
            self.ids = None
            self.known = _NO_TEMPLATES

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

    def charge_request_time(
        self,
        buf: bytearray,
        pos: int,
        end: int,
        frame_end: int,
        entry: InFlight,
        now_ms: float,
        at_boundary: bool,
    ) -> None:
        """The answer to `entry` is charged against its user's request_percentage, or counted as exempt."""
        if entry[9] is FOLLOWER or (
            entry[9] is CLUSTER_ACTION
            and not (frame_end <= end and is_refused(buf, pos, frame_end, entry[1], entry[2]))
        ):
            count_cluster_action(
                self._policy.request_costs, self._shared.recorder, entry, frame_end - pos, now_ms
            )
        elif self.request_time is not None:
            self.request_time.charge(
                buf, pos, end, frame_end, entry, self.delay_limit_ms, now_ms, at_boundary=at_boundary
            )

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

    # Produce ----------------------------------------------------------------------------------------------

    def owe_for_produce(
        self, sensor: Sensor, paid_ms: float, request_bytes: int, now_ms: float, spent_ms: float
    ) -> tuple[float, float]:
        """A Produce was charged and leaves a debt. Returns (turn_ms, paid_ms), both bounded by the answer
        budget, of which `spent_ms` is spent already.

        turn_ms ≤ now_ms: it goes at once, and the connection is now muted until paid_ms. Else the entity was
        in debt before, and the pace is now HOLDING until turn_ms; the caller sets `held`. A limit in shadow
        mode: both are now_ms, and nothing is done.
        """
        if sensor.shadow:
            self._log.note_shadow(
                sensor, PRODUCE, paid_ms, self.delay_limit_ms(PRODUCE), request_bytes, now_ms
            )
            return now_ms, now_ms
        last_ms = now_ms + max(0.0, self.delay_limit_ms(PRODUCE) - spent_ms)
        if self.is_for_nobody:
            last_ms = inf
        turn_ms = min(sensor.turn_ms, last_ms)
        if turn_ms > now_ms:
            sensor.hold(request_bytes)
            queue = sensor.hold_queue()
            if queue is not None:
                self._ticket = queue.enter(
                    request_bytes, sensor.turn_ms, last_ms, now_ms, self.wake, self._place
                )
                turn_ms = min(queue.ask(self._ticket, now_ms), now_ms + _LOOK_AGAIN_MS)
                turn_ms = max(turn_ms, now_ms + EARLY_MS)
            self._pace.hold(turn_ms, now_ms, QuotaKind.PRODUCE)
            self._log.add(EventKind.HOLD, sensor, PRODUCE, turn_ms - now_ms, request_bytes, now_ms)
            return turn_ms, min(paid_ms, last_ms)
        paid_ms = min(paid_ms, last_ms)
        queue = sensor.hold_queue()
        if queue is not None:
            queue.came(self._place)
        sensor.count_over(request_bytes, paid_ms)
        self._mute_for_produce(sensor, paid_ms, request_bytes, now_ms)
        return turn_ms, paid_ms

    def tell_for_produce(
        self, sensor: Sensor | None, paid_ms: float, request_bytes: int, now_ms: float
    ) -> float:
        """What the answer to a Produce tells, in ms: what the connection's next request will wait for, its
        mute and the queue of its bucket (wire-semantics 1.6)."""
        left_ms = max(paid_ms - now_ms, 0.0)
        queue = None if sensor is None or sensor is not self.produce_sensor else sensor.hold_queue()
        if sensor is None or queue is None:
            return left_ms
        limit_ms = self.delay_limit_ms(PRODUCE)
        return max(left_ms, queue.tell(self._place, request_bytes, sensor.owed_ms(now_ms), limit_ms, now_ms))

    def is_turn(self, now_ms: float) -> bool:
        """May the held request go? If not, `pace.wake_ms` says when to ask again."""
        ticket, held = self._ticket, self.held
        queue = None if held is None else held.sensor.hold_queue()
        if ticket is not None and queue is not None:
            self._pace.wake_ms = min(queue.ask(ticket, now_ms + EARLY_MS), now_ms + _LOOK_AGAIN_MS)
        return now_ms >= self._pace.wake_ms - EARLY_MS

    def outlast(self, now_ms: float) -> bool:
        """The client of the held request, which has acks = 0, has left. Nobody waits for it any more, so it
        has no deadline: it goes when the quota can pay it. False: no, its user has left too much behind."""
        held, ticket = self.held, self._ticket
        assert held is not None
        queue = held.sensor.hold_queue()
        if queue is None or ticket is None or not self.outlives_its_client(0, held.request_bytes):
            return False
        self.is_for_nobody = True
        queue.leave(ticket, now_ms)
        own_ms = held.request_bytes * 1000.0 / held.sensor.rate_per_s
        turn_ms = now_ms + max(held.sensor.owed_ms(now_ms) - own_ms, 0.0)
        self._ticket = queue.enter(held.request_bytes, turn_ms, inf, now_ms, self.wake)
        self._pace.wake_ms = min(queue.ask(self._ticket, now_ms), now_ms + _LOOK_AGAIN_MS)
        return True

    def take_held(self, now_ms: float, client_left: bool) -> Held | None:
        """The turn of the held request has come. None: it is not to be forwarded, for its client is gone.

        `client_left`: since it was held.
        """
        held = self.held
        assert held is not None
        if client_left and not self.outlives_its_client(held.acks, held.request_bytes):
            self.drop_held(now_ms)
            return None
        self.held = None
        ticket, self._ticket = self._ticket, None
        queue = held.sensor.hold_queue()
        if ticket is not None and queue is not None:
            queue.go_now(ticket, now_ms)
            # If it goes ahead of the quota, nothing behind it is kept waiting for that: the client's next
            # request waits in the queue, for the budget at most, and not behind a mute besides.
            is_ahead = ticket.turn_ms > now_ms + EARLY_MS
            held = replace(held, paid_ms=now_ms if is_ahead else min(ticket.paid_ms, ticket.deadline_ms))
        self._pace.release(held.paid_ms)
        held.sensor.go(held.request_bytes, max(held.paid_ms, now_ms))
        if held.paid_ms > now_ms:
            self._mute_for_produce(held.sensor, held.paid_ms, held.request_bytes, now_ms)
        return held

    def drop_held(self, now_ms: float) -> None:
        """A held request, if there is one, will never go: its bytes are given back."""
        held = self.held
        if held is not None:
            self.held = None
            ticket, self._ticket = self._ticket, None
            queue = held.sensor.hold_queue()
            if ticket is not None and queue is not None:
                queue.leave(ticket, now_ms)
            held.sensor.drop(held.request_bytes, now_ms)
            self._log.add(EventKind.DROP, held.sensor, PRODUCE, 0.0, held.request_bytes, now_ms)

    def outlives_its_client(self, acks: int, request_bytes: int) -> bool:
        """May a request go on whose client is gone? With acks ≠ 0 it would double the client's retry.

        One with acks = 0 was reported as sent; it goes on, up to a cap per user (wire-semantics 1.2, 4.1).
        """
        if acks == 0 and self._shared.left_behind.take(self._identity.user, request_bytes):
            self._left_behind_bytes += request_bytes
            return True
        return False

    def closed(self, now_ms: float) -> None:
        """The connection is closed: return its part of the shared budgets, and what a held request was
        charged."""
        self.drop_held(now_ms)
        self._leave_turns()
        self._shared.left_behind.give_back(self._identity.user, self._left_behind_bytes)
        self._left_behind_bytes = 0
        self.fetches.closed(now_ms)
        self.wake = self.fetches.wake = self.ids = (
            None  # or the shell would stand in a circle, and not be freed at once
        )

    def _leave_turns(self) -> None:
        """Nothing more is to come from this connection for its bucket."""
        queue = None if self.produce_sensor is None else self.produce_sensor.hold_queue()
        if queue is not None:
            queue.came(self._place)

    def _mute_for_produce(self, sensor: Sensor, paid_ms: float, request_bytes: int, now_ms: float) -> None:
        self._pace.mute(paid_ms, now_ms, QuotaKind.PRODUCE)
        self._log.add(EventKind.MUTE, sensor, PRODUCE, paid_ms - now_ms, request_bytes, now_ms)

    # Fetch ------------------------------------------------------------------------------------------------

    def charge_fetch(
        self,
        sensor: Sensor,
        api_key: int,
        response_bytes: int,
        now_ms: float,
        *,
        reserved: float,
        at_boundary: bool,
    ) -> float:
        """Charge an answer of Fetch or ShareFetch by its size, of which `reserved` bytes were expected; mute
        what is owed. Returns the mute in ms."""
        charge = sensor.charge_whole if reserved and api_key == FETCH else sensor.charge
        paid_ms = charge(response_bytes, now_ms)
        mute_ms = 0.0
        if paid_ms > now_ms:
            if sensor.shadow:
                self._log.note_shadow(
                    sensor, api_key, paid_ms, self.delay_limit_ms(api_key), response_bytes, now_ms
                )
            else:
                last_ms = self._pace.latest_ms(self.delay_limit_ms(api_key), now_ms)
                paid_ms = min(paid_ms, last_ms)
                mute_ms = paid_ms - now_ms
                sensor.count_over(response_bytes, paid_ms)
                self._pace.mute(paid_ms, now_ms, QuotaKind.FETCH, at_boundary=at_boundary)
                self._log.add(EventKind.MUTE, sensor, api_key, mute_ms, response_bytes, now_ms)
        if reserved:
            self.fetches.settle(sensor, reserved, response_bytes, now_ms)
        return mute_ms

    def note_fetch_hold(self, sensor: Sensor, api_key: int, now_ms: float) -> None:
        """For the log: a Fetch waits for its turn. To wait for what another may bring is no throttling."""
        if sensor.tokens(now_ms) <= 0.0:
            self._log.add(EventKind.HOLD, sensor, api_key, self._pace.wake_ms - now_ms, 0, now_ms)

    def note_fetch_refusal(self, sensor: Sensor, now_ms: float) -> None:
        """For the log: a Fetch found no turn in time, and gets no records."""
        self._log.add(EventKind.REFUSAL, sensor, FETCH, 0.0, 0, now_ms)

    def written_fetch_throttle_ms(self, throttle_ms: float) -> int:
        """What a Fetch answer tells of its mute: some clients sleep on it, and would miss heartbeats."""
        return ceil(min(throttle_ms, self._delays.written_fetch_throttle_max_ms))

    # Controller mutations ---------------------------------------------------------------------------------

    def note_mutation(
        self, kind: EventKind, sensor: Sensor, api_key: int, delay_ms: float, charged: int, now_ms: float
    ) -> None:
        """For the log: partitions were refused, delayed or given back (mutations/delays.py)."""
        self._log.add(kind, sensor, api_key, delay_ms, 0, now_ms, charged)

    # All --------------------------------------------------------------------------------------------------

    def delay_limit_ms(self, api_key: int) -> float:
        """The longest that a request of this API may wait, or its connection be muted, in ms."""
        delays = self._delays
        if self.is_group:
            return delays.group_max_ms
        if api_key == PRODUCE:
            return delays.answer_budget_ms
        if api_key == FETCH:
            identity = self._identity
            timeouts = self._shared.session_timeouts
            return timeouts.fetch_limit_ms(identity.user, identity.client_id, self._address, delays)
        return min(delays.share_fetch_max_ms, delays.answer_budget_ms)

    def hold_for_ids(self, ids: ProduceIds, request_bytes: int, now_ms: float) -> None:
        """A request waits for the turn of its producer ids, until its answer budget is over."""
        until_ms = ids.wake_ms
        self._pace.hold(until_ms, now_ms, QuotaKind.PRODUCER_IDS)
        self._log.add_ids(EventKind.HOLD, ids, until_ms - now_ms, request_bytes, now_ms)

    def refused_ids(self, ids: ProduceIds, request_bytes: int, now_ms: float) -> None:
        """A request is answered in the broker's place, or its connection ended, for its producer ids."""
        self._log.add_ids(EventKind.REFUSAL, ids, 0.0, request_bytes, now_ms)
