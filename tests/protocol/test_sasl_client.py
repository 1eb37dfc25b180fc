"""The client's side of SASL: the RFCs' examples, Kafka's own classes as judge, and servers that lie."""

from __future__ import annotations

import base64
import hashlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.protocol import sasl
from sluice.protocol.sasl_client import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_HASHES,
    OauthBearerClient,
    PlainClient,
    SaltedPasswords,
    SaslClient,
    SaslClientError,
    ScramClient,
    is_extension,
    is_token,
)
from testkit.kafka.java_machine import java_machine
from testkit.peers.scram_server import ScramServer

untimed = settings(deadline=None)  # the machine may be busy
SECRET = "hunter2-hunter2"
printable = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java_machine() as machine:
        yield machine


def scram(
    mechanism: str = "SCRAM-SHA-256", username: str = "alice", password: str = SECRET, nonce: str = "mine"
) -> ScramClient:
    return ScramClient(mechanism, username, SaltedPasswords(password), nonce)


def test_the_example_of_rfc_7677() -> None:
    client = scram(username="user", password="pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.respond(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@untimed
@given(st.sampled_from(sorted(SCRAM_HASHES)), printable, printable)
@example("SCRAM-SHA-512", "a=b,c", "pass,word=\u212b")
def test_a_scram_exchange_ends_with_both_sides_convinced(
    mechanism: str, username: str, password: str
) -> None:
    server, client = ScramServer(mechanism, password), scram(mechanism, username, password)
    final = client.respond(server.challenge(client.first()))
    assert final is not None
    assert server.takes(final)
    assert client.respond(server.final) is None


@pytest.mark.parametrize("mechanism", sorted(SCRAM_HASHES))
@pytest.mark.parametrize("username", ["alice", "a=b,c", "=2C"])
@pytest.mark.parametrize("password", [SECRET, "pass,w=rd", "\u212bngstr\u00f6m \U0001f511"])
def test_kafkas_own_scram_comes_to_the_same_proof(
    jvm: Any, mechanism: str, username: str, password: str
) -> None:
    internals = jvm.org.apache.kafka.common.security.scram.internals
    kafkas = internals.ScramMechanism.forMechanismName(mechanism)
    formatter = internals.ScramFormatter(kafkas)
    messages = internals.ScramMessages
    client = scram(mechanism, username, password)

    first = messages.ClientFirstMessage(client.first())
    assert formatter.username(first.saslName()) == username
    credential = formatter.generateCredential(password, 5000)
    server_first = messages.ServerFirstMessage(first.nonce(), "and-mine", credential.salt(), 5000)
    final_bytes = client.respond(bytes(server_first.toBytes()))
    assert final_bytes is not None
    final = messages.ClientFinalMessage(final_bytes)
    signature = formatter.clientSignature(credential.storedKey(), first, server_first, final)
    assert bytes(formatter.storedKey(signature, final.proof())) == bytes(credential.storedKey())
    server_signature = formatter.serverSignature(credential.serverKey(), first, server_first, final)
    server_final = messages.ServerFinalMessage(None, server_signature)
    assert client.respond(bytes(server_final.toBytes())) is None


def test_the_iteration_bounds_are_kafkas(jvm: Any) -> None:
    mechanisms = jvm.org.apache.kafka.common.security.scram.internals.ScramMechanism.values()
    assert {(m.mechanismName(), m.minIterations(), m.maxIterations()) for m in mechanisms} == {
        (name, MIN_ITERATIONS, MAX_ITERATIONS) for name in SCRAM_HASHES
    }


def test_kafkas_server_reads_the_token_and_the_extensions(jvm: Any) -> None:
    internals = jvm.org.apache.kafka.common.security.oauthbearer.internals
    client = OauthBearerClient("abc.def-_.", {"logicalCluster": "lkc-1", "traceId": "a = b"})
    read = internals.OAuthBearerClientInitialResponse(client.first())
    assert (read.tokenValue(), read.authorizationId()) == ("abc.def-_.", "")
    assert dict(read.extensions().map()) == {"logicalCluster": "lkc-1", "traceId": "a = b"}


def test_kafkas_client_says_the_same_bytes(jvm: Any) -> None:
    internals = jvm.org.apache.kafka.common.security.oauthbearer.internals
    extensions = jvm.org.apache.kafka.common.security.auth.SaslExtensions
    one = jvm.java.util.Map.of("logicalCluster", "lkc-1")
    for theirs, ours in ((jvm.java.util.Map.of(), {}), (one, {"logicalCluster": "lkc-1"})):
        kafkas = internals.OAuthBearerClientInitialResponse("abc.def.", extensions(theirs))
        assert OauthBearerClient("abc.def.", ours).first() == bytes(kafkas.toBytes())


SERVER_FIRSTS = {
    "empty": b"",
    "no nonce": b"s=AAAA,i=4096",
    "an error": b"e=other-error",
    "a mandatory extension": b"m=x,r=mine1,s=AAAA,i=4096",
    "another nonce": b"r=yours,s=AAAA,i=4096",
    "our own nonce alone": b"r=mine,s=AAAA,i=4096",
    "no salt": b"r=mine1,s=,i=4096",
    "a salt that is no base 64": b"r=mine1,s=A,i=4096",
    "one iteration": b"r=mine1,s=AAAA,i=1",
    "too few iterations": b"r=mine1,s=AAAA,i=4095",
    "too many iterations": b"r=mine1,s=AAAA,i=16385",
    "iterations without end": b"r=mine1,s=AAAA,i=" + b"9" * 5000,
    "no iterations": b"r=mine1,s=AAAA,i=0",
    "iterations in another script": "r=mine1,s=AAAA,i=\u0664\u0660\u0669\u0666".encode(),
    "a newline behind": b"r=mine1,s=AAAA,i=4096\n",
}


@pytest.mark.parametrize("case", SERVER_FIRSTS)
def test_a_first_message_that_kafkas_client_would_not_take_is_refused(case: str) -> None:
    client = scram()
    client.first()
    with pytest.raises(SaslClientError):
        client.respond(SERVER_FIRSTS[case])


@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, MAX_ITERATIONS])
def test_the_iteration_bounds_themselves_are_taken(iterations: int) -> None:
    server, client = ScramServer("SCRAM-SHA-256", SECRET, iterations), scram()
    final = client.respond(server.challenge(client.first()))
    assert final is not None
    assert server.takes(final)


