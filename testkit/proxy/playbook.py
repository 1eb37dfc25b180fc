"""A session test as a dialogue: `>>` happens, `<<` must follow, in order (after mitmproxy's Playbook).

    (
        Playbook(session)
        >> Client(produce_of(1500))
        << ToBroker(produce_of(1500))
        << Muted(for_ms=500)
        >> Wait(500)
        << Reading()
    ).done()

Shell does around the session what proxy/connection/connection.py does, without sockets: it reads while the
session is READING, keeps what may not go yet, wakes it on time, and fills the buffer behind the bytes that
have arrived with others, which must not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

from sluice.protocol.addresses.addresses import Edit, spliced
from sluice.proxy.session.arrivals import AHEAD_BYTES
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import Recorder, ThrottleEvent
from testkit.access_log.finished import Finished
from testkit.frames.frames import fetch, fetch_answer_of, produce_of

START_MS: Final = 10_000.0
RECEIVE_BYTES: Final = 1024 * 1024
STALE: Final = b"\xff"
"""behind what has arrived, by default"""


def limits_of(produce_rate: int | None = None, fetch_rate: int | None = None) -> QuotaLimits:
    """Bytes per second for each user."""
    rates = {"producer_byte_rate": produce_rate, "consumer_byte_rate": fetch_rate}
    return QuotaLimits([
        (QuotaEntity(DEFAULT, None), {key: rate for key, rate in rates.items() if rate is not None})
    ])  # fmt: skip


def shared_of(limits: QuotaLimits, *, burst_s: float = 1.0) -> SharedState:
    """What the sessions of one process share."""
    return SharedState(QuotaManager(limits, burst_s=burst_s), Recorder())


def session_of(
    produce_rate: int | None = None,
    fetch_rate: int | None = None,
    *,
    policy: SessionPolicy | None = None,
) -> Session:
    """A connection alone in its process. Buckets hold one second of the rate."""
    return Session(shared_of(limits_of(produce_rate, fetch_rate)), policy or SessionPolicy(), "10.0.0.1")


def shell_of(shared: SharedState, *, address: str = "10.0.0.1") -> Shell:
    """One more connection of a process."""
    return Shell(Session(shared, SessionPolicy(), address))


class Shell:
    """One connection's two byte streams, and the session between them."""

    def __init__(self, session: Session, *, now_ms: float = START_MS, stale: bytes = STALE) -> None:
        self.session = session
        self.shared = session._throttling._shared
        self.now_ms = now_ms
        self.stale = stale
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.client_left = False
        self.unread = bytearray()  # what the client sent and the kernel keeps
        self.kept = b""  # what was read and may not go yet
        self._broker_kept = b""
        self._is_woken = False
        session.wake_by(self._wake_early)

    def _wake_early(self) -> None:
        self._is_woken = True

    def client_sends(self, data: bytes) -> None:
        self.unread += data
        self.read_on()

    def client_leaves(self) -> None:
        """It closes its side behind what it has sent."""
        self.client_left = True
        self.read_on()

    def broker_sends(self, data: bytes) -> None:
        data = self._broker_kept + data
        passed, self._broker_kept = self._give(self.session.broker_data, data, self.session.edits)
        self.to_client += passed
        while self.session.has_more_answers:
            kept = self._broker_kept
            passed, self._broker_kept = self._give(self.session.broker_data, kept, self.session.edits)
            self.to_client += passed
        self._resume()

    def wake(self) -> None:
        """Early, on time or late."""
        self.session.wake(self.now_ms, self.client_left, self.kept + self.unread)  # as if read ahead
        self._resume()

    def drain(self) -> None:
        self.session.drain(self.now_ms)
        self._resume()

    def advance(self, ms: float) -> None:
        """Let time pass; wake the session when it asks for it."""
        until_ms = self.now_ms + ms
        while self.is_delayed and (self._is_woken or self.session.pace.wake_at_ms <= until_ms):
            if not self._is_woken:
                self.now_ms = max(self.now_ms, self.session.pace.wake_at_ms)
            self._is_woken = False
            self.wake()
        self.now_ms = until_ms

    @property
    def state(self) -> State:
        return self.session.pace.state

    @property
    def cause(self) -> DisconnectCause | None:
        return self.session.pace.close_cause

    @property
    def detail(self) -> str:
        return self.session.pace.close_detail

    @property
    def records(self) -> list[Finished]:
        """The request records of all sessions of the process."""
        return list(map(Finished._make, self.shared.recorder.requests))

    @property
    def events(self) -> list[ThrottleEvent]:
        """The throttle events of all sessions of the process."""
        return self.shared.recorder.throttles

    def sensor(self, kind: QuotaKind = QuotaKind.PRODUCE) -> Sensor:
        """The only one of its kind."""
        (sensor,) = (sensor for sensor in self.shared.quotas.sensors() if sensor.kind is kind)
        return sensor

    @property
    def is_delayed(self) -> bool:
        return self.state in {State.MUTED, State.HOLDING}

    def read_on(self) -> None:
        """Read what the kernel has, as long as the session is reading."""
        while self.state is State.READING and self.unread:
            room = RECEIVE_BYTES - len(self.kept)
            assert room, "the buffer is full, and nothing is judged"
            data = self.kept + bytes(self.unread[:room])
            del self.unread[:room]
            self._take(data)
        if self.is_delayed:
            room = max(AHEAD_BYTES - len(self.kept), 0)
            self.kept += bytes(self.unread[:room])
            del self.unread[:room]
            if self.kept:
                self.session.arrived(len(self.kept), self.now_ms)
        if self.client_left and self.state is State.READING:
            self.kept = b""
            self.session.client_closed(DisconnectCause.CLIENT_CLOSED)

    def _resume(self) -> None:
        if self.state is State.READING and self.kept:
            self._take(self.kept)
        self.read_on()

    def _take(self, data: bytes) -> None:
        passed, self.kept = self._give(self.session.client_data, data, self.session.drops)
        self.to_broker += passed
        for answer in self.session.local_answers:
            self.to_client += answer
        self.session.local_answers.clear()

    def _give(
        self, scan: Callable[[bytearray, int, int, float], int], data: bytes, edits: list[Edit]
    ) -> tuple[bytes, bytes]:
        before = b"\x00\x01\x02"
        behind = (self.stale * 700)[:700]
        buf = bytearray(before + data + behind)
        start, end = len(before), len(before) + len(data)
        cut = scan(buf, start, end, self.now_ms)
        assert start <= cut <= end
        assert (buf[:start], buf[end:]) == (bytearray(before), bytearray(behind)), "wrote outside its bytes"
        ends = [start, *(at for edit in edits for at in edit[:2]), cut]
        assert ends == sorted(ends), "edits are sorted, without overlap, within what goes on"
        passed = spliced(buf, start, cut, edits)
        edits.clear()
        return passed, bytes(buf[cut:end])


