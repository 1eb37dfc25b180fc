"""Who a SASL message names, and what a broker answered. What two could read differently names nobody."""

from __future__ import annotations

import importlib
import io
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from sluice.protocol import sasl
from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from sluice.protocol.sasl import ScramClient

with warnings.catch_warnings():  # kafka-python 3.0.12 loads its schemas by a deprecated call
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.net.sasl.scram import ScramClient as KafkaPythonScram

untimed = settings(deadline=None)  # the machine may be busy
SECRET = "hunter2-hunter2"


def kio_class(api: str, version: int, direction: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{direction}")
    return getattr(module, f"{api.title().replace('_', '')}{direction.title()}")


def kio_bytes(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def with_unknown_tag(body: bytes) -> bytes:
    """A flexible body that ends in no tagged fields, with one from the future instead."""
    assert body[-1] == 0
    return body[:-1] + b"\x01\x63\x03abc"


# --- frames


@pytest.mark.parametrize("version", readable_versions(ApiKey.SASL_HANDSHAKE))
@untimed
@given(mechanism=st.text(max_size=50), before=st.binary(max_size=3))
def test_handshake_request_gives_the_mechanism(version: int, mechanism: str, before: bytes) -> None:
    body = kio_bytes(kio_class("sasl_handshake", version, "request")(mechanism=mechanism))
    buf = bytearray(before + body + b"behind")
    assert sasl.read_handshake_request(buf, len(before), len(before) + len(body), version) == mechanism


@pytest.mark.parametrize("version", readable_versions(ApiKey.SASL_HANDSHAKE))
@pytest.mark.parametrize(
    "error", [ErrorCode.none, ErrorCode.unsupported_sasl_mechanism, ErrorCode.illegal_sasl_state]
)
def test_handshake_response_gives_error_and_mechanisms(version: int, error: ErrorCode) -> None:
    response = kio_class("sasl_handshake", version, "response")
    body = kio_bytes(response(error_code=error, mechanisms=("PLAIN", "SCRAM-SHA-512")))
    assert sasl.read_handshake_response(body, 0, len(body), version) == (
        error.value,
        ("PLAIN", "SCRAM-SHA-512"),
    )


@pytest.mark.parametrize("version", readable_versions(ApiKey.SASL_AUTHENTICATE))
@untimed
@given(token=st.binary(max_size=300))
def test_authenticate_request_tells_where_the_token_stands(version: int, token: bytes) -> None:
    body = kio_bytes(kio_class("sasl_authenticate", version, "request")(auth_bytes=token))
    bodies = [body, with_unknown_tag(body)] if version == 2 else [body]
    for each in bodies:
        start, stop = sasl.locate_auth_bytes(each, 0, len(each), version)
        assert each[start:stop] == token


@pytest.mark.parametrize("version", readable_versions(ApiKey.SASL_AUTHENTICATE))
@untimed
@given(
    token=st.binary(max_size=300),
    message=st.none() | st.text(max_size=50),
    error=st.sampled_from([ErrorCode.none, ErrorCode.sasl_authentication_failed]),
    lifetime_ms=st.integers(0, 2**40),
)
def test_authenticate_response_is_read_whole(
    version: int, token: bytes, message: str | None, error: ErrorCode, lifetime_ms: int
) -> None:
    lifetime = {"session_lifetime": timedelta(milliseconds=lifetime_ms)} if version else {}
    response = kio_class("sasl_authenticate", version, "response")
    body = kio_bytes(response(error_code=error, error_message=message, auth_bytes=token, **lifetime))
    for each in [body, with_unknown_tag(body)] if version == 2 else [body]:
        answer = sasl.read_authenticate_response(each, 0, len(each), version)
        assert (answer.error_code, answer.error_message) == (error.value, message)
        assert each[answer.token_start : answer.token_end] == token
        assert answer.session_lifetime_ms == (lifetime_ms if version else 0)


FRAMES: list[tuple[Callable[..., Any], int, bytes]] = [
    (sasl.read_handshake_request, 0, b"\0\5PLAIN"),
    (sasl.read_handshake_response, 1, b"\0\0\0\0\0\2\0\5PLAIN\0\6GSSAPI"),
    (sasl.locate_auth_bytes, 0, b"\0\0\0\3abc"),
    (sasl.locate_auth_bytes, 2, b"\4abc\1\x63\3abc"),
    (sasl.read_authenticate_response, 0, b"\0\0\xff\xff\0\0\0\3abc"),
    (sasl.read_authenticate_response, 1, b"\0\0\0\2no\0\0\0\3abc" + bytes(8)),
    (sasl.read_authenticate_response, 2, b"\0\0\3no\4abc" + bytes(8) + b"\1\x63\3abc"),
]


@pytest.mark.parametrize(("read", "version", "body"), FRAMES)
def test_every_prefix_of_a_frame_and_every_byte_too_many_is_refused(
    read: Callable[..., Any], version: int, body: bytes
) -> None:
    read(body, 0, len(body), version)
    for cut in range(len(body)):
        with pytest.raises(MalformedFrame):
            read(body, 0, cut, version)
    with pytest.raises(MalformedFrame):
        read(body + b"\0", 0, len(body) + 1, version)


@pytest.mark.parametrize(("read", "version", "body"), FRAMES)
def test_a_version_from_the_future_is_refused_because_its_name_could_not_be_read(
    read: Callable[..., Any], version: int, body: bytes
) -> None:
    for unknown in (-1, 3):
        with pytest.raises(UnsupportedVersion):
            read(body, 0, len(body), unknown)


def test_a_null_array_of_mechanisms_is_refused() -> None:
    with pytest.raises(MalformedFrame):
        sasl.read_handshake_response(b"\0\0\xff\xff\xff\xff", 0, 6, 1)


# --- PLAIN


@untimed
@given(
    user=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    password=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    authzid=st.booleans(),
)
def test_plain_names_the_authcid(user: str, password: str, authzid: bool) -> None:
    assert sasl.plain_user(f"{user if authzid else ''}\0{user}\0{password}".encode()) == user


@pytest.mark.parametrize(
    "message",
    [
        f"alice\0{SECRET}",
        f"\0alice\0{SECRET}\0",
        f"\0alice\0x\0{SECRET}",
        f"bob\0alice\0{SECRET}",
        f"\0\0{SECRET}",
        "\0alice\0",
        "",
    ],
)
def test_a_plain_message_that_the_broker_refuses_names_nobody(message: str) -> None:
    with pytest.raises(MalformedFrame) as caught:
        sasl.plain_user(message.encode())
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# --- SCRAM


ASCII = st.text(st.characters(min_codepoint=1, max_codepoint=126), min_size=1)


@untimed
@given(user=ASCII)
@example(user="=2C")
@example(user=",3D=")
def test_scram_unescapes_comma_and_equals_sign(user: str) -> None:
    escaped = user.replace("=", "=3D").replace(",", "=2C")
    assert sasl.scram_client(f"n,,n={escaped},r=abc".encode()) == ScramClient(user, False)
    assert sasl.scram_client(f"n,a={escaped},n={escaped},r=abc".encode()) == ScramClient(user, False)


@untimed
@given(user=st.text(st.characters(exclude_characters="\0,=", codec="utf-8"), min_size=1))
def test_scram_names_whom_kafka_pythons_client_sends(user: str) -> None:
    message = KafkaPythonScram(user, SECRET, "SCRAM-SHA-256").first_message()
    assert sasl.scram_client(message) == ScramClient(user, False)


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        ("", False),
        (",tokenauth=true", True),
        (",tokenauth=TRUE", True),
        (",x=y,tokenauth=true", True),
        (",tokenauth=true,x=y", True),
        (",tokenauth=false", False),
        (",tokenauth=yes", False),
        (",x=tokenauth=true", False),
    ],
)
def test_scram_tells_a_delegation_token_as_kafka_does(extensions: str, is_token: bool) -> None:
    assert sasl.scram_client(f"n,,n=id,r=abc{extensions}".encode()) == ScramClient("id", is_token)


