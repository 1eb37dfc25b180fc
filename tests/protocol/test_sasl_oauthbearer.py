"""Whom an OAUTHBEARER message names: the claim of its one token, or nobody where it is in doubt."""

from __future__ import annotations

import base64
import json
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.protocol import sasl
from sluice.protocol.errors import MalformedFrame

untimed = settings(deadline=None)  # the machine may be busy


def jwt(claims: object, parts: int = 3) -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    encoded = base64.urlsafe_b64encode(payload).rstrip(b"=").decode()
    return ".".join(["eyJhbGciOiJub25lIn0", encoded, "c2ln", "eA", "eA"][:parts])


def oauth(token: str, gs2: str = "n,,", more: str = "") -> bytes:
    return f"{gs2}\x01auth=Bearer {token}\x01{more}\x01".encode()


@untimed
@given(user=st.text(st.characters(codec="utf-8"), min_size=1))
def test_oauthbearer_names_the_subject_trimmed_as_java_trims(user: str) -> None:
    trimmed = user.strip("".join(map(chr, range(33))))
    assert sasl.oauthbearer_user(oauth(jwt({"sub": user, "exp": 1})), "sub") == (trimmed or None)


def test_oauthbearer_takes_the_configured_claim_and_carries_extensions() -> None:
    token = jwt({"sub": "wrong", "email": "a@b.c"})
    message = oauth(token, more="traceId=1,2=3\x01logicalCluster=lkc\x01")
    assert sasl.oauthbearer_user(message, "email") == "a@b.c"
    assert sasl.oauthbearer_user(message.replace(b"Bearer ", b"bEARER   "), "email") == "a@b.c"
    assert sasl.oauthbearer_user(oauth(token, gs2="n,a=a@b.c,"), "email") == "a@b.c"


@pytest.mark.parametrize(
    "token",
    [
        "opaque",
        "a.b",
        jwt({"sub": "alice"}, parts=5),
        jwt({"sub": "alice"}, parts=2),
        jwt({"nobody": "alice"}),
        jwt({"sub": 7}),
        jwt({"sub": None}),
        jwt({"sub": ["alice"]}),
        jwt({"sub": {"sub": "alice"}}),
        jwt({"sub": " \t"}),
        jwt({"sub": ""}),
        jwt(["sub", "alice"]),
        jwt(b'{"sub":"alice","sub":"bob"}'),
        jwt(b'{"sub":"\\ud800"}'),
        jwt(b'{"sub":"al\xffice"}'),
        jwt(b'{"sub":"alice"'),
        jwt(b'{"sub":' * 60_000),
        jwt(b"[" * 100_000),
        jwt(b'{"sub":' + b"9" * 100_000 + b"}"),
        "a.YQ.b",
        "a.Y.b",
        "a..b",
        "e30.eyJzdWIiOiJhbGljZSJ9~.c2ln",
    ],
    ids=lambda token: token[:40],
)
def test_a_token_that_does_not_say_who_it_is_gives_no_name(token: str) -> None:
    assert sasl.oauthbearer_user(oauth(token), "sub") is None


def test_numbers_of_any_size_beside_the_claim_do_no_harm() -> None:
    token = jwt(b'{"exp":' + b"9" * 10_000 + b',"x":1e999,"y":NaN,"sub":"alice"}')
    assert sasl.oauthbearer_user(oauth(token), "sub") == "alice"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        oauth(jwt({"sub": "alice"}), gs2="y,,"),
        oauth(jwt({"sub": "alice"}), gs2="n,a=bob,"),
        oauth(jwt({"sub": "alice"}), gs2="n,a=,"),
        oauth(jwt({"sub": "alice"}), more=f"auth=Bearer {jwt({'sub': 'bob'})}\x01"),
        oauth(jwt({"sub": "alice"}), more=f"Auth=Bearer {jwt({'sub': 'bob'})}\x01"),
        oauth(jwt({"sub": "alice"})).replace(b"auth=", b"Bearer="),
        oauth(jwt({"sub": "alice"})).replace(b"Bearer", b"Basic"),
        oauth(jwt({"sub": "alice"}))[:-1],
        oauth(jwt({"sub": "alice"})) + b"\x01",
        oauth(jwt({"sub": "alice"}), more="noequals\x01"),
        oauth(jwt({"sub": "alice"}) + " x"),
        b"\xff" + oauth(jwt({"sub": "alice"})),
    ],
)
def test_a_message_that_is_not_rfc_7628_or_holds_two_tokens_names_nobody(message: bytes) -> None:
    with pytest.raises(MalformedFrame) as caught:
        sasl.oauthbearer_user(message, "sub")
    assert "eyJ" not in "".join(traceback.format_exception(caught.value))