@dataclass(frozen=True)
class Client:
    """A step: the client sends these bytes."""

    data: bytes


@dataclass(frozen=True)
class Broker:
    """A step: the broker sends these bytes."""

    data: bytes


@dataclass(frozen=True)
class ClientLeaves:
    """The client closes its side."""


@dataclass(frozen=True)
class Wait:
    """Time passes, and the session is woken when it asked for it."""

    ms: float


@dataclass(frozen=True)
class Drain:
    """The proxy is to end."""


@dataclass(frozen=True)
class Reload:
    """Other quotas are in force."""

    limits: QuotaLimits


@dataclass(frozen=True)
class ToBroker:
    """Bytes go to the broker."""

    data: bytes


@dataclass(frozen=True)
class ToClient:
    """Bytes go to the client."""

    data: bytes


@dataclass(frozen=True)
class Held:
    """The request at hand waits."""

    for_ms: float


@dataclass(frozen=True)
class Muted:
    """No further request is begun for a while."""

    for_ms: float


@dataclass(frozen=True)
class Reading:
    """Requests are begun again."""


@dataclass(frozen=True)
class AwaitingBroker:
    """Nothing is begun before the broker has answered."""


@dataclass(frozen=True)
class Ending:
    """No further request is begun, for good."""

    cause: DisconnectCause