@pytest.mark.parametrize(
    "message",
    [
        "y,,n=alice,r=abc",
        "p=tls-unique,,n=alice,r=abc",
        "n,a=bob,n=alice,r=abc",
        "n,a=,n=alice,r=abc",
        "n,,m=x,n=alice,r=abc",
        "n,,n=,r=abc",
        "n,,n=al=ice,r=abc",
        "n,,n==2c,r=abc",
        "n,,n===2C3D,r=abc",
        "n,,n=alice,n=bob,r=abc",
        "n,,n=alice",
        "n,,n=alice,r=",
        "n,,n=alice,r=a b",
        "n,,n=al\0ice,r=abc",
        "n,,n=alice,r=abc,",
        "n,,n=alice,r=abc,x",
        "n,,n=alice,r=abc,x=1,x=2",
        "n,,n=alice,r=abc,tokenauth=true,tokenauth=false",
        "n,,n=alice,r=abc,tokenauth=true,TokenAuth=false",
        "n,,n=alice,r=abc,TOKENAUTH=true",
        "",
    ],
)
def test_a_scram_message_that_could_be_read_as_two_names_names_nobody(message: str) -> None:
    with pytest.raises(MalformedFrame):
        sasl.scram_client(message.encode())


@pytest.mark.parametrize(
    ("message", "accepted"),
    [
        (b"v=cmI6c2ln", True),
        (b"v=YQ==", True),
        (b"v=YQ==,x=y", True),
        (b"e=other-error", False),
        (b"e=invalid-proof,x=y", False),
    ],
)
def test_scram_server_final_is_yes_or_no(message: bytes, accepted: bool) -> None:
    assert sasl.scram_accepted(message) is accepted


