"""Doors of a proxy that ends TLS, their files mounted as Kubernetes does it, and what clients see there."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from testkit.peers.certificates import Identity, IdentityFiles
from testkit.processes.ports import LOOPBACK
from testkit.proxy.sluice_process import SluiceProcess

RELOAD_INTERVAL_S: Final = 0.1


class MountedSecret:
    """A folder of files that change all at once: each is a link through `..data`, which is exchanged."""

    def __init__(self, folder: Path, files: Mapping[str, bytes | str]) -> None:
        self.folder = folder
        folder.mkdir()
        self._versions = itertools.count()
        self.put(files)
        for name in files:
            (folder / name).symlink_to(Path("..data", name))

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def put(self, files: Mapping[str, bytes | str]) -> None:
        """Mount these in the place of what was there; a file that is left out is gone."""
        version = self.folder / f"..version-{next(self._versions)}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        link = self.folder / "..new"
        link.symlink_to(version.name)
        os.replace(link, self.folder / "..data")


def secret_of(identity: Identity, ca_pem: bytes | None = None) -> dict[str, bytes]:
    """A Secret of type kubernetes.io/tls; `ca_pem`: who vouches for clients."""
    files = {"tls.crt": identity.certificate_pem, "tls.key": identity.key_pem()}
    return files if ca_pem is None else files | {"ca.crt": ca_pem}


def tls_of(secret: MountedSecret, *, rules: str | None = None) -> dict[str, Any]:
    """The section `tls` of a listener; with `rules` clients must show a certificate."""
    section: dict[str, Any] = {
        "certificate_file": str(secret / "tls.crt"),
        "key_file": str(secret / "tls.key"),
        "reload_interval_s": RELOAD_INTERVAL_S,
    }
    if rules is not None:
        section |= {
            "client_ca_file": str(secret / "ca.crt"),
            "client_auth": "required",
            "principal_mapping_rules": rules,
        }
    return section


@contextmanager
def tls_connection(
    port: int, ca_file: Path, identity: IdentityFiles | None = None, *, host: str = LOOPBACK
) -> Iterator[ssl.SSLSocket]:
    """A TLS client that has shaken hands. Raises OSError if it is not let in so far.

    With TLS 1.3 a server refuses a client's certificate after the handshake: then the first read says so.
    """
    context = ssl.create_default_context(cafile=str(ca_file))
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    with (
        socket.create_connection((host, port), timeout=20.0) as tcp,
        context.wrap_socket(tcp, server_hostname=host) as tls,
    ):
        yield tls


def certificate_at(port: int, ca_file: Path) -> bytes:
    """The certificate (DER) that a new handshake shows."""
    with tls_connection(port, ca_file) as tls:
        found = tls.getpeercert(binary_form=True)
        assert found is not None
        return found


def await_disconnects(sluice: SluiceProcess, cause: str, count: int) -> None:
    """Wait until so many connections in all have ended for this cause."""
    sluice.wait_until(lambda: sluice.disconnects(cause) == count, f"{cause} {count} times")
