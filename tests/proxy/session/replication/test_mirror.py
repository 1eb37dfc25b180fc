"""Followers' sessions, mirrored: any order of events, against Kafka's own rules for them (replica_model)."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from sluice.protocol.apis import ErrorCode
from sluice.protocol.replication.fetch_request import PartitionKey
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from sluice.quotas.replication.throttle import QUANTUM_MS
from testkit.oracles.replica_model import CAP, Log, ModelFollower, key_of
from testkit.oracles.replica_world import ALL_REPLICAS, LEADER, NAMES, World
from testkit.thorough import cases


def a_world(
    rate: float | None, partitions: int, records: int, record_bytes: int, followers: int = 1
) -> tuple[World, list[ModelFollower]]:
    """Followers that are behind on all partitions, all throttled."""
    world = World()
    if rate is not None:
        world.limit(ReplicationLimits({LEADER: rate}, {}, ALL_REPLICAS))
    found = []
    for number in range(followers):
        follower = ModelFollower(2 + number)
        for index in range(partitions):
            log = world.broker.logs.setdefault(key_of(index % 3, index), Log(record_bytes, records))
            assert not log.in_sync
            follower.wanted[key_of(index % 3, index)] = 0
        found.append(follower)
    return world, found


def is_done(world: World, follower: ModelFollower) -> bool:
    return all(at == world.broker.logs[key].end for key, at in follower.wanted.items())


def run(world: World, followers: list[ModelFollower], latency_ms: float, until_ms: float) -> None:
    """All followers at once, each with its thread: asks, is held, waits at the broker, reads, asks again.

    Until they are all done; raises AssertionError if they are not by `until_ms`.
    """
    due = [(world.now_ms, number) for number in range(len(followers))]
    asked: dict[int, bytes] = {}
    answers: dict[int, bytes] = {}
    while not all(is_done(world, follower) for follower in followers):
        world.now_ms, number = heappop(due)
        assert world.now_ms < until_ms, "somebody starves"
        follower = followers[number]
        door = world.door(follower)
        if number in answers:
            answer = answers.pop(number)
            door.pass_on(answer, world.now_ms, 60)
            follower.handle(answer, world.broker.logs)
        frame = asked.pop(number, b"") or follower.ask()
        what, out = door.ask(frame, world.now_ms)
        if what == "held":
            asked[number] = frame
            heappush(due, (door.pace.wake_at_ms, number))
            continue
        assert what == "sent"
        before = len(answers)
        answers[number] = world.broker.serve(out)
        assert len(answers) == before + 1
        waits_ms = 0.0 if world.broker.last_bytes else world.broker.last_max_wait_ms
        heappush(due, (world.now_ms + latency_ms + waits_ms, number))


@settings(max_examples=cases(25), deadline=None)
@given(
    rate=st.sampled_from([500.0, 20_000.0]),
    partitions=st.integers(1, 8),
    record_bytes=st.sampled_from([90, 900, 2_500]),
    followers=st.integers(1, 3),
    latency_ms=st.sampled_from([1.0, 40.0]),
)
def test_all_get_there_at_the_rate_whatever_a_batch_weighs(
    rate: float, partitions: int, record_bytes: int, followers: int, latency_ms: float
) -> None:
    """Also a batch of 2,500 bytes where the cap is 1,000 and a second's quota 500."""
    records = max(2, int(rate) // record_bytes)
    world, all_followers = a_world(rate, partitions, records, record_bytes, followers)
    begun_ms = world.now_ms
    total_bytes = records * record_bytes * partitions * followers
    least_ms = 1000.0 * total_bytes / rate
    run(world, all_followers, latency_ms, begun_ms + 1.3 * least_ms + 15_000.0)
    last_batches = record_bytes * followers + int(2 * rate * QUANTUM_MS / 1000)
    took_ms = world.now_ms - begun_ms
    assert total_bytes <= rate * took_ms / 1000.0 + last_batches * (1 + partitions)
    assert all(not follower.errors for follower in all_followers)


def test_a_move_is_even_and_at_its_rate() -> None:
    """50 kB/s for 40 s, one partition: no second further than a quantum from the rate."""
    world, (follower,) = a_world(50_000.0, 1, 40_000, 100)
    begun_ms = world.now_ms
    seconds = [0] * 40
    while world.now_ms - begun_ms < 39_000.0:
        before = sum(follower.came_bytes.values())
        world.fetch(follower)
        came = sum(follower.came_bytes.values()) - before
        seconds[int((world.now_ms - begun_ms) // 1000.0)] += came
        world.now_ms += 3.0 if came else world.broker.last_max_wait_ms
    assert all(45_000 <= second <= 55_000 for second in seconds[1:38])
    assert abs(sum(seconds[1:38]) / 37 - 50_000) < 500


def test_followers_of_one_leader_share_its_rate_evenly() -> None:
    world, followers = a_world(20_000.0, 3, 20_000, 100, followers=3)
    for _ in range(300):
        for follower in followers:
            world.fetch(follower)
            world.now_ms += 2.0
    came = [sum(follower.came_bytes.values()) for follower in followers]
    assert max(came) < 1.1 * min(came)


def test_a_follower_with_a_lower_rate_of_its_own_gets_it_beside_one_without() -> None:
    """Of a leader's 4,000 B/s one may take 1,000: it has them in 10 s, and the other what is left."""
    world, followers = a_world(None, 1, 1, 16, followers=2)
    limits = ReplicationLimits({LEADER: 4_000.0}, {2: 1_000.0}, ALL_REPLICAS, ALL_REPLICAS)
    world.limit(limits)
    for follower, wanted_bytes, topic in zip(followers, (10_000, 30_000), (1, 2), strict=True):
        follower.wanted.clear()
        key = key_of(topic, topic)
        world.broker.logs[key] = Log(16, wanted_bytes // 16)
        follower.wanted[key] = 0
    begun_ms = world.now_ms
    run(world, followers, 2.0, begun_ms + 10_500.0)
    assert world.now_ms - begun_ms > 9_500.0


def test_a_batch_larger_than_its_cap_gets_through_behind_a_busy_partition() -> None:
    """2,500 bytes at a cap of 1,000: nothing comes, for `busy` is first each time; so the cap grows."""
    world, (follower,) = a_world(20_000.0, 1, 4, 2_500)
    busy = key_of(3, 0)
    world.broker.logs = {busy: Log(10), **world.broker.logs}
    follower.wanted = {busy: 0, **follower.wanted}
    for _ in range(200):
        world.broker.logs[busy].end += 1
        world.fetch(follower)
        world.now_ms += 20.0
    world.broker.logs[busy].end = follower.wanted[busy]
    assert is_done(world, follower)


def test_partitions_with_little_left_share_a_turn() -> None:
    """Twelve of 600 bytes at 20 kB/s: a turn of 100 ms has room for three of them, not for one."""
    world, (follower,) = a_world(20_000.0, 12, 60, 10)
    came = []
    for _ in range(10):
        before = sum(follower.came_bytes.values())
        world.fetch(follower)
        came.append(sum(follower.came_bytes.values()) - before)
        world.now_ms += 100.0
    assert is_done(world, follower)
    assert max(came) <= 2 * 2_000 + 600


def test_an_in_sync_replica_is_never_left_out_while_others_catch_up() -> None:
    """`hot` is in sync and written to all the time; its followers see every record at once."""
    world, (follower,) = a_world(500.0, 4, 100, 100)
    hot = key_of(3, 0)
    world.broker.logs[hot] = Log(10)
    follower.wanted[hot] = 0
    world.limit(ReplicationLimits({LEADER: 500.0}, {}, ALL_REPLICAS))
    world.fetch(follower)
    for _ in range(200):
        world.broker.logs[hot].end += 1
        world.fetch(follower)
        world.now_ms += 5.0
        assert follower.wanted[hot] == world.broker.logs[hot].end
    assert any(at < 100 for key, at in follower.wanted.items() if key != hot)


def test_bytes_of_those_in_sync_count_where_they_are_throttled() -> None:
    """KAFKA-4313: they pass, and those that are behind wait the longer for it."""
    world, (follower,) = a_world(1_000.0, 1, 3, 10)
    while not is_done(world, follower):
        world.fetch(follower)
        world.now_ms += 100.0
    world.fetch(follower)
    bucket = world.replication.leader_bucket
    assert bucket is not None
    before = bucket.passed_bytes
    (log,) = world.broker.logs.values()
    log.end += 50
    world.fetch(follower)
    assert is_done(world, follower)
    assert bucket.passed_bytes == before + 500
    assert bucket.tokens_bytes(world.now_ms) < 0.0


def test_an_unknown_session_is_refused_once() -> None:
    world, (follower,) = a_world(1_000.0, 2, 5, 10)
    for _ in range(3):
        world.fetch(follower)
    world.replication = Replication(LEADER)  # the follower has not noticed
    world.doors.clear()
    for _ in range(5):
        world.fetch(follower)
    assert follower.errors == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    assert world.replication.unknown_sessions == 1


def test_caps_are_restored_when_the_throttle_ends() -> None:
    world, (follower,) = a_world(500.0, 5, 100, 100)
    for _ in range(4):
        world.fetch(follower)
        world.now_ms += 50.0
    world.limit(ReplicationLimits())
    world.fetch(follower)
    session = world.broker.sessions[follower.session_id]
    assert session.partitions.keys() == follower.wanted.keys()
    assert {cap for _, cap, _ in session.partitions.values()} == {CAP}


def test_without_a_throttle_a_request_goes_as_it_is() -> None:
    world, (follower,) = a_world(None, 5, 100, 100)
    for _ in range(12):
        frame = follower.ask()
        what, out = world.door(follower).ask(frame, world.now_ms)
        assert (what, out) == ("sent", frame)
        answer = world.broker.serve(out)
        world.door(follower).pass_on(answer, world.now_ms, 50)
        follower.handle(answer, world.broker.logs)


@pytest.mark.parametrize("followers", [1, 3])
def test_followers_without_a_session_get_the_rate_too(followers: int) -> None:
    """The broker gives none: every fetch is full, and brings one batch at least."""
    world, found = a_world(10_000.0, 3, 100, 1_000, followers=followers)
    world.broker.gives_sessions = False
    begun_ms = world.now_ms
    due_ms = 3 * 100 * 1_000 * followers / 10_000.0 * 1000.0
    run(world, found, 5.0, begun_ms + 1.1 * due_ms)
    assert world.now_ms - begun_ms >= 0.95 * due_ms


class AnyOrder(RuleBasedStateMachine):
    """Every event of a session's life, in any order, of two followers."""

    @initialize(version=st.sampled_from([13, 15, 18]))
    def begin(self, version: int) -> None:
        self.world = World()
        self.followers = [ModelFollower(2, version), ModelFollower(3, version)]
        self.errors_due = [0, 0]
        for topic in range(3):
            for partition in range(2):
                self.world.broker.logs[key_of(topic, partition)] = Log(10 + 500 * topic, 3)
        self.world.broker.logs[key_of(3, 0)] = Log(10)

    keys = st.builds(key_of, st.integers(0, 2), st.integers(0, 1)) | st.just(key_of(3, 0))
    who = st.integers(0, 1)

    @rule(who=who, cut=st.integers(0, 300), times=st.integers(1, 4))
    def fetch(self, who: int, cut: int, times: int) -> None:
        follower = self.followers[who]
        for _ in range(times):
            if follower.wanted or follower.session:
                self.world.fetch(follower, cut)
        assert len(follower.errors) <= self.errors_due[who]

    @rule(who=who, key=keys)
    def begin_to_follow(self, who: int, key: PartitionKey) -> None:
        self.followers[who].wanted.setdefault(key, 0)

    @rule(who=who, key=keys)
    def stop_to_follow(self, who: int, key: PartitionKey) -> None:
        if self.followers[who].wanted.pop(key, None) is not None:
            log = self.world.broker.logs[key]
            log.in_sync.discard(self.followers[who].replica_id)

    @rule(who=who, key=keys, to=st.integers(0, 5))
    def truncate(self, who: int, key: PartitionKey, to: int) -> None:
        """As after an epoch that diverged."""
        follower = self.followers[who]
        if key in follower.wanted and follower.wanted[key] > to:
            follower.wanted[key] = to
            self.world.broker.logs[key].in_sync.discard(follower.replica_id)

    @rule(key=keys, records=st.integers(1, 20))
    def produce(self, key: PartitionKey, records: int) -> None:
        self.world.broker.logs[key].end += records

    @rule(ms=st.sampled_from([1.0, 30.0, 200.0, 3_000.0]))
    def wait(self, ms: float) -> None:
        self.world.now_ms += ms

    @rule(
        rates=st.dictionaries(st.just(LEADER), st.sampled_from([50.0, 1_000.0, 1e6])),
        followers=st.dictionaries(st.sampled_from([2, 3]), st.sampled_from([50.0, 1_000.0])),
        topics=st.sets(st.sampled_from(list(NAMES.values()))),
        pairs=st.none() | st.frozensets(st.tuples(st.integers(0, 1), st.sampled_from([1, 2, 3]))),
    )
    def limit(
        self,
        rates: dict[int, float],
        followers: dict[int, float],
        topics: set[str],
        pairs: frozenset[tuple[int, int]] | None,
    ) -> None:
        replicas = ThrottledReplicas(all=True) if pairs is None else ThrottledReplicas(pairs)
        listed = dict.fromkeys(topics, replicas)
        self.world.limit(ReplicationLimits(rates, followers, listed, listed))

    @rule(who=who, reached=st.booleans())
    def lose_the_connection(self, who: int, reached: bool) -> None:
        """With a request on its way, which may have reached the broker."""
        follower = self.followers[who]
        if follower.wanted:
            request = self.world.to_broker(follower)
            if request is not None and reached:
                self.world.broker.serve(request)
            assert len(follower.errors) <= self.errors_due[who]
        self.world.disconnect(follower)
        follower.lost()

    @rule(who=who)
    def another_connection(self, who: int) -> None:
        """Of the same session: it belongs to no connection."""
        self.world.disconnect(self.followers[who])

    @rule()
    def restart_the_proxy(self) -> None:
        """Seen by a follower that has a connection just now; another goes on with its session."""
        for who, follower in enumerate(self.followers):
            if follower not in self.world.doors:
                self.errors_due[who] = len(follower.errors) + 1
        self.world.restart_proxy()

    @rule()
    def restart_the_proxy_unseen(self) -> None:
        """A follower that had nothing on its way goes on with its session, which is not known here."""
        self.world.replication = Replication(LEADER)
        self.world.limit(self.world.limits)
        self.world.doors.clear()
        self.errors_due = [len(follower.errors) + 1 for follower in self.followers]

    @rule(who=who)
    def the_broker_forgets_a_session(self, who: int) -> None:
        if self.world.broker.sessions.pop(self.followers[who].session_id, None) is not None:
            self.errors_due[who] = len(self.followers[who].errors) + 1

    @rule(gives=st.booleans())
    def the_broker_gives_sessions(self, gives: bool) -> None:
        self.world.broker.gives_sessions = gives


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=cases(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
