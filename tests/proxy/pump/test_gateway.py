"""The pump in a gateway: an answer that names no broker passes without Python, others are rewritten there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice.proxy.connection.data_path import PURE
from sluice.proxy.pump.choice import PUMP
from sluice.proxy.session.errors import BrokerError
from sluice.proxy.session.gateway.address_rewrite import AddressWork
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import produce_answer, produce_of, sized
from testkit.proxy.data_paths import path_of
from testkit.proxy.gateway import broker_map
from testkit.proxy.playbook import Shell, limits_of, shared_of

VERSIONS = (7, 9, 10, 12, 13)


def gateway_of(name: str) -> Shell:
    policy = SessionPolicy(broker_map=broker_map())
    return Shell(path_of(name).session(shared_of(limits_of(10**9)), policy, "10.0.0.1"), stale=b"")


def asked(name: str, version: int, answers: int) -> Shell:
    shell = gateway_of(name)
    for number in range(answers):
        shell.client_sends(produce_of(300, version=version, correlation_id=number))
    return shell


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_names_no_broker_is_the_pumps(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(AddressWork, "rewrite", lambda *_: seen.append("rewritten"))
    shell = asked(PUMP, version, 4)
    sent = b"".join(produce_answer(version=version, correlation_id=number) for number in range(4))
    shell.broker_sends(sent)
    assert bytes(shell.to_client) == sent
    assert seen == []


@pytest.mark.parametrize("version", [10, 12, 13])
def test_an_answer_that_names_a_broker_is_rewritten(version: int) -> None:
    told = []
    for name in (PUMP, PURE.name):
        shell = asked(name, version, 3)
        for number, is_moved in enumerate((False, True, False)):
            frame = produce_answer(version=version, correlation_id=number, is_moved=is_moved)
            shell.broker_sends(frame)
        assert b"internal" not in bytes(shell.to_client)
        told.append(bytes(shell.to_client))
    assert told[0] == told[1]
    assert b"gw" in told[0]


def almost(frame: bytes) -> Iterator[bytes]:
    """The answer with one byte another, and longer and shorter ones."""
    for at in (*range(4), *range(8, len(frame))):
        for value in {0, 1, 2, 0x7F, 0x80, 0xFF, frame[at] - 1 & 0xFF, frame[at] + 1 & 0xFF} - {frame[at]}:
            damaged = bytearray(frame)
            damaged[at] = value
            yield bytes(damaged)
    for by in (-3, -1, 1, 2, 30):
        yield sized(frame[4:by] if by < 0 else frame[4:] + bytes(by))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_almost_plain_is_judged_as_in_python(version: int) -> None:
    plain = produce_answer(version=version, correlation_id=0)
    behind = produce_answer(version=version, correlation_id=1)

    def seen(name: str, frame: bytes) -> object:
        shell = asked(name, version, 3)
        try:
            shell.broker_sends(frame + behind)
        except BrokerError as error:
            return (bytes(shell.to_client), str(error), error.good_end)
        return (bytes(shell.to_client), shell.session.in_flight, shell.session.at_boundary)

    for frame in almost(plain):
        assert seen(PUMP, frame) == seen(PURE.name, frame), frame.hex()
