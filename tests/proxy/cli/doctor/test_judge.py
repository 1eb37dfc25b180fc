"""What `sluice doctor` says of what it saw: each fact well, not as it should be, and not to be had."""

from __future__ import annotations

from math import inf

import pytest

from sluice.proxy.cli.doctor import judge
from sluice.proxy.cli.doctor.finding import Finding, Status, lines_of

DAY_S = 86_400.0
OK, WARNING, FAILED, NOT_ASKED = Status.OK, Status.WARNING, Status.FAILED, Status.NOT_ASKED


@pytest.mark.parametrize(("days", "status"), [(-0.1, FAILED), (0.5, WARNING), (13.9, WARNING), (14.1, OK)])
def test_certificates(days: float, status: Status) -> None:
    end_unix_s = 1e9 + days * DAY_S
    begin_unix_s = end_unix_s - 90.0 * DAY_S
    assert judge.certificate("clients", "clients", begin_unix_s, end_unix_s, 1e9).status is status


@pytest.mark.parametrize(("hours", "told", "status"), [(4.9, "4.9", OK), (4.7, "4.7", WARNING)])
def test_a_certificate_of_a_day_is_near_its_end_in_its_last_fifth(
    hours: float, told: str, status: Status
) -> None:
    end_unix_s = 1e9 + hours * 3_600.0
    found = judge.certificate("clients", "clients", end_unix_s - DAY_S, end_unix_s, 1e9)
    assert (found.status, found.told) == (status, f"ends in {told} hours")


@pytest.mark.parametrize(
    ("fault", "is_ours", "status"),
    [("", False, OK), ("", True, OK), ("taken", True, OK), ("taken", False, FAILED)],
)
def test_ports(fault: str, is_ours: bool, status: Status) -> None:
    finding = judge.port("listener x", ("0.0.0.0", 9092), fault, is_ours=is_ours)
    assert finding.status is status
    assert (":9092" in finding.todo) == (status is FAILED)


@pytest.mark.parametrize(
    ("faults", "is_ours", "status", "told"),
    [
        ({}, False, OK, "free"),
        ({}, True, OK, "free, though a proxy runs here"),
        ({23105: "taken"}, True, OK, "held by the proxy that runs here"),
        ({23105: "taken"}, False, FAILED, "h:23105: taken"),
        ({23107: "odd", 23105: "taken", 23106: "odd"}, False, FAILED, "h:23105: taken, and 2 more"),
    ],
)
def test_ports_of_a_gateways_brokers(
    faults: dict[int, str], is_ours: bool, status: Status, told: str
) -> None:
    finding = judge.ports("clients", "h", range(23100, 23132), faults, is_ours=is_ours)
    assert finding.check == "ports 23100 to 23131 for brokers of listener clients"
    assert (finding.status, finding.told) == (status, told)


def test_logins_are_told_with_the_first_that_is_refused() -> None:
    fine = judge.logins("clients", "b:9092", ["a", "b", "c", "d"], {}, 0)
    assert (fine.status, fine.told) == (OK, "b:9092 takes a, b, c, …")
    some = judge.logins("clients", "b:9092", ["a"], {"bob": "wrong", "carol": "wrong"}, 1_000)
    assert some.status is FAILED
    assert some.told == "b:9092, bob: wrong, and 1 more that are refused; 1,000 more were not tried"


def test_the_name_of_a_gateway() -> None:
    assert judge.name_of_gateway("clients", "proxy", ["10.0.0.1"], "").told == "proxy is 10.0.0.1"
    assert judge.name_of_gateway("clients", "proxy", [], "unknown").status is WARNING


@pytest.mark.parametrize(
    ("soft", "hard", "connections", "status", "told"),
    [
        (1_024, 1_048_576, 10_000, WARNING, "room for 488 of max_connections 10,000"),
        (20_048, 20_048, 10_000, OK, "room for 10,000"),
        (20_047, 20_047, 10_000, WARNING, "room for 9,999 of"),
        (inf, inf, 10_000, OK, "any number"),
        (1_024, 1_024, None, OK, "room for 488"),
        (10, 10, None, OK, "room for 0"),
    ],
)
def test_open_files(soft: float, hard: float, connections: int | None, status: Status, told: str) -> None:
    finding = judge.open_files(soft, hard, connections)
    assert finding.status is status
    assert told in finding.told
    assert ("hard limit" in finding.todo) == (status is WARNING and hard < 20_048)


@pytest.mark.parametrize(
    ("somaxconn", "status"), [(None, NOT_ASKED), (128, WARNING), (1_024, OK), (4_096, OK)]
)
def test_the_kernels_backlog(somaxconn: int | None, status: Status) -> None:
    assert judge.backlog(somaxconn).status is status


@pytest.mark.parametrize(("is_set", "status"), [(None, NOT_ASKED), (False, WARNING), (True, OK)])
def test_clocks(is_set: bool | None, status: Status) -> None:
    assert judge.clock(is_set).status is status


