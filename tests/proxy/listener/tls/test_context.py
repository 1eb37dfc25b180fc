"""Certificates, keys and CAs from files: what is refused and how it is said, and that live connections never
notice a change.

The other side is Python's ssl module with a context of its own.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copyfile

import pytest

from sluice.proxy.listener.tls import context as tls_context
from sluice.proxy.listener.tls.context import ClientTls, ServerTls, TlsConfigError
from sluice.proxy.runtime.watched_file import ReloadOutcome
from sluice.quotas.files import load
from testkit.peers.certificates import PASSWORD, CertificateAuthority, Identity
from testkit.peers.tls_in_memory import AUTHORITY, LATER_S, SERVER, Files, Link, client, client_as, look

OTHER_SERVER = AUTHORITY.server()
ALICE = AUTHORITY.client("CN=alice")


def serial(identity: Identity) -> str:
    text = f"{identity.certificate.serial_number:X}"
    return text.rjust(len(text) + len(text) % 2, "0")


# Loading ----------------------------------------------------------------------------------------------------


def test_a_server_has_its_certificate_and_knows_when_it_ends(files: Files) -> None:
    tls = files.server()
    assert Link(tls.context, client()).server_serial == serial(SERVER)
    assert tls.certificate_not_after_unix_s == SERVER.not_after.timestamp()


def test_an_encrypted_key_is_opened_with_the_password_of_its_file(files: Files) -> None:
    tls = ServerTls(
        certificate_file=files.certificate, key_file=files.encrypted_key, key_password_file=files.password
    )
    tls.load(time.time())
    Link(tls.context, client())


def test_intermediate_authorities_in_the_certificate_file_are_sent(files: Files) -> None:
    identity = AUTHORITY.intermediate().server()
    identity.write(files.folder, "tls")
    assert Link(files.server().context, client()).server_serial == serial(identity)


def test_a_client_ca_may_be_an_intermediate_without_its_root_as_in_java(files: Files) -> None:
    intermediate = AUTHORITY.intermediate()
    intermediate.write(files.folder)
    context = client_as(intermediate.client("CN=alice"), files.folder)
    Link(files.server("required").context, context)
    with pytest.raises(ssl.SSLCertVerificationError):
        Link(files.server("required").context, client_as(ALICE, files.folder))


@pytest.mark.parametrize(("version", "is_served"), [("TLSv1_2", False), ("TLSv1_3", True)])
def test_the_least_version_is_kept_to(files: Files, version: str, is_served: bool) -> None:
    tls = ServerTls(certificate_file=files.certificate, key_file=files.key, min_version="TLSv1.3")
    tls.load(time.time())
    context = client()
    context.maximum_version = ssl.TLSVersion[version]
    if is_served:
        Link(tls.context, context)
    else:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
            Link(tls.context, context)


def test_tls_1_2_is_the_least_if_nothing_is_said_and_nobody_may_renegotiate(files: Files) -> None:
    for tls in (files.server(), ClientTls(ca_file=files.ca)):
        tls.load(time.time())
        assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert tls.context.options & ssl.OP_NO_RENEGOTIATION


def broken_certificate(files: Files) -> None:
    body = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    files.certificate.write_bytes(body)


def a_folder_for_a_key(files: Files) -> None:
    files.key.unlink()
    files.key.mkdir()


def broken_chain(files: Files) -> None:
    with files.certificate.open("ab") as file:
        file.write(b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")


BAD: dict[str, tuple[str, Callable[[Files], object], str]] = {
    "no certificate file": (
        "certificate_file",
        lambda files: files.certificate.unlink(),
        "cannot be read: no such file",
    ),
    "a folder": (
        "key_file",
        a_folder_for_a_key,
        "cannot be read: is a directory",
    ),
    "DER": (
        "certificate_file",
        lambda files: files.certificate.write_bytes(SERVER.der),
        "holds no certificate in PEM",
    ),
    "a key for a certificate": (
        "certificate_file",
        lambda files: copyfile(files.key, files.certificate),
        "holds no certificate in PEM",
    ),
    "a broken certificate": ("certificate_file", broken_certificate, "holds a broken certificate"),
    "a broken chain": ("certificate_file", broken_chain, "cannot be used with"),
    "expired": (
        "certificate_file",
        lambda files: AUTHORITY.server(starts_in_days=-9, ends_in_days=-1).write(files.folder, "tls"),
        "its certificate ended on 20",
    ),
    "not begun": (
        "certificate_file",
        lambda files: AUTHORITY.server(starts_in_days=5, ends_in_days=30).write(files.folder, "tls"),
        "its certificate begins on 20",
    ),
    "an authority of its chain that has ended": (
        "certificate_file",
        lambda files: files.issue(ends_in_days=-1),
        "certificate 2 in it, of an authority of its chain, ended on 20",
    ),
    "an authority of its chain that has not begun": (
        "certificate_file",
        lambda files: files.issue(starts_in_days=5),
        "certificate 2 in it, of an authority of its chain, begins on 20",
    ),
    "a CA that has ended": (
        "client_ca_file",
        lambda files: files.ca.write_bytes(CertificateAuthority(ends_in_days=-1).certificate_pem),
        "its certificate ended on 20",
    ),
    "CAs that have ended, or not begun": (
        "client_ca_file",
        lambda files: files.ca.write_bytes(
            CertificateAuthority(ends_in_days=-1).certificate_pem
            + CertificateAuthority(starts_in_days=5).certificate_pem
        ),
        "no certificate in it is in force: 2 begins on 20",
    ),
    "a certificate for a key": (
        "key_file",
        lambda files: copyfile(files.certificate, files.key),
        "holds no private key",
    ),
    "a broken key": (
        "certificate_file",
        lambda files: files.key.write_bytes(SERVER.key_pem()[:90] + SERVER.key_pem()[100:]),
        "cannot be used with",
    ),
    "another key": (
        "key_file",
        lambda files: files.key.write_bytes(OTHER_SERVER.key_pem()),
        "does not fit the certificate in",
    ),
    "an encrypted key": (
        "key_file",
        lambda files: copyfile(files.encrypted_key, files.key),
        "is encrypted; name a key_password_file",
    ),
    "no CA": ("client_ca_file", lambda files: files.ca.write_text("hello\n"), "holds no CA certificates"),
    "a broken CA": (
        "client_ca_file",
        lambda files: files.ca.write_bytes(AUTHORITY.certificate_pem.replace(b"MII", b"M!!")),
        "holds no CA certificates in PEM form, or broken ones",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_used_is_named_with_its_option_and_what_is_wrong(
    files: Files, name: str
) -> None:
    option, spoil, message = BAD[name]
    spoil(files)
    with pytest.raises(TlsConfigError) as caught:
        files.server("required")
    error = caught.value
    path = {"certificate_file": files.certificate, "key_file": files.key, "client_ca_file": files.ca}[option]
    assert (error.option, error.file) == (option, path)
    assert str(error).startswith(f"{path}: {option}: {message}")
    assert len(error.problems) == 1


@pytest.mark.parametrize("password", [b"wrong\n", b"x" * 1024, b""], ids=["wrong", "too long", "empty"])
def test_a_password_that_does_not_open_the_key_is_told_and_not_shown(files: Files, password: bytes) -> None:
    files.password.write_bytes(password)
    tls = ServerTls(
        certificate_file=files.certificate, key_file=files.encrypted_key, key_password_file=files.password
    )
    with pytest.raises(TlsConfigError, match="password") as caught:
        tls.load(time.time())
    assert PASSWORD not in str(caught.value)
    assert "wrong" not in str(caught.value)
    assert "xxx" not in str(caught.value)


def test_who_asks_for_certificates_must_say_whom_to_trust(files: Files) -> None:
    with pytest.raises(TlsConfigError, match="client_ca_file: client_auth: required needs to know whom"):
        ServerTls(certificate_file=files.certificate, key_file=files.key, client_auth="required")


@pytest.mark.parametrize("given", ["certificate_file", "key_file"])
def test_a_clients_certificate_and_key_belong_together(files: Files, given: str) -> None:
    with pytest.raises(TlsConfigError, match="belong together"):
        ClientTls(**{given: files.key})  # type: ignore[arg-type]


# Reloading --------------------------------------------------------------------------------------------------


def test_nothing_new_is_nothing(files: Files) -> None:
    tls = files.server()
    context = tls.context
    assert [look(tls), look(tls)] == [None, None]
    assert tls.context is context


def test_new_files_are_for_new_handshakes_and_live_connections_live_on(files: Files) -> None:
    tls = files.server()
    before = Link(tls.context, client())
    OTHER_SERVER.write(files.folder, "tls")
    assert look(tls) is ReloadOutcome.SUCCESS
    after = Link(tls.context, client())
    before.check()
    after.check()
    assert [before.server_serial, after.server_serial] == [serial(SERVER), serial(OTHER_SERVER)]
    assert tls.certificate_not_after_unix_s == OTHER_SERVER.not_after.timestamp()
    assert look(tls) is None


@pytest.mark.parametrize("name", BAD)
def test_bad_new_files_leave_the_good_ones_in_force_and_are_told_once(files: Files, name: str) -> None:
    _, spoil, message = BAD[name]
    tls = files.server("required")
    context = tls.context
    spoil(files)
    outcome = ReloadOutcome.UNREADABLE if "cannot be read" in message else ReloadOutcome.INVALID
    assert [look(tls), look(tls)] == [outcome, None]
    assert message in tls.status.last_error
    assert tls.context is context
    Link(tls.context, client_as(ALICE, files.folder))
    assert tls.certificate_not_after_unix_s == SERVER.not_after.timestamp()


def test_the_good_files_come_back_clear_the_error(files: Files) -> None:
    tls = files.server()
    good = files.key.read_bytes()
    files.key.write_bytes(OTHER_SERVER.key_pem())
    assert look(tls) is ReloadOutcome.INVALID
    files.key.unlink()
    files.key.write_bytes(good)
    assert look(tls) is ReloadOutcome.UNCHANGED
    assert tls.status.last_error == ""
    assert tls.status.outcomes == {
        ReloadOutcome.SUCCESS: 1,
        ReloadOutcome.UNCHANGED: 1,
        ReloadOutcome.INVALID: 1,
        ReloadOutcome.UNREADABLE: 0,
        ReloadOutcome.HANGING: 0,
    }


def test_a_certificate_whose_key_is_still_to_be_written_is_not_called_bad(files: Files) -> None:
    tls = files.server()
    files.certificate.write_bytes(OTHER_SERVER.certificate_pem)
    assert tls.reload_if_changed(time.time()) is None
    assert tls.status.last_error == ""
    files.key.write_bytes(OTHER_SERVER.key_pem())
    assert tls.reload_if_changed(time.time()) is ReloadOutcome.SUCCESS
    assert Link(tls.context, client()).server_serial == serial(OTHER_SERVER)


def test_a_key_that_never_comes_is_told_once_the_files_have_settled(files: Files) -> None:
    tls = files.server()
    files.certificate.write_bytes(OTHER_SERVER.certificate_pem)
    assert [tls.reload_if_changed(time.time()), look(tls), look(tls)] == [None, ReloadOutcome.INVALID, None]


def test_a_secret_swapped_by_its_symlink_is_seen(tmp_path: Path) -> None:
    """As Kubernetes does it: ..data leads to a folder, and is renamed over."""
    for name, identity in (("one", SERVER), ("two", OTHER_SERVER)):
        identity.write(tmp_path / name, "tls")
    data = tmp_path / "..data"
    data.symlink_to("one")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    tls = ServerTls(certificate_file=tmp_path / "tls.crt", key_file=tmp_path / "tls.key")
    tls.load(time.time() + LATER_S)
    os.symlink("two", tmp_path / "..new")
    os.rename(tmp_path / "..new", data)
    assert look(tls) is ReloadOutcome.SUCCESS
    assert Link(tls.context, client()).server_serial == serial(OTHER_SERVER)


def test_files_that_go_while_they_are_looked_at_are_told_once(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = files.server()
    files.key.write_bytes(OTHER_SERVER.key_pem())
    read = load.read_bytes

    def reads_too_late(path: Path, most_bytes: int) -> bytes:
        path.unlink(missing_ok=True)
        return read(path, most_bytes)

    monkeypatch.setattr(tls_context, "read_bytes", reads_too_late)
    assert [look(tls), look(tls), look(tls)] == [None, ReloadOutcome.UNREADABLE, None]


def test_a_new_ca_is_for_new_clients_and_the_old_ones_stay(files: Files) -> None:
    tls = files.server("required")
    alice = client_as(ALICE, files.folder)
    before = Link(tls.context, alice)
    new = CertificateAuthority("The next CA")
    new.write(files.folder)
    assert look(tls) is ReloadOutcome.SUCCESS
    before.check()
    with pytest.raises(ssl.SSLCertVerificationError):
        Link(tls.context, alice)
    Link(tls.context, client_as(new.client("CN=bob"), files.folder))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_nobody_resumes_a_session_past_a_change_of_ca(files: Files, version: ssl.TLSVersion) -> None:
    tls = files.server("required")
    alice = client_as(ALICE, files.folder)
    alice.maximum_version = version
    session = Link(tls.context, alice).client.session
    assert session is not None
    assert Link(tls.context, alice, session=session).server.session_reused
    CertificateAuthority().write(files.folder)
    assert look(tls) is ReloadOutcome.SUCCESS
    with pytest.raises(ssl.SSLCertVerificationError):
        Link(tls.context, alice, session=session)
