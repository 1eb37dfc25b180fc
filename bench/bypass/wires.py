"""Attackers' connections: requests by the codec; logins with a password, a bearer or a delegation token."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from bench.lib.wire_clients import run_for
from testkit.frames.frames import decoded, request
from testkit.frames.wire import Wire, dial
from testkit.kafka.node import USERS
from testkit.processes.process import BenchError

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
OFFSET_FETCH: Final = 9
CREATE_DELEGATION_TOKEN: Final = 38
WITHIN_S: Final = 60.0  # one answer, on a busy machine and behind a hold

Login = Callable[[Wire], Awaitable[None]]


@contextlib.asynccontextmanager
async def dialled(port: int, login: Login | None = None) -> AsyncIterator[Wire]:
    """A connection, logged in if that is wanted."""
    wire = await dial(port, within_s=WITHIN_S)
    with wire:
        if login is not None:
            await login(wire)
        yield wire


async def ask(
    wire: Wire, api_key: int, version: int, body: dict[str, Any], client_id: str = "attacker"
) -> dict[str, Any]:
    """One request and its answer's body."""
    await wire.send(request(api_key, version, body, client_id=client_id))
    return decoded("response", api_key, version, await wire.frame()).body


def group_frame(client_id: str) -> bytes:
    """A group request: from it on a connection is one that is never delayed for long (wire-semantics 1.5)."""
    return request(OFFSET_FETCH, 5, {"groupId": "bypass", "topics": None}, client_id=client_id)


def with_password(user: str) -> Login:
    """PLAIN, as one of the broker's users."""

    async def login(wire: Wire) -> None:
        await _handshake(wire, "PLAIN")
        await _say(wire, f"\0{user}\0{USERS[user]}".encode())

    return login


def with_bearer(payload: str) -> Login:
    """OAUTHBEARER with an unsigned token of exactly this payload."""

    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    token = f"{part(json.dumps({'alg': 'none'}))}.{part(payload)}."

    async def login(wire: Wire) -> None:
        await _handshake(wire, "OAUTHBEARER")
        await _say(wire, b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01")

    return login


def with_token(token: dict[str, Any]) -> Login:
    """SCRAM with a delegation token (KIP-48), which names no user."""
    password = base64.b64encode(bytes.fromhex(token["hmac"]))

    async def login(wire: Wire) -> None:
        await _handshake(wire, "SCRAM-SHA-256")
        nonce = secrets.token_hex(12)
        bare = f"n={token['tokenId']},r={nonce},tokenauth=true"
        first = await _say(wire, f"n,,{bare}".encode())
        fields = dict(part.split("=", 1) for part in first.decode().split(","))
        salt = base64.b64decode(fields["s"])
        key = hmac.digest(
            hashlib.pbkdf2_hmac("sha256", password, salt, int(fields["i"])), b"Client Key", "sha256"
        )
        unproved = f"c=biws,r={fields['r']}"
        signed = f"{bare},{first.decode()},{unproved}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        await _say(wire, f"{unproved},p=".encode() + proof)

    return login


async def new_token(port: int, user: str) -> dict[str, Any]:
    """A delegation token of this user, made on this port."""
    wanted: dict[str, Any] = {
        "ownerPrincipalType": None,
        "ownerPrincipalName": None,
        "renewers": [],
        "maxLifetimeMs": -1,
    }
    async with dialled(port, with_password(user)) as wire:
        token = await ask(wire, CREATE_DELEGATION_TOKEN, 3, wanted)
    if token["errorCode"]:
        raise BenchError(f"the broker makes no delegation token: error {token['errorCode']}")
    for _ in range(100):  # it hears of its own token a moment later
        with contextlib.suppress(BenchError, EOFError, ConnectionError):
            async with dialled(port, with_token(token)):
                return token
        await asyncio.sleep(0.1)
    raise BenchError("the broker does not take its delegation token")


async def attack_for(attackers: Sequence[Coroutine[Any, Any, Any]], seconds: float) -> float:
    """Runs them all for that long; returns when they began."""
    start_s = time.monotonic()
    await run_for(attackers, seconds)
    return start_s


async def _handshake(wire: Wire, mechanism: str) -> None:
    error = (await ask(wire, SASL_HANDSHAKE, 1, {"mechanism": mechanism}))["errorCode"]
    if error:
        raise BenchError(f"the broker has no {mechanism}: error {error}")


async def _say(wire: Wire, message: bytes) -> bytes:
    answer = await ask(wire, SASL_AUTHENTICATE, 2, {"authBytes": message.hex()})
    if answer["errorCode"]:
        raise BenchError(f"the broker refused a login: {answer['errorMessage']}")
    return bytes.fromhex(answer["authBytes"])
