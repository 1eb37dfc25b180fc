"""Exempt connections: nothing of theirs is delayed or changed, and all of it is measured.

1,000 B/s for everybody else; a bucket holds 1,000 B.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import structlog

from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.kinds import BYTE_KINDS, KINDS
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import fetch, fetch_answer_of, produce_answer, produce_of
from testkit.proxy.playbook import Broker, Client, Muted, Playbook, Shell, ToBroker, ToClient

TEN = ExemptRule(network=network_of("10.0.0.0/8"))
BACKUP_OF_TEN = ExemptRule(network=network_of("10.0.0.0/8"), client_id="backup")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def limits_of(*rules: ExemptRule) -> QuotaLimits:
    return QuotaLimits(
        [(QuotaEntity(DEFAULT), {KINDS[kind].config_key: 1_000 for kind in BYTE_KINDS})], exempt=rules
    )


def connected(*rules: ExemptRule, address: str = "10.0.0.1") -> Shell:
    shared = SharedState(QuotaManager(limits_of(*rules)), Recorder())
    return Shell(Session(shared, SessionPolicy(), address))


def test_what_an_exempt_client_sends_and_gets_passes_untouched() -> None:
    shell = (
        Playbook(connected(TEN))
        >> Client(produce_of(50_000) + fetch(correlation_id=2))
        << ToBroker(produce_of(50_000) + fetch(correlation_id=2))
        >> Broker(produce_answer() + fetch_answer_of(90_000, correlation_id=2))
        << ToClient(produce_answer() + fetch_answer_of(90_000, correlation_id=2))
        >> Client(produce_of(50_000))
        << ToBroker(produce_of(50_000))
    ).done()
    assert shell.events == []
    assert [(record.held_ms, record.throttle_ms) for record in shell.records] == [(0.0, 0.0), (0.0, 0.0)]


def test_what_an_exempt_client_uses_is_measured_by_its_name_and_as_exempt_use() -> None:
    """By the names that the rule knows, as of a client without a limit; another's use beside it is not."""
    shell = connected(BACKUP_OF_TEN)
    meter = UsageMeter(shell.shared.recorder, shell.shared.quotas)
    for client_id in ("backup", "other"):
        shell.client_sends(produce_of(600, client_id=client_id) + fetch(client_id=client_id))
        shell.advance(1)  # what is answered at once, the proxy has answered itself
        shell.broker_sends(produce_answer() + fetch_answer_of(700))
    meter.drain(shell.now_ms)
    asyncio.run(meter.fold(shell.now_ms))
    used = {(one.quota, one.user, one.client_id): one.amount for one in meter.entities}
    assert used == {
        ("produce", "other", "backup"): 600,
        ("fetch", "other", "backup"): 700,
        ("produce", "other", ""): 600,
        ("fetch", "other", ""): 700,
    }
    assert {quota: used for quota, used in meter.exempt.items() if used} == {"produce": 600, "fetch": 700}


def test_an_exempt_client_that_changes_its_client_id_is_exempt_no_more() -> None:
    (
        Playbook(connected(BACKUP_OF_TEN))
        >> Client(produce_of(5_000, client_id="backup"))
        << ToBroker(produce_of(5_000, client_id="backup"))
        >> Client(produce_of(1_500, client_id="other"))
        << ToBroker(produce_of(1_500, client_id="other"))
        << Muted(for_ms=500)
    ).done()


def test_the_client_id_of_an_exempt_client_exempts_nobody_from_another_address() -> None:
    (
        Playbook(connected(BACKUP_OF_TEN, address="192.0.2.1"))
        >> Client(produce_of(1_500, client_id="backup"))
        << ToBroker(produce_of(1_500, client_id="backup"))
        << Muted(for_ms=500)
    ).done()


def test_a_client_of_ipv4_that_an_ipv6_socket_tells_is_found_by_its_ipv4_address() -> None:
    shell = connected(TEN, address="::ffff:10.0.0.1")
    shell.client_sends(produce_of(50_000))
    assert shell.state is State.READING


def test_a_reload_exempts_connections_that_are_open_and_takes_it_back() -> None:
    shell = connected()
    seen = []
    for rules in ([TEN], [], [TEN]):
        shell.shared.quotas.reload(limits_of(*rules), shell.now_ms)
        shell.client_sends(produce_of(1_500))
        seen.append(shell.state)
        shell.advance(10_000)
    assert seen == [State.READING, State.MUTED, State.READING]
