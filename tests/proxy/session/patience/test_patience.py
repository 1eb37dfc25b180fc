"""What a client says that it is, in ApiVersions, and how long its requests may wait for it."""

from __future__ import annotations

import gc
import re
import tracemalloc
from pathlib import Path

import pytest

from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.delays import OTHERS, PATIENCE_S, DelayLimits
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import API_VERSIONS, PRODUCE, produce_of, request
from testkit.proxy.playbook import Shell, session_of

RATE = 1_000


def named(name: str, *, version: int = 3) -> bytes:
    body: Struct = {"clientSoftwareName": name, "clientSoftwareVersion": "1.0"} if version >= 3 else {}
    return request(API_VERSIONS, version, body)


def longest_wait_s(limits: DelayLimits, first: bytes) -> float:
    """The mute behind a Produce of 1,000 s of the quota."""
    shell = Shell(session_of(produce_rate=RATE, policy=SessionPolicy(delays=limits)))
    shell.client_sends(first)
    shell.client_sends(produce_of(RATE * 1_000))
    assert shell.state is State.MUTED
    return (shell.session.pace.wake_at_ms - shell.now_ms) / 1_000


@pytest.mark.parametrize(
    ("name", "version", "budget_s", "wait_s"),
    [
        ("platformatic-kafka", 3, 8, 4),
        ("platformatic-kafka", 4, 8, 4),
        ("platformatic-kafka", 2, 8, 8),  # tells no name
        ("platformatic-kafka", 3, 2, 2),
        ("kgo", 3, 15, 15),
        ("librdkafka", 3, 15, 15),
        ("nobody-knows-me", 3, 15, 8),
        ("", 3, 15, 8),
        ("*", 3, 15, 8),
    ],
)
def test_the_answer_budget_is_the_least_of_the_setting_and_four_fifths_of_the_clients_patience(
    name: str, version: int, budget_s: float, wait_s: float
) -> None:
    limits = DelayLimits(answer_budget_ms=budget_s * 1_000)
    assert longest_wait_s(limits, named(name, version=version)) == wait_s


@pytest.mark.parametrize(
    ("name", "patience_s", "wait_s"),
    [
        ("kgo", {"kgo": 6.0}, 4.8),
        ("mine", {"mine": 12.0}, 9.6),
        ("mine", {OTHERS: 15.0}, 12),
        ("kgo", {OTHERS: 5.0}, 15),
        ("mine", {"mine": 1.0}, 4),
    ],
)
def test_the_configuration_goes_before_the_table(
    name: str, patience_s: dict[str, float], wait_s: float
) -> None:
    limits = DelayLimits(answer_budget_ms=15_000, patience_s=patience_s)
    assert longest_wait_s(limits, named(name)) == pytest.approx(wait_s)


@pytest.mark.parametrize("cut", range(1, len(named("platformatic-kafka"))))
def test_a_name_that_comes_in_pieces_is_waited_for(cut: int) -> None:
    shell = Shell(session_of(produce_rate=RATE))
    frame = named("platformatic-kafka")
    shell.client_sends(frame[:cut])
    shell.client_sends(frame[cut:])
    assert bytes(shell.to_broker) == frame
    assert shell.session._throttling.delay_limit_ms(PRODUCE) == 4_000


def test_a_name_that_cannot_be_read_passes_and_names_nobody() -> None:
    """The broker says what is wrong with it."""
    frame = bytearray(named("platformatic-kafka"))
    frame[frame.index(b"platformatic")] = 0xFF
    shell = Shell(session_of(produce_rate=RATE))
    shell.client_sends(bytes(frame))
    assert (shell.state, bytes(shell.to_broker)) == (State.READING, bytes(frame))
    assert shell.session._throttling.delay_limit_ms(PRODUCE) == 8_000


def test_of_long_names_nothing_stays() -> None:
    """Anybody may send them, before a login too; 256 of half a megabyte each were kept for good."""
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        for number in range(8):
            shell = Shell(session_of(produce_rate=RATE))
            shell.client_sends(named(f"{number}" * 400_000))
            assert len(shell.to_broker) > 400_000
            del shell
        gc.collect()
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_bytes - before_bytes < 400_000


def test_of_a_clients_name_and_version_64_characters_are_told() -> None:
    body: Struct = {"clientSoftwareName": "n" * 59, "clientSoftwareVersion": "1.2.345"}
    shell = Shell(session_of())
    shell.client_sends(request(API_VERSIONS, 3, body))
    assert shell.session.identity.software == "n" * 59 + " 1.2."


def test_the_documentation_has_the_table() -> None:
    text = (Path(__file__).resolve().parents[4] / "docs/sizing.md").read_text(encoding="utf-8")
    told = {name: float(figure) for name, figure in re.findall(r"^\| `([\w.-]+)` \| ([\d.]+) \|", text, re.M)}
    assert told == dict(PATIENCE_S)
