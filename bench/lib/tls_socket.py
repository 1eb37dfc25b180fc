"""TLS clients for the load generator: certificate, context, and a socket that behaves like a plain one."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

RECORD_BYTES: Final = 16_384  # what a TLS record holds at most
HOST: Final = "localhost"
KEYS: Final = ("ecdsa-p256", "rsa-2048")
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def write_certificate(folder: Path, key_kind: str) -> tuple[Path, Path]:
    """A self-signed certificate for HOST and its key: (certificate, key), both PEM."""
    key = (
        ec.generate_private_key(ec.SECP256R1())
        if key_kind == KEYS[0]
        else rsa.generate_private_key(65537, 2048)
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate_file, key_file


class LoadSocket(ssl.SSLSocket):
    """As a plain non-blocking socket is: BlockingIOError when nothing is there, and `sendmsg`."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Record after record until nothing is there, or less than one's room: nothing stays in OpenSSL."""
        view = memoryview(buffer)
        got = 0
        while len(view) - got >= RECORD_BYTES:
            try:
                more = super().recv_into(view[got:])
            except ssl.SSLWantReadError:
                if got:
                    break
                raise BlockingIOError from None
            if not more:
                break
            got += more
        return got

    def sendmsg(self, *args: Any, **kwargs: Any) -> int:  # type: ignore[override]  # there it only refuses
        """As far as the socket takes it. A retry must begin with what is left of the same parts."""
        (parts,) = args
        return self._send_all(parts)

    def _send_all(self, parts: Iterable[memoryview]) -> int:
        sent = 0
        with contextlib.suppress(ssl.SSLWantWriteError):
            for part in parts:
                for at in range(0, len(part), RECORD_BYTES):
                    # OpenSSL takes a whole record or nothing; the retry brings the same bytes.
                    sent += super().send(part[at : at + RECORD_BYTES])
        return sent


class TlsClients:
    """Makes connections whose certificate is checked, each with a handshake of its own: none is resumed."""

    def __init__(self, certificate_file: Path, version: str) -> None:
        self._context = ssl.create_default_context(cafile=str(certificate_file))
        self._context.sslsocket_class = LoadSocket
        self._context.minimum_version = self._context.maximum_version = VERSIONS[version]

    def connect(self, port: int) -> socket.socket:
        """A connection whose handshake is done. Raises BenchError if it fails."""
        sock = self.begin(port)
        sock.settimeout(20.0)
        try:
            sock.do_handshake()
        except OSError as error:
            sock.close()
            raise BenchError(f"no TLS with port {port}: {error}") from error
        sock.setblocking(False)
        return sock

    def begin(self, port: int) -> ssl.SSLSocket:
        """A connection that does not block, its handshake still to be done."""
        plain = socket.create_connection((LOOPBACK, port), timeout=20)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setblocking(False)
        return self._context.wrap_socket(plain, server_hostname=HOST, do_handshake_on_connect=False)

    def agreed(self, port: int) -> str:
        """TLS version and cipher that a server agrees to."""
        sock = self.connect(port)
        assert isinstance(sock, ssl.SSLSocket)
        try:
            cipher = sock.cipher()
            return f"{sock.version()} {cipher[0] if cipher else 'no cipher'}"
        finally:
            sock.close()
