"""Towards a broker: whom the proxy trusts, what it shows of its own, and that new files are followed."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from sluice.proxy.listener.tls.context import ClientAuth, ClientTls
from sluice.proxy.runtime.watched_file import ReloadOutcome
from testkit.peers.certificates import CertificateAuthority
from testkit.peers.tls_in_memory import AUTHORITY, LATER_S, Files, Link, look

ALICE = AUTHORITY.client("CN=alice")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls")


def broker_context(files: Files, client_auth: ClientAuth = "none") -> ssl.SSLContext:
    return files.server(client_auth).context


def test_a_broker_is_trusted_if_the_ca_vouches_for_its_name(files: Files) -> None:
    tls = ClientTls(ca_file=files.ca)
    tls.load(time.time())
    Link(broker_context(files), tls.context)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        Link(broker_context(files), tls.context, "elsewhere.example")


def test_the_name_need_not_fit_where_that_is_asked_for_but_the_ca_must(files: Files) -> None:
    tls = ClientTls(ca_file=files.ca, verify_hostname=False)
    tls.load(time.time())
    Link(broker_context(files), tls.context, "elsewhere.example")
    CertificateAuthority().server().write(files.folder, "tls")
    with pytest.raises(ssl.SSLCertVerificationError):
        Link(broker_context(files), tls.context, "localhost")


def test_without_a_ca_file_the_system_is_asked_and_does_not_know_the_tests_ca(files: Files) -> None:
    tls = ClientTls(server_name="broker-1.example")
    tls.load(time.time())
    assert tls.server_name == "broker-1.example"
    assert tls.certificate_not_after_unix_s is None
    assert look(tls) is None
    with pytest.raises(ssl.SSLCertVerificationError, match="local issuer"):
        Link(broker_context(files), tls.context)


def test_a_certificate_of_ones_own_is_shown_to_a_broker_that_asks(files: Files, tmp_path: Path) -> None:
    own = ALICE.write(tmp_path, "own")
    tls = ClientTls(
        ca_file=files.ca,
        certificate_file=own.certificate,
        key_file=own.encrypted_key,
        key_password_file=own.key_password,
    )
    tls.load(time.time())
    link = Link(broker_context(files, "required"), tls.context)
    assert link.server.getpeercert(binary_form=True) == ALICE.der
    assert tls.certificate_not_after_unix_s == ALICE.not_after.timestamp()


def test_the_files_towards_the_broker_are_followed_too(files: Files, tmp_path: Path) -> None:
    own = ALICE.write(tmp_path, "own")
    tls = ClientTls(ca_file=files.ca, certificate_file=own.certificate, key_file=own.key)
    tls.load(time.time() + LATER_S)
    bob = AUTHORITY.client("CN=bob")
    bob.write(tmp_path, "own")
    assert look(tls) is ReloadOutcome.SUCCESS
    link = Link(broker_context(files, "required"), tls.context)
    assert link.server.getpeercert(binary_form=True) == bob.der
