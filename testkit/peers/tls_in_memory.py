"""The files of a TLS server as an operator mounts them, and two ends of TLS joined in memory."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from sluice.proxy.listener.tls.context import ClientAuth, ServerTls, Tls
from sluice.proxy.runtime.watched_file import ReloadOutcome
from testkit.peers.certificates import CertificateAuthority, Identity

AUTHORITY = CertificateAuthority()
SERVER = AUTHORITY.server()
LATER_S = 10.0
"""after which no file is young"""


class Files:
    """What an operator mounts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = SERVER.write(folder, "tls")
        self.certificate, self.key = files.certificate, files.key
        self.encrypted_key, self.password = files.encrypted_key, files.key_password
        self.ca = AUTHORITY.write(folder)

    def server(self, client_auth: ClientAuth = "none") -> ServerTls:
        tls = ServerTls(
            certificate_file=self.certificate,
            key_file=self.key,
            client_ca_file=None if client_auth == "none" else self.ca,
            client_auth=client_auth,
        )
        tls.load(time.time() + LATER_S)
        return tls

    def issue(self, starts_in_days: float = -9, ends_in_days: float = 9) -> Identity:
        """A new certificate in the place of the first, of an authority with these dates below the root."""
        authority = AUTHORITY.intermediate(starts_in_days=starts_in_days, ends_in_days=ends_in_days)
        identity = authority.server()
        identity.write(self.folder, "tls")
        return identity


def client(authority: CertificateAuthority = AUTHORITY) -> ssl.SSLContext:
    """Trusts this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    return context


def client_as(identity: Identity, folder: Path) -> ssl.SSLContext:
    """The same with a certificate; its files are put into the folder."""
    files = identity.write(folder / "clients")
    context = client()
    context.load_cert_chain(files.certificate, files.key)
    return context


class Link:
    """Two ends, joined in memory."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        name: str | None = "localhost",
        session: ssl.SSLSession | None = None,
    ) -> None:
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(down, up, server_hostname=name, session=session)
        self.server = server.wrap_bio(up, down, server_side=True)
        done = [False, False]
        while not all(done):
            for index, end in enumerate((self.client, self.server)):
                try:
                    end.do_handshake()
                    done[index] = True
                except ssl.SSLWantReadError:
                    pass
        self.check()

    def check(self) -> None:
        """Bytes pass, both ways."""
        for sender, receiver in ((self.client, self.server), (self.server, self.client)):
            sender.write(b"some bytes")
            assert receiver.read(100) == b"some bytes"

    @property
    def server_serial(self) -> str:
        """Whom the client sees."""
        certificate = self.client.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def look(tls: Tls) -> ReloadOutcome | None:
    """One look, when nothing was written just now."""
    return tls.reload_if_changed(time.time() + LATER_S)