Event: TypeAlias = Client | Broker | ClientLeaves | Wait | Drain | Reload
Outcome: TypeAlias = ToBroker | ToClient | Held | Muted | Reading | AwaitingBroker | Ending


class Playbook:
    """Checks each step at once; `done` checks that nothing else happened."""

    def __init__(self, session: Session | Shell) -> None:
        self.shell = session if isinstance(session, Shell) else Shell(session)
        self._pending: list[Outcome] = []
        self._seen = self._pace()

    def __rshift__(self, event: Event) -> Playbook:
        assert not self._pending, f"not expected: {self._pending}"
        shell = self.shell
        match event:
            case Client(data):
                shell.client_sends(data)
            case Broker(data):
                shell.broker_sends(data)
            case ClientLeaves():
                shell.client_leaves()
            case Wait(ms):
                self._wait(ms)
            case Drain():
                shell.drain()
            case Reload(limits):
                shell.shared.quotas.reload(limits, shell.now_ms)
        self._note(answers_first=isinstance(event, Broker))
        return self

    def __lshift__(self, expected: Outcome) -> Playbook:
        assert self._pending, f"nothing happened, expected {expected}"
        assert self._pending.pop(0) == expected
        return self

    def done(self) -> Shell:
        """Returns the connection, for whatever else is to be looked at."""
        assert not self._pending, f"not expected: {self._pending}"
        return self.shell

    def _wait(self, ms: float) -> None:
        until_ms = self.shell.now_ms + ms
        while self.shell.is_delayed and self.shell.session.pace.wake_at_ms <= until_ms:
            self.shell.advance(max(0.0, self.shell.session.pace.wake_at_ms - self.shell.now_ms))
            self._note()
        self.shell.advance(until_ms - self.shell.now_ms)

    def _pace(self) -> tuple[State, float]:
        pace = self.shell.session.pace
        return pace.state, pace.wake_at_ms if self.shell.is_delayed else inf

    def _note(self, *, answers_first: bool = False) -> None:
        shell = self.shell
        ways: list[tuple[bytearray, type[ToBroker | ToClient]]] = [
            (shell.to_broker, ToBroker),
            (shell.to_client, ToClient),
        ]
        for sent, outcome in reversed(ways) if answers_first else ways:
            if sent:
                self._pending.append(outcome(bytes(sent)))
                sent.clear()
        if self._pace() == self._seen:
            return
        self._seen = self._pace()
        state, wake_at_ms = self._seen
        for_ms = round(wake_at_ms - shell.now_ms, 6) if wake_at_ms != inf else inf
        match state:
            case State.READING:
                self._pending.append(Reading())
            case State.MUTED:
                self._pending.append(Muted(for_ms))
            case State.HOLDING:
                self._pending.append(Held(for_ms))
            case State.AWAITING_BROKER:
                self._pending.append(AwaitingBroker())
            case State.ENDING:
                assert shell.session.pace.close_cause is not None
                self._pending.append(Ending(shell.session.pace.close_cause))


def neighbours(count: int, produce_rate: int = 1_000) -> list[Shell]:
    """Connections of one user, who has one bucket."""
    shared = shared_of(limits_of(produce_rate=produce_rate))
    return [Shell(Session(shared, SessionPolicy(), "10.0.0.1")) for _ in range(count)]


def in_debt(debt_bytes: int) -> Shell:
    """A connection whose neighbour has just left the bucket this much in debt."""
    neighbour, shell = neighbours(2)
    neighbour.client_sends(produce_of(1_000 + debt_bytes))
    return shell


def fetch_debt(debt_ms: float = 60_000, rate: int = 1_000) -> SharedState:
    """A bucket that owes this much, by a Fetch of another connection."""
    shared = shared_of(limits_of(fetch_rate=rate))
    other = shell_of(shared)
    other.client_sends(fetch())
    other.broker_sends(fetch_answer_of(rate + int(debt_ms * rate / 1_000)))
    return shared
