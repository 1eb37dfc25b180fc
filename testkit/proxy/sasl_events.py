"""SASL exchanges as events, frame by frame, and a watch that they are played to."""

from __future__ import annotations

import base64
import json
import struct
from typing import NamedTuple

import pytest

from sluice.proxy.session.sasl_observer import SaslWatch
from sluice.quotas.entity import UNKNOWN_USER


class Event(NamedTuple):
    """One frame on the wire: what it is, and what the oracle needs to know of it."""

    kind: str
    body: bytes = b""
    version: int = 1
    says: str = ""
    """handshake: the mechanism; a client message: whom it names; an answer: yes, no, more"""


def handshake(mechanism: str, version: int = 1) -> Event:
    name = mechanism.encode()
    return Event("handshake", struct.pack(">h", len(name)) + name, version, mechanism)


def handshake_answer(error: int = 0, version: int = 1) -> Event:
    return Event(
        "handshake answer", struct.pack(">hih", error, 1, 5) + b"PLAIN", version, "no" if error else "yes"
    )


def message(token: bytes, names: str = "") -> Event:
    return Event("authenticate", struct.pack(">i", len(token)) + token, 0, names)


def answer(token: bytes = b"", error: int = 0) -> Event:
    return Event(
        "answer", struct.pack(">hhi", error, -1, len(token)) + token + bytes(8), 1, "no" if error else "yes"
    )


def token(token: bytes, names: str = "") -> Event:
    return Event("token", token, 0, names)


def token_answer(token: bytes = b"") -> Event:
    return Event("token answer", token, 0, "yes")


def feed(watch: SaslWatch, event: Event) -> bool:
    """Hand the event over in the middle of a larger buffer, as the session does."""
    buf = bytearray(b"before" + event.body + b"behind")
    pos, end = 6, 6 + len(event.body)
    before = (watch.user, watch.failed)
    established = False
    match event.kind:
        case "handshake":
            watch.on_handshake_request(buf, pos, end, event.version)
        case "handshake answer":
            watch.on_handshake_response(buf, pos, end, event.version)
        case "authenticate":
            watch.on_authenticate_request(buf, pos, end, event.version)
        case "answer":
            established = watch.on_authenticate_response(buf, pos, end, event.version)
        case "token":
            watch.on_raw_token_from_client(buf, pos, end)
        case "token answer":
            established = watch.on_raw_token_from_broker(buf, pos, end)
        case _:
            raise AssertionError(event.kind)
    assert established or watch.user == before[0]
    assert bytes(buf) == b"before" + event.body + b"behind"
    return established


def play(*events: Event, watch: SaslWatch | None = None) -> SaslWatch:
    watch = watch or SaslWatch()
    for event in events:
        feed(watch, event)
    return watch


def plain(user: str, password: str = "pw", authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def scram(user: str, extensions: str = "") -> bytes:
    return f"n,,n={user},r=cnonce{extensions}".encode()


def oauth(user: object, claim: str = "sub") -> bytes:
    payload = base64.urlsafe_b64encode(json.dumps({claim: user}).encode()).rstrip(b"=").decode()
    return f"n,,\x01auth=Bearer h.{payload}.s\x01\x01".encode()


CHALLENGE = b"r=cnoncesnonce,s=YQ==,i=4096"
PROOF = b"c=biws,r=cnoncesnonce,p=YQ=="
ACCEPTED = b"v=YQ=="


def exchange(mechanism: str, user: str, version: int = 1) -> list[Event]:
    """All frames of one successful authentication."""
    say, reply = (message, answer) if version else (token, token_answer)
    begin = [handshake(mechanism, version), handshake_answer(version=version)]
    match mechanism:
        case "PLAIN":
            return [*begin, say(plain(user), user), reply()]
        case "OAUTHBEARER":
            return [*begin, say(oauth(user), user), reply()]
        case "GSSAPI":
            rounds = [say(b"\x60\x01", UNKNOWN_USER), reply(b"\x60\x02"), say(b"", UNKNOWN_USER), reply(b"x")]
            return [*begin, *rounds, say(b"y", UNKNOWN_USER), reply()]
        case _:
            return [*begin, say(scram(user), user), reply(CHALLENGE), say(PROOF, user), reply(ACCEPTED)]


EVERY_EXCHANGE = [
    pytest.param(mechanism, version, id=f"{mechanism} v{version}")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
    for version in (0, 1)
    if version or mechanism not in {"GSSAPI", "AWS_MSK_IAM"}
]
NAMED = [case for case in EVERY_EXCHANGE if case.values[0] not in {"GSSAPI", "AWS_MSK_IAM"}]
