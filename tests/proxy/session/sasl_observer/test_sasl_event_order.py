"""Whatever comes in whatever order, nobody becomes a user to whom the broker has not said yes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol.errors import MalformedFrame, ProtocolError, UnsupportedVersion
from sluice.proxy.session.sasl_observer import AuthenticationFailed, SaslWatch
from sluice.quotas.entity import UNKNOWN_USER
from testkit.proxy.sasl_events import (
    ACCEPTED,
    CHALLENGE,
    NAMED,
    PROOF,
    Event,
    answer,
    exchange,
    feed,
    handshake,
    handshake_answer,
    message,
    oauth,
    plain,
    play,
    scram,
    token,
    token_answer,
)
from testkit.thorough import cases

untimed = settings(deadline=None)  # the machine may be busy


# --- every event in every state


STATES: dict[str, list[Event]] = {
    "idle": [],
    "idle, known": exchange("PLAIN", "alice"),
    "refusal due": [*exchange("PLAIN", "alice"), message(plain("alice"))],
    "handshake v0": [handshake("PLAIN", 0)],
    "handshake v1": [handshake("PLAIN")],
    "client's turn v0": exchange("SCRAM-SHA-256", "alice", 0)[:2],
    "client's turn v1": exchange("SCRAM-SHA-256", "alice")[:2],
    "broker's turn v0": exchange("SCRAM-SHA-256", "alice", 0)[:3],
    "broker's turn v1": exchange("SCRAM-SHA-256", "alice")[:3],
    "opaque": exchange("GSSAPI", "")[:4],
    "dead": [*exchange("PLAIN", "alice")[:3], answer(error=58)],
}
EVENTS: dict[str, Event] = {
    "handshake": handshake("PLAIN"),
    "handshake answer": handshake_answer(),
    "authenticate": message(scram("alice")),
    "answer": answer(CHALLENGE),
    "token": token(scram("alice")),
    "token answer": token_answer(CHALLENGE),
}
LEGAL = {
    ("idle", "handshake"),
    ("idle, known", "handshake"),
    ("idle, known", "authenticate"),
    ("opaque", "handshake"),
    ("handshake v0", "handshake answer"),
    ("handshake v1", "handshake answer"),
    ("client's turn v0", "token"),
    ("client's turn v1", "authenticate"),
    ("opaque", "authenticate"),
    ("broker's turn v0", "token answer"),
    ("broker's turn v1", "answer"),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_event_out_of_turn_raises_and_is_the_last(state: str, event: str) -> None:
    watch = play(*STATES[state])
    user = watch.user
    if (state, event) in LEGAL:
        feed(watch, EVENTS[event])
        assert not watch.failed
        return
    with pytest.raises(ProtocolError):
        feed(watch, EVENTS[event])
    assert watch.failed
    assert not watch.awaiting_broker
    for other in EVENTS.values():
        with pytest.raises(AuthenticationFailed):
            feed(watch, other)
    assert watch.user == user


@pytest.mark.parametrize("event", EVENTS)
def test_a_frame_that_cannot_be_read_is_the_last_one(event: str) -> None:
    for state in (
        state for state, legal in LEGAL if legal == event and event not in {"token", "token answer"}
    ):
        watch = play(*STATES[state])
        with pytest.raises((MalformedFrame, UnsupportedVersion)):
            feed(watch, EVENTS[event]._replace(body=EVENTS[event].body + b"\0"))
        assert watch.failed
        watch = play(*STATES[state])
        with pytest.raises(UnsupportedVersion):
            feed(watch, EVENTS[event]._replace(version=7))
        assert watch.failed


# --- every order of events


NAMES = ["alice", "bob"]
SINGLE_EVENTS: list[Event] = [
    *(handshake(m, v) for m in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI") for v in (0, 1)),
    *(handshake_answer(e, v) for e in (0, 34) for v in (0, 1)),
    *(say(make(name), name) for say in (message, token) for make in (plain, scram, oauth) for name in NAMES),
    *(say(text, "") for say in (message, token) for text in (PROOF, b"", b"\x01")),
    *(reply(text) for reply in (answer, token_answer) for text in (b"", CHALLENGE, ACCEPTED, b"e=no", b"{}")),
    answer(error=58),
]
WHOLE_EXCHANGES = [exchange(m, n, v) for m, v in (case.values for case in NAMED) for n in NAMES]  # type: ignore[arg-type]
WHOLE_EXCHANGES.append(exchange("GSSAPI", ""))


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Whole, cut and disturbed exchanges in a row: random events alone would seldom get anywhere."""
    history: list[Event] = []
    for _ in range(draw(st.integers(1, 4))):
        part = list(draw(st.sampled_from(WHOLE_EXCHANGES)))
        match draw(st.integers(0, 4)):
            case 0:
                part = part[: draw(st.integers(0, len(part)))]
            case 1:
                part.insert(draw(st.integers(0, len(part))), draw(st.sampled_from(SINGLE_EVENTS)))
            case 2:
                part[draw(st.integers(0, len(part) - 1))] = draw(st.sampled_from(SINGLE_EVENTS))
            case 3:
                part = draw(st.lists(st.sampled_from(SINGLE_EVENTS), max_size=5))
        history += part
    return history


