"""Who is throttled, by how much: sensors and sessions → rows, in order, and what each row says of itself."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from sluice.proxy.admin.top.row import MAX_CONNECTIONS, Row
from sluice.proxy.admin.top.rows import NO_ADDRESSES, SENSORS_PER_STEP, Survey
from sluice.proxy.admin.top.search import Search
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.connection.rates import ConnectionRates
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, Tenant
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from testkit.frames.frames import fetch, fetch_answer_of, produce_of
from testkit.proxy.playbook import START_MS, Shell, limits_of, shared_of


@dataclass
class Client:
    """A connection, as far as it is looked at."""

    peer: str
    session: Session


def survey(shared: SharedState, *shells: Shell, at_ms: float = START_MS, max_rows: int = 200) -> Survey:
    found = Survey(max_rows)
    clients = [Client(f"10.0.0.1:{port}", shell.session) for port, shell in enumerate(shells, start=5000)]
    steps = found.steps(
        list(shared.quotas.sensors()),
        shared.producer_ids,
        shared.quotas.limits,
        lambda: clients,
        lambda: at_ms,
    )
    for _ in steps:
        pass
    return found


def connected(shared: SharedState, user: str = "ANONYMOUS") -> Shell:
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1", user))


def shown(row: Row) -> dict[str, Any]:
    found = row.to_json()
    return {key: found[key] for key in ("quota", "bucket", "rule", "limit", "tokens", "delay_ms")}


def test_a_bucket_in_debt_owes_its_debt_over_its_limit() -> None:
    """1,500 B against 1,000 B of burst at 1,000 B/s: −500 B, 500 ms; 200 ms later 300 of them."""
    shared = shared_of(limits_of(produce_rate=1_000))
    shell = connected(shared, "alice")
    shell.client_sends(produce_of(1_500))
    found = survey(shared, shell, at_ms=START_MS + 200)
    (row,) = found.rows
    assert shown(row) == {
        "quota": "produce",
        "bucket": {"user": "alice"},
        "rule": "default_user",
        "limit": 1000.0,
        "tokens": -300.0,
        "delay_ms": 300.0,
    }
    (connection,) = row.shown
    assert (connection.state, connection.throttled_by, connection.for_ms) == ("muted", "produce", 300.0)
    assert (connection.peer, connection.user, connection.in_flight) == ("10.0.0.1:5000", "alice", 1)
    assert (found.throttled, found.throttled_connections, found.connections) == (1, 1, 1)


def test_a_connection_whose_request_waits_for_its_turn_is_told_apart() -> None:
    shared = shared_of(limits_of(produce_rate=1_000))
    first, second = connected(shared), connected(shared)
    first.client_sends(produce_of(1_500))
    second.client_sends(produce_of(200))
    (row,) = survey(shared, first, second).rows
    assert [(one.state, one.for_ms) for one in row.shown] == [("muted", 500.0), ("holding", 500.0)]
    assert (row.connections, row.throttled_connections) == (2, 2)


def test_a_connection_counts_in_each_bucket_that_it_charges_and_is_throttled_in_one() -> None:
    shared = shared_of(limits_of(produce_rate=1_000, fetch_rate=1_000))
    shell = connected(shared)
    shell.client_sends(produce_of(1_500))
    produce, fetched = survey(shared, shell).rows
    assert (produce.kind, produce.throttled_connections) == (QuotaKind.PRODUCE, 1)
    assert (fetched.kind, fetched.connections, fetched.throttled_connections) == (QuotaKind.FETCH, 1, 0)
    shell = connected(shared)
    shell.client_sends(fetch())
    shell.broker_sends(fetch_answer_of(3_000))
    rows = survey(shared, shell).rows
    assert [(row.kind, row.delay_ms) for row in rows] == [
        (QuotaKind.FETCH, 2000.0),
        (QuotaKind.PRODUCE, 500.0),
    ]


def test_the_most_throttled_come_first_then_the_nearest_to_the_limit() -> None:
    quotas = QuotaManager(limits_of(produce_rate=1_000))
    now_ms = START_MS
    for user, amount in (("idle", 0), ("half", 10_000), ("over", 3_000), ("way over", 9_000)):
        sensor = quotas.sensor(QuotaKind.PRODUCE, user, "", now_ms)
        assert sensor is not None
        if user == "half":
            for second in range(20):
                sensor.charge(500, now_ms + second * 1000.0)
        else:
            sensor.charge(amount, now_ms + 20_000)
    found = Survey(max_rows=3)
    for _ in found.steps(list(quotas.sensors()), ProducerIds(), quotas.limits, list, lambda: now_ms + 20_000):
        pass
    assert [row.bucket["user"] for row in found.rows] == ["way over", "over", "half"]
    assert found.rows[2].utilisation == pytest.approx(0.5)
    assert found.rows[2].used == pytest.approx(500.0)
    assert (found.sensors, found.active, found.throttled) == (4, 4, 2)


def test_a_bucket_that_nobody_used_for_longer_than_any_debt_lasts_is_not_looked_at() -> None:
    shared = shared_of(limits_of(produce_rate=1_000))
    connected(shared).client_sends(produce_of(1_500))
    assert survey(shared, at_ms=START_MS + 60_000).active == 1
    assert survey(shared, at_ms=START_MS + 60_001).active == 0


def test_in_shadow_mode_nobody_is_throttled() -> None:
    entity = QuotaEntity(DEFAULT, None)
    limits = QuotaLimits([(entity, {"producer_byte_rate": 1_000})], shadow={entity: ["producer_byte_rate"]})
    shared = shared_of(limits)
    shell = connected(shared)
    shell.client_sends(produce_of(1_500))
    found = survey(shared, shell)
    (row,) = found.rows
    assert (row.shadow, found.throttled, row.throttled_connections) == (True, 0, 0)


def test_in_shadow_mode_what_is_used_is_told_however_far_above_the_limit() -> None:
    """The debt is taken away at once, so that nobody owes; the metric tells the same share."""
    entity = QuotaEntity(DEFAULT, None)
    limits = QuotaLimits([(entity, {"producer_byte_rate": 1_000})], shadow={entity: ["producer_byte_rate"]})
    shared = shared_of(limits)
    connected(shared).client_sends(produce_of(50_000))
    now_ms = START_MS + 10_000.0
    (row,) = survey(shared, at_ms=now_ms).rows
    (sensor,) = shared.quotas.sensors()
    assert row.utilisation == sensor.utilisation(now_ms) > 4.0
    assert row.used == row.utilisation * 1_000
    why = row.to_json(limits)["why"]
    assert f"= {row.utilisation:,.1%}" in why[1]
    assert why[2].endswith("so much may pass at once; in shadow mode all passes, and nothing is owed")


def test_new_producer_ids_that_wait_are_a_row_of_their_user() -> None:
    limits = QuotaLimits([(QuotaEntity("alice"), {"producer_ids_rate": 2})])
    shared = shared_of(limits)
    shells = [connected(shared, "alice") for _ in range(4)]
    for producer_id, shell in enumerate(shells, start=100):
        shell.client_sends(produce_of(300, producer_id=producer_id))
    (row,) = survey(shared, *shells).rows
    assert (row.kind, row.bucket, row.limit) == (QuotaKind.PRODUCER_IDS, {"user": "alice"}, 2)
    assert row.rule == "user"
    assert (row.waiting, row.tokens, row.charged) == (2, -2.0, 2)
    assert row.delay_ms == pytest.approx(3_600_000.0)  # two ids at two an hour
    assert row.connections == 4
    assert [one.state for one in row.shown[:2]] == ["holding", "holding"]


def test_of_many_connections_the_longest_throttled_are_shown_and_all_are_counted() -> None:
    """55 of 100 B at 1,000 B/s: ten go, the next is muted for 100 ms, each further one held for 100 more."""
    shared = shared_of(limits_of(produce_rate=1_000))
    shells = [connected(shared) for _ in range(3 * MAX_CONNECTIONS)]
    for shell in shells[5:]:
        shell.client_sends(produce_of(100))
    (row,) = survey(shared, *shells).rows
    assert (row.connections, row.throttled_connections) == (len(shells) - 5, len(shells) - 15)
    waits = [one.for_ms for one in row.shown]
    assert len(waits) == MAX_CONNECTIONS
    assert waits == sorted(waits, reverse=True)
    assert waits[0] == (len(shells) - 5 - 11) * 100.0


def test_the_work_is_done_in_steps() -> None:
    quotas = QuotaManager(limits_of(produce_rate=1_000))
    for number in range(3 * SENSORS_PER_STEP):
        quotas.sensor(QuotaKind.PRODUCE, f"user-{number}", "", START_MS)
    found = Survey(max_rows=5)
    steps = found.steps(list(quotas.sensors()), ProducerIds(), quotas.limits, list, lambda: START_MS)
    assert len(list(steps)) == 3
    assert (len(found.rows), found.sensors) == (5, 3 * SENSORS_PER_STEP)


# Why --------------------------------------------------------------------------------------------------------


def test_a_row_explains_the_level_and_the_arithmetic_and_each_connection() -> None:
    limits = QuotaLimits(
        [
            (QuotaEntity("alice"), {"producer_byte_rate": 1_000}),
            (QuotaEntity(DEFAULT), {"producer_byte_rate": 7}),
        ]
    )
    shared = shared_of(limits)
    shell = connected(shared, "alice")
    shell.client_sends(produce_of(5_000))
    (row,) = survey(shared, shell, at_ms=START_MS + 1_000).rows
    assert row.to_json(limits)["why"] == [
        "user (user 'alice'): 1,000 bytes per second. Applies: the first level in the order that has a "
        "producer_byte_rate for this client.",
        "default_user (user <default>): 7 bytes per second. Has a producer_byte_rate, but user comes first "
        "in the order.",
        "charged 5,000 bytes since the bucket began; lately 5,000 of 1,000 bytes per second = 500.0%",
        "tokens -3,000 bytes: 3,000 ÷ 1,000 per second = 3,000.0 ms until the debt is paid",
        "10.0.0.1:5000 (alice/app): nothing is read from it for 3,000.0 ms more",
        "every level and its entry: sluice quotas explain --user alice --client-id app --config FILE",
    ]


def test_names_are_cut_where_they_are_told_and_the_reasons_are_those_of_the_whole() -> None:
    """A name in the quota file may have 32 KiB, and each connection of its bucket would tell all of it."""
    name = "n" * 9_000
    shared = shared_of(QuotaLimits([(QuotaEntity(name, name), {"producer_byte_rate": 1_000})]))
    shells = [connected(shared, name) for _ in range(3)]
    for shell in shells:
        shell.client_sends(produce_of(30_000, client_id=name))
    (row,) = survey(shared, *shells).rows
    found = row.to_json(shared.quotas.limits)
    assert found["bucket"] == {"user": "n" * 256, "client-id": "n" * 256}
    assert {(one["user"], one["client_id"]) for one in found["shown"]} == {("n" * 256, "n" * 256)}
    told = [line for line in found["why"] if line.startswith("10.0.0.1:")]
    assert len(told) == 3
    assert all(f" ({'n' * 256}/{'n' * 256}): " in line for line in told)
    assert found["why"][0].startswith("user_client ")
    assert "Applies" in found["why"][0]


def test_what_many_long_client_ids_make_top_tell_is_short() -> None:
    shared = shared_of(QuotaLimits([(QuotaEntity(None, DEFAULT), {"producer_byte_rate": 1_000})]))
    shells = [connected(shared) for _ in range(5)]
    for number, shell in enumerate(shells):
        shell.client_sends(produce_of(40_000, client_id="\x01" * 32_760 + str(number)))
    rows = survey(shared, *shells).rows
    assert len(rows) == 5
    assert all(len(json.dumps(row.to_json(shared.quotas.limits))) < 10_000 for row in rows)


def test_an_address_that_connects_too_fast_is_a_row_with_its_connections() -> None:
    limits = QuotaLimits([(QuotaEntity(ip="10.0.0.1"), {"connection_creation_rate": 2})])
    shared = shared_of(limits)
    rates = ConnectionRates(shared.quotas, str, Counter())
    delays = [rates.delay_ms("10.0.0.1", START_MS) for _ in range(3)]
    assert [delay > 0.0 for delay in delays] == [False, False, True]
    shell = connected(shared)
    found = Survey()
    client = Client("10.0.0.1:5000", shell.session)
    now_ms = START_MS + 100.0
    for _ in found.steps([], ProducerIds(), limits, lambda: [client], lambda: now_ms, rates.buckets()):
        pass
    (row,) = found.rows
    assert (row.bucket, row.rule, row.limit, row.charged) == ({"ip": "10.0.0.1"}, "ip", 2, 2)
    assert row.tokens == pytest.approx(0.2)
    assert row.delay_ms == pytest.approx(400.0)
    assert (found.throttled, row.connections) == (1, 1)
    assert row.to_json(limits)["why"] == [
        "ip: 2 new connections per second.",
        "charged 2 connections since the bucket began; lately 2 of 2 new connections per second = 100.0%",
        "tokens 0.2 of the 1 that a connection takes: the next one is let in within 400.0 ms; until then who "
        "connects is left unserved, and closed",
        "every level and its entry: sluice quotas explain --user ANONYMOUS --address 10.0.0.1 --config FILE",
    ]


@pytest.mark.parametrize(
    ("own_limit", "max_addresses", "addresses", "told"),
    [
        ("", 100, ("2001:db8:0:1::7", "2001:db8:0:1::8"), {"2001:db8:0:1::": 2}),
        (
            "2001:db8:0:1::7",
            100,
            ("2001:db8:0:1::7", "2001:db8:0:1::8"),
            {"2001:db8:0:1::7": 1, "2001:db8:0:1::": 1},
        ),
        ("", 100, ("10.0.0.7", "::ffff:10.0.0.7", "10.0.0.8"), {"10.0.0.7": 2, "10.0.0.8": 1}),
        ("", 1, ("10.0.0.7", "10.0.0.8", "10.0.0.9"), {"10.0.0.7": 1, "all others": 2}),
    ],
    ids=["one of IPv6", "one with a limit of its own", "IPv4 in IPv6", "all others"],
)
def test_a_connection_is_at_the_bucket_that_its_address_is_counted_in_and_found_there(
    own_limit: str, max_addresses: int, addresses: tuple[str, ...], told: dict[str, int]
) -> None:
    rate = {"connection_creation_rate": 5}
    limits = QuotaLimits([(QuotaEntity(ip=ip), rate) for ip in (DEFAULT, own_limit) if ip])
    shared = shared_of(limits)
    key = ConnectionLimits().address_key
    rates = ConnectionRates(shared.quotas, key, Counter(), max_addresses=max_addresses)
    for address in addresses:
        rates.delay_ms(address, START_MS)
    clients = [Client(f"{address}:5000", connected(shared).session) for address in addresses]
    for search in (None, Search(lambda name: name == "ANONYMOUS")):
        found = Survey(search=search)
        for _ in found.steps([], ProducerIds(), limits, lambda: clients, lambda: START_MS, rates.buckets()):
            pass
        assert {row.bucket["ip"]: row.connections for row in found.rows} == told


def test_a_burst_in_a_short_life_is_not_above_the_limit() -> None:
    shared = shared_of(limits_of(produce_rate=1_000))
    connected(shared).client_sends(produce_of(900))
    (row,) = survey(shared, at_ms=START_MS + 1).rows
    assert (row.utilisation, row.delay_ms) == (1.0, 0.0)


def test_groups_are_explained_by_one_of_their_members() -> None:
    limits = QuotaLimits(
        [(QuotaEntity(Tenant("team"), Prefix("etl-")), {"producer_byte_rate": 1_000})],
        tenants={"team": ["bob", "carol"]},
    )
    shared = shared_of(limits)
    sensor = shared.quotas.sensor(QuotaKind.PRODUCE, "carol", "etl-1", START_MS)
    assert sensor is not None
    sensor.charge(2_000, START_MS)
    (row,) = survey(shared).rows
    assert row.bucket == {"tenant": "team", "client-id-prefix": "etl-"}
    why = row.to_json(limits)["why"]
    assert why[0].startswith("tenant_client_prefix (")
    assert "sluice quotas explain --user bob --client-id etl- --config FILE" in why[-1]


def test_a_name_cannot_leave_the_command_that_asks_further() -> None:
    limits = QuotaLimits([(QuotaEntity("a; rm -rf ~"), {"producer_byte_rate": 1_000})])
    shared = shared_of(limits)
    sensor = shared.quotas.sensor(QuotaKind.PRODUCE, "a; rm -rf ~", "", START_MS)
    assert sensor is not None
    sensor.charge(2_000, START_MS)
    (row,) = survey(shared).rows
    assert "explain --user 'a; rm -rf ~' --config FILE" in row.to_json(limits)["why"][-1]


def test_where_nobody_can_be_named_no_command_is_told() -> None:
    limits = QuotaLimits([(QuotaEntity(None, "app"), {"producer_byte_rate": 1_000})])
    shared = shared_of(limits)
    sensor = shared.quotas.sensor(QuotaKind.PRODUCE, "alice", "app", START_MS)
    assert sensor is not None
    sensor.charge(2_000, START_MS)
    (row,) = survey(shared).rows
    assert "explain" not in " ".join(row.to_json(limits)["why"])


def test_a_row_tells_for_how_much_of_the_last_minute_it_was_delayed() -> None:
    """3,000 B against 1,000 B of burst at 1,000 B/s: muted for 2 s, of which 1.5 s have passed; a limit in
    shadow mode delays nobody."""
    shared = shared_of(limits_of(produce_rate=1_000))
    meter = UsageMeter(shared.recorder, shared.quotas)
    shell = connected(shared, "alice")
    shell.client_sends(produce_of(3_000))
    meter.drain(START_MS)
    found, at_ms = Survey(), START_MS + 1_500.0
    sensors = list(shared.quotas.sensors())
    arguments = (shared.producer_ids, shared.quotas.limits, list, lambda: at_ms, NO_ADDRESSES)
    for _ in found.steps(sensors, *arguments, meter.delayed):
        pass
    (row,) = found.rows
    assert row.delayed.share == pytest.approx(1.5 / 60.0)
    assert row.delayed.seconds == 2.0
    assert (found.delayed, found.throttled) == (1, 1)
    at_ms += 61_000.0
    later = Survey()
    for _ in later.steps(sensors, *arguments, meter.delayed):
        pass
    assert (later.delayed, later.rows[0].delayed.share if later.rows else 0.0) == (0, 0.0)
