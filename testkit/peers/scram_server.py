"""SCRAM's other side for tests, written from RFC 5802 with hmac and pbkdf2 alone."""

from __future__ import annotations

import base64
import hashlib
import hmac

SALT = b"0123456789abcdef"


class ScramServer:
    """One exchange with somebody who should know `password`."""

    def __init__(self, mechanism: str, password: str, iterations: int = 4096) -> None:
        self.hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self.salted = hashlib.pbkdf2_hmac(self.hash_name, password.encode(), SALT, iterations)
        self.first = b""
        self.final = b""
        self.iterations = iterations

    def challenge(self, client_first: bytes) -> bytes:
        nonce = client_first.rpartition(b",r=")[2] + b"and-mine"
        self.first = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(SALT), self.iterations)
        self.bare = client_first.removeprefix(b"n,,")
        return self.first

    def takes(self, client_final: bytes) -> bool:
        """Checks the proof, and makes `final`."""
        without_proof, _, proof = client_final.rpartition(b",p=")
        signed = b",".join((self.bare, self.first, without_proof))
        client_key = hmac.digest(self.salted, b"Client Key", self.hash_name)
        stored_key = hashlib.new(self.hash_name, client_key).digest()
        signature = hmac.digest(stored_key, signed, self.hash_name)
        server_key = hmac.digest(self.salted, b"Server Key", self.hash_name)
        self.final = b"v=" + base64.b64encode(hmac.digest(server_key, signed, self.hash_name))
        found = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        return hashlib.new(self.hash_name, found).digest() == stored_key
