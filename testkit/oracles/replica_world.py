"""A proxy between a model leader and its model followers (replica_model); time passes only as it is told."""

from __future__ import annotations

from sluice.protocol.addresses.addresses import spliced
from sluice.protocol.apis import ErrorCode
from sluice.protocol.replication.fetch_request import PartitionKey
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.session import Session
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from sluice.quotas.replication.throttle import MAX_DEBT_MS
from testkit.oracles.replica_model import CAP, Log, ModelBroker, ModelFollower, key_of
from testkit.proxy.playbook import limits_of, shared_of

LEADER = 1
NAMES = {key_of(topic, 0)[0]: f"t{topic}" for topic in range(4)}
ALL_REPLICAS = {name: ThrottledReplicas(all=True) for name in NAMES.values()}


class Door:
    """One connection, the proxy's whole session: a request comes out changed, held or answered."""

    def __init__(self, replication: Replication) -> None:
        self.replication = replication
        policy = SessionPolicy(replication=replication)
        self.session = Session(shared_of(limits_of()), policy, "10.0.0.1")
        self.pace = self.session.pace

    def ask(self, frame: bytes, now_ms: float) -> tuple[str, bytes]:
        """("sent", frame) to the broker; ("held", nothing) until pace.wake_at_ms; ("answered", frame)."""
        session = self.session
        buf = bytearray(frame + b"\xff" * 9)
        end = len(frame)
        session.wake(now_ms, client_left=False)
        for cut in (3, 20, end - 1):  # it comes in pieces
            assert session.client_data(buf, 0, cut, now_ms) == 0
        went = session.client_data(buf, 0, end, now_ms)
        if not went:
            assert self.pace.state is State.MUTED
            return "held", b""
        assert went == end
        assert self.pace.state is State.READING
        out = bytes(spliced(memoryview(buf), 0, end, session.drops))
        session.drops.clear()
        if session.local_answers:
            assert not out
            (answer,) = session.local_answers
            session.local_answers.clear()
            return "answered", answer
        return "sent", out

    def pass_on(self, answer: bytes, now_ms: float, cut: int) -> None:
        """The answer comes in pieces, all of which go on as they are."""
        session = self.session
        cut = min(max(cut, 8), len(answer) - 1)
        kept = b""
        passed = 0
        for piece in (answer[:5], answer[5:cut], answer[cut:]):
            buf = bytearray(kept + piece + b"\xff" * 9)
            went = session.broker_data(buf, 0, len(kept) + len(piece), now_ms)
            passed += went
            kept = bytes(buf[went : len(kept) + len(piece)])
            assert session.broker_frames.passing_bytes == 0, "none of it may pass unseen"
        assert passed == len(answer)
        assert not session.in_flight


class World:
    """A leader, the proxy before it, followers; time passes only as it is told."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.broker = ModelBroker()
        self.limits = ReplicationLimits()
        self.replication = Replication(LEADER)
        self.doors: dict[ModelFollower, Door] = {}
        self.expected_errors = 0

    def limit(self, limits: ReplicationLimits) -> None:
        self.limits = limits
        self.replication.apply(limits, NAMES, self.now_ms)

    def restart_proxy(self) -> None:
        self.replication = Replication(LEADER)
        self.replication.apply(self.limits, NAMES, self.now_ms)
        for follower in self.doors:
            follower.lost()
        self.doors.clear()

    def door(self, follower: ModelFollower) -> Door:
        return self.doors.setdefault(follower, Door(self.replication))

    def disconnect(self, follower: ModelFollower) -> None:
        door = self.doors.pop(follower, None)
        if door is not None:
            door.session.closed(self.now_ms)

    def to_broker(self, follower: ModelFollower) -> bytes | None:
        """The follower's next fetch as it goes on, after what holds it; None: it was answered here."""
        frame = follower.ask()
        door = self.door(follower)
        held_ms = 0.0
        while True:
            what, out = door.ask(frame, self.now_ms)
            if what == "sent":
                return out
            if what == "answered":
                follower.handle(out, self.broker.logs)
                assert follower.errors[-1] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
                return None
            held_ms += door.pace.wake_at_ms - self.now_ms
            assert held_ms <= MAX_DEBT_MS + 2_000.0, "held for too long"
            self.now_ms = door.pace.wake_at_ms

    def fetch(self, follower: ModelFollower, cut: int = 10_000) -> None:
        """A whole round: asked, served, answered."""
        in_sync = {
            key
            for key in follower.wanted
            if follower.replica_id in self.broker.logs[key].in_sync
            and follower.wanted[key] >= self.broker.logs[key].high_watermark
        }
        request = self.to_broker(follower)
        if request is None:
            return
        answer = self.broker.serve(request)
        self.check(follower, in_sync)
        self.door(follower).pass_on(answer, self.now_ms, cut)
        follower.handle(answer, self.broker.logs)

    def check(self, follower: ModelFollower, in_sync: set[PartitionKey]) -> None:
        """Between request and answer: the broker's session is what the mirror says."""
        session = self.broker.sessions.get(follower.session_id)
        mirrors = [m for m in self.replication.sessions if m.session_id == follower.session_id]
        if session is None or not mirrors or follower.epoch <= 0:
            return
        (mirror,) = mirrors
        assert mirror.partitions.keys() == follower.session.keys()
        inside = {key: p for key, p in mirror.partitions.items() if p.inside}
        assert session.partitions.keys() == inside.keys()
        for key, (_, cap, _) in session.partitions.items():
            partition = inside[key]
            assert cap == partition.sent_cap
            assert partition.offset == follower.session[key]
            if key not in mirror.waiting:
                assert cap == CAP
        for key in follower.session:
            partition = mirror.partitions[key]
            if key not in mirror.waiting or (key in in_sync and partition.high_watermark >= 0):
                assert partition.inside, "a partition that is in sync, or not throttled, is left out"
                assert session.partitions[key][0] == follower.session[key]


def a_move(first: int, second: int, rate_bytes_per_s: float) -> tuple[World, ModelFollower]:
    """Two partitions with so many records of 100 bytes, of which one round has come."""
    world = World()
    world.limit(ReplicationLimits({LEADER: rate_bytes_per_s}, {}, ALL_REPLICAS))
    follower = ModelFollower(2)
    for index, records in enumerate((first, second)):
        world.broker.logs[key_of(index, index)] = Log(100, records)
        follower.wanted[key_of(index, index)] = 0
    for _ in range(8):
        world.fetch(follower)
        world.now_ms += 50.0
    return world, follower
