"""Two worlds that are given the same: in one Python alone, in the other the pump, or both by turns.

After each step all that can be seen of them must be equal: bytes on both sides, what is in flight, records
and events, sensors, the state of the connection; now and then, and at the end, all that they hold
(snapshot.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from sluice.protocol.errors import ProtocolError
from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.gateway.broker_map import BrokerMap
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.principal import PairKeys
from sluice.usage.flow import TopicNames
from sluice.usage.records import Recorder
from sluice.usage.request_cost import Coefficients, CostRow, RequestCosts
from testkit.proxy.data_paths import path_of
from testkit.proxy.playbook import Shell
from testkit.pump import traffic
from testkit.pump.snapshot import flow_key, snapshot

COSTS: Final = RequestCosts([
    CostRow(Coefficients(0.3, 1e-5, 2e-5, 0.01, 0.001), api_key=0, codec=0),
    CostRow(Coefficients(0.1, 1e-5, 1e-5)),
])  # fmt: skip
CONNECTIONS: Final = 3
RELOADS: Final = (
    "",
    "",
    "producer_byte_rate",
    "request_percentage",
    "request_percentage",
    "producer_ids_rate",
)
SNAPSHOT_EVERY: Final = 64
"""steps: it takes as long as all of these"""


class Difference(AssertionError):
    """The worlds are not equal: what differs, and after what."""


class Setting:
    """What an episode has: limits, an access log, how requests are paced. By its seed."""

    def __init__(self, random: Random) -> None:
        self.produce = random.choice((None, 10**12, 10**12, 100_000, 20_000))
        self.fetch = random.choice((None, 10**12, 50_000))
        self.percentage = random.choice((None, 10**6, 10**6, 20, 2, 0.2))
        self.ids = random.choice((None, 1_000, 1_000, 2))
        self.has_log = random.random() < 0.7
        self.pacing: Any = random.choice(("smooth", "smooth", "smooth", "kafka"))
        self.is_hostile = random.random() < 0.3
        self.mixes = random.random() < 0.5
        self.is_gateway = random.random() < 0.4
        self.stale = random.choice((b"", b"\0", b"\xff", traffic.produce(9, 1, "app", 0, 0, 300, 7)))

    def limits(self, factor: float = 1.0, without: str = "") -> QuotaLimits:
        """After a reload: `factor` of the byte rates, and `without` one of them all."""
        rates = {
            "producer_byte_rate": None if self.produce is None else self.produce * factor,
            "consumer_byte_rate": self.fetch,
            "request_percentage": self.percentage,
            "producer_ids_rate": self.ids,
        }
        of_users = {key: rate for key, rate in rates.items() if rate is not None and key != without}
        return QuotaLimits([(QuotaEntity(DEFAULT, None), of_users)] if of_users else [])


class World:
    """Some connections of one process."""

    def __init__(self, setting: Setting, path: str, mixer: Random | None) -> None:
        self.shared = SharedState(
            QuotaManager(setting.limits(), pacing=setting.pacing),
            Recorder(),
            topic_names=TopicNames() if setting.has_log else None,
        )
        self.shared.producer_ids.quota.pair_keys = PairKeys(bytes(16))  # else each world has its own salt
        brokers = BrokerMap("gw", 9100, 0, 10, bind_port=9092) if setting.is_gateway else None
        policy = SessionPolicy(request_costs=COSTS, broker_map=brokers)
        self.shells = []
        for number in range(CONNECTIONS):
            session = path_of(path).session(self.shared, policy, f"10.0.0.{number}")
            if mixer is not None:
                _mix(session, mixer)
            self.shells.append(Shell(session, stale=setting.stale))

    def advance(self, ms: float) -> None:
        """For all connections."""
        for shell in self.shells:
            shell.advance(ms)

    def reload(self, limits: QuotaLimits) -> None:
        """Other limits are in force."""
        self.shared.quotas.reload(limits, self.shells[0].now_ms)

    def seen(self) -> list[object]:
        """What is told of everything since the last time."""
        recorder = self.shared.recorder
        found: list[object] = []
        for shell in self.shells:
            session = shell.session
            found += (
                bytes(shell.to_broker), bytes(shell.to_client), shell.kept, shell._broker_kept,
                [_entry(entry) for entry in session._in_flight],
                [getattr(session.pace, key) for key in type(session.pace).__slots__],
                session.requests, session.bytes_from_client, session.bytes_to_client, session.due_bytes,
                repr(session), session.at_boundary, session.identity.user,
                flow_key(session.identity.flow),
            )  # fmt: skip
            shell.to_broker.clear()
            shell.to_client.clear()
        found += (
            [(flow_key(flow), *fields, _sensor(sensor)) for flow, *fields, sensor in recorder.requests],
            [event._replace(flow=None) for event in recorder.throttles],
            [(flow_key(amount.flow), *amount[1:]) for amount in recorder.amounts],
            [
                (sensor.kind, str(sensor.entity), sensor.charged, type(sensor.charged), sensor.eligible_at_ms,
                 sensor.last_ms, sensor.held, sensor.over, sensor.forgiven, getattr(sensor, "tat_ms", None))
                for sensor in self.shared.quotas.sensors()
            ],
        )  # fmt: skip
        recorder.clear()
        return found

    def all(self) -> object:
        """Everything that they hold."""
        return snapshot([shell.session for shell in self.shells])


def _entry(entry: tuple[Any, ...]) -> tuple[object, ...]:
    return (*entry[:3], flow_key(entry[3]), *entry[4:8], _sensor(entry[8]), entry[9], *map(type, entry))


def _sensor(sensor: Any) -> object:
    return None if sensor is None else (sensor.kind, str(sensor.entity))


def _mix(session: Session, random: Random) -> None:
    """Each call goes to the pump or to Python, as it falls."""
    scans: list[Callable[[bytearray, int, int, float], int]]
    for name, scans in (
        ("client_data", [session.client_data, PURE.session.request_side.data.__get__(session._requests)]),
        ("broker_data", [session.broker_data, PURE.session.answer_side.data.__get__(session._answers)]),
    ):

        def scan(buf: bytearray, start: int, end: int, now_ms: float, scans: list[Any] = scans) -> int:
            found: int = random.choice(scans)(buf, start, end, now_ms)
            return found

        setattr(session, name, scan)


class Twins:
    """An episode: both worlds, and what clients and brokers do next. Raises Difference."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random = Random(seed)
        self.setting = setting = Setting(random)
        mixer = Random(seed) if setting.mixes else None
        self.worlds = (World(setting, PURE.name, None), World(setting, PUMP, mixer))
        self._clients = [traffic.Client(random, setting.is_hostile) for _ in range(CONNECTIONS)]
        self._unsent = [b""] * CONNECTIONS
        self._answered = [b""] * CONNECTIONS
        self._due = [0] * CONNECTIONS  # of those in flight, so many have an answer in _answered
        self._is_told = False  # the last step ended in an error of protocol
        self._is_broken = [False] * CONNECTIONS  # what a broker sent ended it: its shell would be gone
        self.steps = 0

    def step(self) -> None:
        """Anything may come next."""
        random = self._random
        number = random.randrange(CONNECTIONS)
        chosen = random.random()
        if chosen < 0.5:
            what = self._client_sends(number)
        elif chosen < 0.9:
            what = self._broker_sends(number)
        elif chosen < 0.985:
            ms = random.choice((0.1, 0.3, 1.0, 7.0, 40.0, 1_500.0))
            what = self._both(f"{ms} ms pass", lambda world: world.advance(ms))
        elif chosen < 0.998:
            limits = self.setting.limits(random.choice((0.5, 1.0, 3.0)), random.choice(RELOADS))
            what = self._both("a reload", lambda world: world.reload(limits))
        else:
            what = self._both(f"{number} leaves", lambda world: world.shells[number].client_leaves())
        self.steps += 1
        self._compare(what)

    @property
    def is_over(self) -> bool:
        """No client can send any more."""
        shells = self.worlds[0].shells
        return all(
            broken or shell.state is State.ENDING
            for broken, shell in zip(self._is_broken, shells, strict=True)
        )

    def _client_sends(self, number: int) -> str:
        random = self._random
        if self.worlds[0].shells[number].client_left or self._is_broken[number]:
            return "nothing"
        data = self._unsent[number]
        data += b"".join(self._clients[number].frame() for _ in range(random.choice((1, 1, 1, 2, 5))))
        cut = len(data) if random.random() < 0.7 else random.randrange(len(data) + 1)
        self._unsent[number] = data[cut:]
        sent = data[:cut]
        return self._both(
            f"{number} sends {sent[:64].hex()}… ({len(sent)} bytes)",
            lambda world: world.shells[number].client_sends(sent),
        )

    def _broker_sends(self, number: int) -> str:
        random = self._random
        if self._is_broken[number]:
            return "nothing"
        in_flight = self.worlds[0].shells[number].session._in_flight
        due = self._due[number]
        waiting = list(in_flight)[due : due + random.choice((1, 1, 2, 6))]
        for entry in waiting:
            if entry[9].name == "LOCAL":
                break
            self._answered[number] += traffic.answer(
                random, entry[1], entry[2], entry[0], is_hostile=self.setting.is_hostile
            )
            due += 1
        data = self._answered[number]
        cut = len(data) if random.random() < 0.7 else random.randrange(len(data) + 1)
        sent, self._answered[number] = data[:cut], data[cut:]
        if not sent:
            self._due[number] = due
            return "nothing"
        what = self._both(
            f"to {number} the broker sends {sent[:40].hex()}… ({len(sent)} bytes)",
            lambda world: world.shells[number].broker_sends(sent),
        )
        if self._is_told:
            self._is_broken[number] = True
            return what
        # Those that are in flight still and whose answer has been begun stand at its begin.
        self._due[number] = _whole_frames(self._answered[number], self.worlds[0].shells[number])
        return what

    def _both(self, what: str, act: Callable[[World], object]) -> str:
        told = [_told(act, world) for world in self.worlds]
        if told[0] != told[1]:
            self._differs(what, told[0], told[1])
        self._is_told = told[0] is not None
        return what if told[0] is None else f"{what}: {told[0]}"

    def _compare(self, what: str) -> None:
        pure, pump = (world.seen() for world in self.worlds)
        if pure != pump:
            for one, other in zip(pure, pump, strict=True):
                if one != other:
                    self._differs(what, one, other)
        if self.steps % SNAPSHOT_EVERY == 0 or self.is_over:
            one_all, other_all = (world.all() for world in self.worlds)
            if one_all != other_all:
                self._differs(what, *_first_difference(one_all, other_all))

    def _differs(self, what: str, pure: object, pump: object) -> None:
        raise Difference(
            f"seed {self._seed}, step {self.steps}: after {what}\n  pure {pure!r}\n  pump {pump!r}"
        )


def _told(act: Callable[[World], object], world: World) -> str | None:
    try:
        act(world)
    except ProtocolError as error:
        return f"{type(error).__name__}: {error}, cause {error.cause}, good to {error.good_end}"
    return None


def _whole_frames(rest: bytes, shell: Shell) -> int:
    """How many of those in flight have an answer that is begun, or waits."""
    data, count = shell._broker_kept + rest, 0
    skip = shell.session._answers._skip
    data = data[skip:]
    while len(data) >= 4:
        size = int.from_bytes(data[:4], "big")
        data = data[4 + size :]
        count += 1
    return count + bool(data)


def _first_difference(one: Any, other: Any, path: str = "") -> tuple[object, object]:
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for index, (mine, others) in enumerate(zip(one, other, strict=True)):
            if mine != others:
                here = f"{path}.{one[0] if isinstance(one[0], str) else ''}[{index}]"
                return _first_difference(mine, others, here)
    return (path, one), (path, other)