def convinced() -> tuple[ScramServer, ScramClient]:
    """A server that has taken the client's proof, and now has to show its own."""
    server, client = ScramServer("SCRAM-SHA-256", SECRET), scram()
    final = client.respond(server.challenge(client.first()))
    assert final is not None
    assert server.takes(final)
    return server, client


SERVER_FINALS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "another signature": lambda _: b"v=" + base64.b64encode(bytes(32)),
    "half the signature": lambda final: b"v=" + base64.b64encode(base64.b64decode(final[2:])[:16]),
    "no signature": lambda _: b"v=",
    "no base 64": lambda _: b"v=A",
    "another field before": lambda final: b"x=1," + final,
    "a newline behind": lambda final: final + b"\n",
    "the challenge again": lambda _: b"r=mine1,s=AAAA,i=4096",
}


@pytest.mark.parametrize("case", SERVER_FINALS)
def test_a_server_that_does_not_prove_itself_is_not_believed(case: str) -> None:
    server, client = convinced()
    with pytest.raises(SaslClientError):
        client.respond(SERVER_FINALS[case](server.final))


def test_extensions_of_the_server_are_passed_over() -> None:
    server, client = convinced()
    assert client.respond(server.final + b",x=y") is None


def test_the_servers_refusal_is_told_in_its_words() -> None:
    _, client = convinced()
    with pytest.raises(SaslClientError, match="refused"):
        client.respond(b"e=invalid-proof")
    assert client.refusal == "invalid-proof"


def test_salting_is_done_once_for_each_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    pbkdf2 = hashlib.pbkdf2_hmac

    def counted(*args: Any) -> bytes:
        calls.append(args[2])
        return pbkdf2(*args)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    passwords = SaltedPasswords(SECRET)
    salts = [bytes([i]) for i in (1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 1, 9, 9, 1, 1)]
    results = {salt: passwords.salted("sha256", salt, 1) for salt in salts}
    assert b"".join(calls) == bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 1]), "eight are kept, the oldest goes"
    assert all(found == pbkdf2("sha256", SECRET.encode(), salt, 1) for salt, found in results.items())