def spelled(history: list[Event]) -> Iterator[str]:
    """The history as words for a regular expression: an oracle with no state machine in it."""
    for event in history:
        kind = "T" if event.kind.startswith("token") else "A"
        match event.kind:
            case "handshake":
                yield f"handshake:{event.says}:{event.version} "
            case "handshake answer":
                yield "taken " if event.says == "yes" else "refused "
            case "authenticate" | "token":
                says = event.body if event.kind == "token" else event.body[4:]
                maker = next(
                    (m.__name__ for m in (plain, scram, oauth) if event.says and says == m(event.says)), "x"
                )
                yield f"{kind}>{maker}={event.says} "
            case _:
                raw = event.body if event.kind == "token answer" else event.body[8:-8]
                error = event.says == "no"
                yield f"{kind}<{'error' if error else raw.hex() or 'empty'} "


def yes_to(user: str) -> re.Pattern[str]:
    """What must stand at the end of a history in which `user` has just been established."""
    if user == UNKNOWN_USER:
        return re.compile(r"handshake:GSSAPI:1 taken (A>\S+ A<(?!error)\S+ )+$")
    challenge, accepted = CHALLENGE.hex(), ACCEPTED.hex()
    return re.compile(
        rf"(handshake:PLAIN:1 taken A>plain={user} A<(?!error)\S+"
        rf"|handshake:PLAIN:0 taken T>plain={user} T<empty"
        rf"|handshake:OAUTHBEARER:1 taken A>oauth={user} A<empty"
        rf"|handshake:OAUTHBEARER:0 taken T>oauth={user} T<empty"
        rf"|handshake:SCRAM-SHA-\d+:1 taken A>scram={user} A<{challenge} A>\S+ A<{accepted}"
        rf"|handshake:SCRAM-SHA-\d+:0 taken T>scram={user} T<{challenge} T>\S+ T<{accepted}) $"
    )


@settings(untimed, max_examples=cases(1000))
@given(histories())
def test_no_order_of_events_makes_a_user_without_the_brokers_yes_to_that_name_nor_changes_one(
    history: list[Event],
) -> None:
    watch = SaslWatch()
    user: str | None = None
    dead = False
    for at, event in enumerate(history):
        try:
            established = feed(watch, event)
        except ProtocolError:
            dead = True
        else:
            assert not dead, "an event passed after one that raised"
            if established:
                assert watch.user is not None
                assert yes_to(watch.user).search("".join(spelled(history[: at + 1])))
                assert user in {None, watch.user}
                user = watch.user
        assert watch.user == user
        assert not (watch.awaiting_broker and watch.failed)


def test_the_oracle_knows_every_whole_exchange() -> None:
    for whole in WHOLE_EXCHANGES:
        watch = play(*whole)
        assert watch.user is not None
        assert yes_to(watch.user).search("".join(spelled(whole)))