@pytest.mark.parametrize(
    "message", [b"", b"v=", b"e=", b"v", b"r=abc,s=YQ==,i=4096", b"x=1,v=YQ==", b"v=YQ==\n", b"V=YQ=="]
)
def test_nothing_else_is_a_server_final(message: bytes) -> None:
    with pytest.raises(MalformedFrame):
        sasl.scram_accepted(message)


@pytest.mark.parametrize(
    ("message", "is_challenge"),
    [
        (b"r=abcdef,s=YQ==,i=4096", True),
        (b"r=abc,s=YQ==,i=4096,x=y", True),
        (b"v=YQ==", False),
        (b"", False),
        (b"r=abc,s=YQ==", False),
        (b"r=abc,s=YQ==,i=4096,", False),
        (b"e=other-error", False),
        (b"r=a,v=YQ==,s=YQ==,i=1", False),
    ],
)
def test_a_challenge_is_told_from_everything_else(message: bytes, is_challenge: bool) -> None:
    assert sasl.is_scram_challenge(message) is is_challenge


# --- all mechanisms


@untimed
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_message_ends_in_anything_but_a_name_none_or_malformed_frame(message: bytes) -> None:
    readers: list[Callable[[bytes], object]] = [
        sasl.plain_user,
        sasl.scram_client,
        sasl.is_scram_challenge,
        sasl.scram_accepted,
        lambda each: sasl.oauthbearer_user(each, "sub"),
    ]
    for read in readers:
        with suppress(MalformedFrame):
            read(message)


@pytest.mark.parametrize(
    "read", [sasl.plain_user, sasl.scram_client, lambda each: sasl.oauthbearer_user(each, "sub")]
)
def test_a_message_that_is_not_utf8_is_refused_without_a_chained_exception(
    read: Callable[[bytes], object],
) -> None:
    for message in (b"\0\xff\0" + SECRET.encode(), b"n,,n=\xff,r=" + SECRET.encode()):
        with pytest.raises(MalformedFrame) as caught:
            read(message)
        assert caught.value.__context__ is None