@untimed
@given(printable, printable)
def test_what_plain_says_is_what_a_broker_reads(username: str, password: str) -> None:
    message = PlainClient(username, password).first()
    assert message == f"\0{username}\0{password}".encode()
    assert sasl.plain_user(message) == username


def test_plain_is_over_with_the_servers_yes() -> None:
    client = PlainClient("alice", SECRET)
    client.first()
    client.respond(b"")
    assert not client.refusal


def test_bearer_tokens_are_over_with_an_empty_answer() -> None:
    client = OauthBearerClient("abc.def.")
    assert client.first() == b"n,,\x01auth=Bearer abc.def.\x01\x01"
    assert client.respond(b"") is None


def test_a_refused_token_is_given_up_and_the_reason_kept() -> None:
    client = OauthBearerClient("abc.def.")
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert client.refusal == '{"status":"invalid_token"}'
    with pytest.raises(SaslClientError, match="goes on"):
        client.respond(b"")


@pytest.mark.parametrize(
    "make",
    [
        lambda: PlainClient("", SECRET),
        lambda: PlainClient("alice", ""),
        lambda: PlainClient("alice", SECRET + "\0"),
        lambda: PlainClient("al\0ice", SECRET),
        lambda: PlainClient("alice", SECRET + "\ud800"),
        lambda: scram(username=""),
        lambda: scram(password=""),
        lambda: scram(password=SECRET + "\udfff"),
        lambda: scram(nonce=""),
        lambda: scram(nonce="a,b"),
        lambda: scram(nonce="a b"),
        lambda: scram("SCRAM-SHA-1"),
        lambda: OauthBearerClient(""),
        lambda: OauthBearerClient(SECRET + "\n"),
        lambda: OauthBearerClient(SECRET + "\x01auth=Bearer x"),
        lambda: OauthBearerClient(SECRET, {"auth": "x"}),
        lambda: OauthBearerClient(SECRET, {"a1": "x"}),
        lambda: OauthBearerClient(SECRET, {"a": "x\x01"}),
        lambda: OauthBearerClient(SECRET, {"a": ""}),
    ],
)
def test_what_a_mechanism_cannot_carry_is_refused_without_quoting_it(make: Callable[[], SaslClient]) -> None:
    with pytest.raises(ValueError, match=r".+") as refused:
        make()
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert SECRET not in repr(refused.value.__context__)


@pytest.mark.parametrize("key", ["traceId", "A"])
def test_an_extension_is_a_word_and_printable_text(key: str) -> None:
    assert is_extension(key, "a b\t=~")
    assert not is_extension(key, "\x7f")
    assert not is_extension(key + "-", "x")


def test_a_token_is_one_word() -> None:
    assert is_token("aA0-._~+/==")
    assert not is_token("a b")
    assert not is_token("=a")


@untimed
@given(
    st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]),
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from([b"r=mine1,s=AAAA,i=4096", b"v=AAAA", b"e=other-error", b"{}"])
        | st.builds(lambda n: b"r=mine%d,s=AAAA,i=4096" % n, st.integers(0, 9)),
        max_size=4,
    ),
)
def test_no_server_makes_a_client_raise_anything_else_or_tell_its_secret(
    mechanism: str, challenges: list[bytes]
) -> None:
    client: SaslClient
    match mechanism:
        case "PLAIN":
            client = PlainClient("alice", SECRET)
        case "OAUTHBEARER":
            client = OauthBearerClient(SECRET)
        case _:
            client = scram(mechanism)
    client.first()
    assert SECRET not in repr(client)
    for challenge in challenges:
        try:
            answer = client.respond(challenge)
        except SaslClientError as error:
            told = "".join(traceback.format_exception(error))
            break
        assert mechanism != "SCRAM-SHA-256" or answer is not None, "nobody else knows the password"
        assert SECRET.encode() not in (answer or b"")
    else:
        return
    assert SECRET not in told
