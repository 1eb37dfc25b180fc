"""What clients are told of a broker hangs on its id alone; where it is in truth is learnt, and never told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.session.gateway.broker_map import BrokerMap

ANY_ID = st.integers(-(2**31), 2**31 - 1)


def ports(first_broker_id: int = 0, max_brokers: int = 50) -> BrokerMap:
    return BrokerMap("gateway.example", 9100, first_broker_id, max_brokers, bind_port=9092)


def names() -> BrokerMap:
    return BrokerMap("unused", 0, 0, 50, bind_port=9093, sni_domain="Kafka.Example.")


def test_the_port_of_a_broker_is_the_same_whatever_has_been_learnt() -> None:
    fresh, used = ports(), ports()
    for node_id in (7, 3, 0, 49):
        used.learn(node_id, f"b{node_id}.internal", 9092)
    used.learn(7, "elsewhere", 1)
    for node_id in range(50):
        assert fresh.advertised(node_id) == used.advertised(node_id) == ("gateway.example", 9100 + node_id)


def test_ports_count_from_the_first_brokers_id() -> None:
    brokers = ports(first_broker_id=1001, max_brokers=3)
    assert [brokers.advertised(i)[1] for i in brokers.node_ids()] == [9100, 9101, 9102]
    assert list(brokers.node_ids()) == [1001, 1002, 1003]


def test_a_broker_that_comes_and_moves_is_followed() -> None:
    brokers = ports()
    assert brokers.upstream(2) is None
    brokers.learn(2, "b2.internal", 9092)
    assert brokers.upstream(2) == ("b2.internal", 9092)
    brokers.learn(2, "10.0.0.9", 9093)
    assert brokers.upstream(2) == ("10.0.0.9", 9093)
    assert brokers.upstreams == {2: ("10.0.0.9", 9093)}


def test_that_a_known_broker_has_moved_is_a_claim_where_the_broker_there_can_be_asked() -> None:
    """A broker that is cut off from its controllers goes on telling what was; its clients misled others."""
    brokers = ports(max_brokers=3)
    claims: list[tuple[int, tuple[str, int]]] = []
    brokers.when_claimed = lambda node_id, address: claims.append((node_id, address))
    brokers.learn(2, "b2", 9092)
    assert brokers.upstream(2) == ("b2", 9092), "of an unknown one nobody knows better"
    for _ in range(2):
        brokers.learn(2, "b2-old", 9092)
        brokers.learn(2, "b2-new", 9092)
        brokers.learn(2, "b2", 9092)
    assert claims == [(2, ("b2-old", 9092)), (2, ("b2-new", 9092))]
    brokers.settle(2, ("b2-old", 9092), is_true=False)
    assert brokers.upstream(2) == ("b2", 9092)
    brokers.settle(2, ("b2-new", 9092), is_true=True)
    assert brokers.upstream(2) == ("b2-new", 9092)
    assert brokers.known_as("b2-new:9092") == "gateway.example:9102"
    brokers.learn(2, "b2-old", 9092)
    assert claims[2:] == [(2, ("b2-old", 9092))], "it may be true by now"


def test_claims_are_bounded() -> None:
    brokers, claims = ports(), []
    brokers.when_claimed = lambda *claim: claims.append(claim)
    brokers.learn(2, "b2", 9092)
    for port in range(1, 1_000):
        brokers.learn(2, "b2-old", port)
    assert len(claims) == 100
    brokers.settle(2, ("b2-old", 1), is_true=False)
    brokers.learn(2, "b2-new", 9092)
    assert claims[100:] == [(2, ("b2-new", 9092))]


def test_a_broker_has_left_that_no_answer_to_the_gateway_has_listed_for_a_day() -> None:
    """It was asked for ever whether it takes connections again, and an alert told of it until a restart."""
    brokers, day_ms = ports(), 24 * 3_600_000.0
    for node_id in (0, 1, 2):
        brokers.learn(node_id, f"b{node_id}", 9092)
    brokers.listed([0, 1], 1_000.0)
    brokers.listed([0], 2_000.0)
    brokers.listed([0, 1], day_ms)
    brokers.listed([0], day_ms + 999.0)
    assert brokers.present == {0: ("b0", 9092), 1: ("b1", 9092), 2: ("b2", 9092)}
    brokers.listed([0], day_ms + 1_000.0)
    assert brokers.present == {0: ("b0", 9092), 1: ("b1", 9092)}
    assert brokers.upstream(2) == ("b2", 9092), "who comes to its port is led there all the same"
    brokers.listed([0, 2], 2 * day_ms + 998.0)
    assert brokers.present == brokers.upstreams, "it is back"
    brokers.listed([2], 2 * day_ms + 999.0)
    assert list(brokers.present) == [0, 2]


@pytest.mark.parametrize(
    ("node_id", "host", "port"),
    [(50, "b", 1), (-1, "b", 1), (1, "", 1), (1, "h" * 256, 1), (1, "b", 0), (1, "b", -1), (1, "b", 65_536)],
)
def test_what_cannot_be_dialled_is_not_learnt_and_does_not_displace_what_can(
    node_id: int, host: str, port: int
) -> None:
    brokers = ports()
    brokers.learn(1, "good", 9092)
    brokers.learn(node_id, host, port)
    assert brokers.upstreams == {1: ("good", 9092)}


@given(ids=st.lists(ANY_ID, max_size=300))
def test_no_answer_makes_the_map_larger_than_its_range(ids: list[int]) -> None:
    brokers = ports(max_brokers=10)
    for node_id in ids:
        brokers.learn(node_id, f"b{node_id}", 9092)
        brokers.advertised(node_id)
    assert brokers.upstreams.keys() <= set(range(10))
    assert len(brokers.out_of_range) <= 100
    assert brokers.out_of_range_count == sum(node_id not in range(10) for node_id in ids)


def test_an_id_without_a_port_is_told_as_the_bootstrap_address_and_reported() -> None:
    brokers = ports(max_brokers=3)
    brokers.learn(3, "b3.internal", 9092)
    assert brokers.advertised(3) == brokers.bootstrap == ("gateway.example", 9092)
    assert brokers.advertised(-5) == ("gateway.example", 9092)
    assert brokers.advertised(3) == ("gateway.example", 9092)
    assert brokers.out_of_range == (-5, 3)
    assert brokers.out_of_range_count == 3


@pytest.mark.parametrize(("first_port", "count"), [(65_500, 50), (0, 1), (65_536, 1)])
def test_ports_that_do_not_exist_are_refused_at_the_start(first_port: int, count: int) -> None:
    with pytest.raises(ValueError, match="no room for"):
        BrokerMap("h", first_port, 0, count, bind_port=1)


def test_the_last_port_may_be_the_last_there_is() -> None:
    assert BrokerMap("h", 65_486, 0, 50, bind_port=1).advertised(49) == ("h", 65_535)


# --- names on one TLS port


def test_with_a_domain_brokers_are_names_on_the_one_port() -> None:
    brokers = names()
    assert brokers.advertised(12) == ("broker-12.kafka.example", 9093)
    assert brokers.bootstrap == ("bootstrap.kafka.example", 9093)
    assert brokers.advertised(50) == brokers.bootstrap


def test_the_name_that_a_client_is_told_leads_back_to_the_broker() -> None:
    brokers = names()
    for node_id in brokers.node_ids():
        host, _ = brokers.advertised(node_id)
        assert brokers.node_of(host) == node_id
        assert brokers.node_of(host.upper() + ".") == node_id
    assert brokers.node_of(brokers.bootstrap[0]) is None


@pytest.mark.parametrize(
    "server_name",
    [
        None, "", "broker-1", "broker-1.other.example", "broker-01.kafka.example", "broker-50.kafka.example",
        "broker--1.kafka.example", "broker-1.x.kafka.example", "xbroker-1.kafka.example", "10.0.0.1",
        "broker-١.kafka.example", "broker-99999999999.kafka.example",
        "kafka.example", ".", "broker-1\n.kafka.example",
    ],
)  # fmt: skip
def test_any_other_name_is_the_bootstrap(server_name: str | None) -> None:
    assert names().node_of(server_name) is None


def test_without_a_domain_names_mean_nothing() -> None:
    assert ports().node_of("broker-1.kafka.example") is None


# --- real addresses in texts


def known() -> BrokerMap:
    brokers = BrokerMap(
        "gw", 9100, 0, 50, bind_port=9092, bootstrap_upstreams=[("boot.internal", 9092), ("kafka", 9092)]
    )
    brokers.learn(0, "kafka", 9092)
    brokers.learn(1, "B1.internal", 9092)
    brokers.learn(11, "10.0.0.1", 9092)
    brokers.learn(2, "fd00::2", 9092)
    return brokers


@pytest.mark.parametrize(
    ("real", "hidden"),
    [
        ("PLAINTEXT://kafka:9092,SSL://b1.internal:9092", "PLAINTEXT://gw:9100,SSL://gw:9101"),
        ("boot.internal:9092", "gw:9092"),
        ("X://[fd00::2]:9092", "X://gw:9102"),
        ("X://[fd00::2]:1", "X://[gw]:1"),
        ("10.0.0.1:9092;10.0.0.1:1", "gw:9111;gw:1"),
        ("User:CN=B1.INTERNAL,O=x", "User:CN=gw,O=x"),
        ("it is b1.internal.", "it is gw."),
        ("110.0.0.1:9092 10.0.0.10 10.0.0.1.5", "110.0.0.1:9092 10.0.0.10 10.0.0.1.5"),
        ("b1.internal.example sub.b1.internal", "b1.internal.example sub.b1.internal"),
        ("org.apache.kafka.A /var/kafka/data kafka", "org.apache.kafka.A /var/kafka/data kafka"),
        ("kafka:90920", "kafka:90920"),
        ("", ""),
    ],
)  # fmt: skip
def test_real_addresses_in_a_text_are_hidden_and_nothing_else(real: str, hidden: str) -> None:
    assert known().hide(real) == hidden


@pytest.mark.parametrize("letter", ["\u0131", "\u0130", "\u017f", "\u212a"])
def test_a_letter_that_unicode_takes_for_one_of_an_address_makes_it_another_name(letter: str) -> None:
    brokers = ports()
    brokers.learn(1, "kafka-1.inside.example", 9092)
    for plain in "iks":
        odd = "kafka-1.inside.example:9092".replace(plain, letter)
        assert brokers.hide(odd) == odd
        assert brokers.known_as(odd) is None
    assert brokers.hide(f"KAFKA-1.inside.example:9092 {letter}") == f"gateway.example:9101 {letter}"


def test_a_host_that_is_no_ascii_is_hidden_as_it_was_learnt() -> None:
    brokers = ports()
    brokers.learn(1, "BR\u00d6KER.inside", 9092)
    for real in ("BR\u00d6KER.inside:9092", "br\u00d6ker.INSIDE:9092"):
        assert brokers.hide(real) == brokers.known_as(real) == "gateway.example:9101"
    assert brokers.hide("\u00e9BR\u00d6KER.inside") == "\u00e9BR\u00d6KER.inside"


def test_what_is_learnt_later_is_hidden_too() -> None:
    brokers = ports()
    assert brokers.hide("b9.internal:1") == "b9.internal:1"
    brokers.learn(9, "b9.internal", 1)
    assert brokers.hide("b9.internal:1") == "gateway.example:9109"


def test_all_real_addresses_can_be_searched_for() -> None:
    assert set(known().real_addresses()) == {
        "kafka:9092", "B1.internal:9092", "10.0.0.1:9092", "[fd00::2]:9092", "boot.internal:9092",
        "kafka", "B1.internal", "10.0.0.1", "fd00::2", "boot.internal",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("real", "told"),
    [
        ("KAFKA:9092", "gw:9100"),
        ("boot.internal:9092", "gw:9092"),
        ("kafka:9093", None),
        ("[fd00::2]:9092", "gw:9102"),
    ],
)
def test_one_real_address_is_looked_up(real: str, told: str | None) -> None:
    assert known().known_as(real) == told
    assert ports().known_as(real) is None


def test_a_map_tells_what_it_knows_and_counts_each_odd_id_that_it_is_asked_for() -> None:
    brokers = ports(first_broker_id=1, max_brokers=3)
    brokers.learn(2, "b2.internal", 9092)
    assert repr(brokers) == "<BrokerMap of 1 brokers, ids 1 to 3>"
    for node_id in range(1_000, 2_000):
        assert brokers.advertised(node_id) == brokers.bootstrap
    assert brokers.out_of_range_count == 1_000
    assert len(brokers._out_of_range) < 1_000, "which of them is kept for the first alone"