@pytest.mark.parametrize(
    ("fault", "newest", "status"), [("refused", None, FAILED), (None, None, FAILED), (None, 13, OK)]
)
def test_brokers(fault: str | None, newest: int | None, status: Status) -> None:
    assert judge.upstream("clients", "b:9092", fault, newest).status is status


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({("host", 9092)}, OK),
        ({("host", 9092), ("other", 1)}, OK),
        ({("localhost", 19092)}, FAILED),
        ({("host", 9092), ("localhost", 19092)}, FAILED),
        ({("balancer", 443)}, WARNING),
        (set(), WARNING),
    ],
)
def test_where_clients_are_led(told: set[tuple[str, int]], status: Status) -> None:
    finding = judge.advertised("clients", 9092, ("localhost", 19092), told, {})
    assert finding.status is status
    assert ("9092" in finding.todo) == (status is FAILED)


HERE = {
    "localhost": ["127.0.0.1", "::1"],
    "six": ["::1"],
    "127.0.0.1": ["127.0.0.1"],
    "kafka": ["10.0.0.1", "10.0.0.2"],
    "kafka-0": ["10.0.0.1"],
    "proxy": ["10.0.0.9"],
    "127.0.0.2": ["127.0.0.2"],
}


@pytest.mark.parametrize(
    ("bind_port", "upstream", "told", "status"),
    [
        (9092, ("127.0.0.1", 19092), ("localhost", 19092), FAILED),
        (9092, ("localhost", 19092), ("127.0.0.1", 19092), FAILED),
        (9092, ("127.0.0.1", 19092), ("six", 19092), FAILED),
        (9092, ("LOCALHOST", 19092), ("LOCALHOST", 19092), FAILED),
        (9092, ("kafka", 19092), ("kafka-0", 19092), FAILED),
        (9092, ("127.0.0.1", 19092), ("localhost", 29092), WARNING),
        (9092, ("127.0.0.1", 19092), ("kafka", 19092), WARNING),
        (9092, ("127.0.0.1", 19092), ("nobody-knows-it", 19092), WARNING),
        (9092, ("127.0.0.1", 19092), ("localhost", 9092), OK),
        # The proxy has the port of the broker at another address.
        (9092, ("127.0.0.1", 9092), ("127.0.0.2", 9092), OK),
        (9092, ("127.0.0.1", 9092), ("proxy", 9092), OK),
        (9092, ("127.0.0.1", 9092), ("localhost", 9092), OK),
        (9092, ("localhost", 9092), ("127.0.0.1", 9092), FAILED),
    ],
)
def test_the_brokers_own_listener_is_known_by_its_address(
    bind_port: int, upstream: tuple[str, int], told: tuple[str, int], status: Status
) -> None:
    finding = judge.advertised("clients", bind_port, upstream, {told}, HERE)
    assert finding.status is status
    assert ("past the proxy" in finding.told) == (status is FAILED)


@pytest.mark.parametrize(
    ("wants_login", "passes_logins", "status"),
    [(False, False, FAILED), (False, True, FAILED), (True, False, FAILED), (True, True, WARNING)],
)
def test_a_login_on_one_side_alone(wants_login: bool, passes_logins: bool, status: Status) -> None:
    found = judge.sasl("clients", "b:9092", wants_login=wants_login, passes_logins=passes_logins)
    assert found.status is status
    assert "security_protocol" in found.todo


@pytest.mark.parametrize(
    ("addresses", "status"),
    [
        (["127.0.0.1"], OK),
        (["127.0.0.1", "::1"], OK),
        (["127.9.9.9"], OK),
        (["10.0.0.1"], WARNING),
        (["127.0.0.1", "10.0.0.1"], WARNING),
        ([], WARNING),
    ],
)
def test_ways_past_the_proxy(addresses: list[str], status: Status) -> None:
    """Whatever the name: one such as `localhost.example` may lead anywhere."""
    assert judge.past_the_proxy("clients", "localhost.example", addresses).status is status


def test_quotas_of_the_broker_itself_are_named_but_not_all() -> None:
    assert judge.broker_quotas("b:9092", []).status is OK
    many = judge.broker_quotas("b:9092", [f"user-principal '{name}'" for name in "abcde"])
    assert many.status is WARNING
    assert "'c', …" in many.told
    assert "'d'" not in many.told
    assert "…" not in judge.broker_quotas("b:9092", ["the default user"]).told


def test_lines() -> None:
    fine, odd = Finding(OK, "a", "well"), Finding(WARNING, "b", "odd", "do this")
    assert lines_of([fine, odd]) == ["√ a: well", "! b: odd", "    do this"]
    assert odd.as_json() == {"status": "warning", "check": "b", "told": "odd", "todo": "do this"}


@pytest.mark.parametrize(
    ("fault", "todo"),
    [
        ("permission denied", "CAP_NET_BIND_SERVICE"),
        ("cannot assign requested address", "ip address"),
        ("taken by another program", "ss -ltnp 'sport = :92'"),
        ("it does not resolve", "getent hosts h"),
    ],
)
def test_what_to_do_about_a_port_fits_why_it_cannot_be_had(fault: str, todo: str) -> None:
    assert todo in judge.port("listener x", ("h", 92), fault, is_ours=False).todo
    assert todo in judge.ports("x", "h", range(92, 95), {92: fault}, is_ours=False).todo


def test_a_warning_of_check_is_told_once() -> None:
    warned = Finding(Status.WARNING, "inter_broker_not_declared", "inter broker not declared", "declare it")
    assert lines_of([warned]) == ["! inter broker not declared", "    declare it"]
