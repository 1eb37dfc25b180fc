"""Certificates that have ended, or not begun: of a chain, of authorities, and when new ones come."""

from __future__ import annotations

import time

from cryptography.hazmat.primitives.serialization import Encoding

from sluice.proxy.runtime.watched_file import ReloadOutcome
from testkit.peers.certificates import CLOCK_SKEW, CertificateAuthority
from testkit.peers.tls_in_memory import AUTHORITY, Files, Link, client_as, look

ALICE = AUTHORITY.client("CN=alice")


def in_days(begins_in_s: float) -> float:
    """For a certificate that begins then: those of the tests begin earlier than they are told to."""
    return (begins_in_s + CLOCK_SKEW.total_seconds()) / 86_400.0


def test_a_certificate_that_has_not_begun_is_taken_when_it_begins(files: Files) -> None:
    tls = files.server()
    later = AUTHORITY.server(starts_in_days=5, ends_in_days=30)
    later.write(files.folder, "tls")
    assert look(tls) is ReloadOutcome.INVALID
    assert not tls._watched.is_at_rest
    now_unix_s = time.time()
    assert tls.reload_if_changed(now_unix_s + 4 * 86_400.0) is None
    assert tls.reload_if_changed(now_unix_s + 5 * 86_400.0) is ReloadOutcome.SUCCESS
    assert tls.certificate_not_after_unix_s == later.not_after.timestamp()
    assert tls.status.last_error == ""
    assert tls.status.outcomes[ReloadOutcome.INVALID] == 1
    assert tls.reload_if_changed(now_unix_s + 5 * 86_400.0 + 60.0) is None


def test_a_certificate_that_was_made_just_now_by_another_clock_is_taken(files: Files) -> None:
    files.certificate.unlink()
    AUTHORITY.server(starts_in_days=in_days(120.0)).write(files.folder, "tls")
    assert files.server().context is not None


def test_of_two_that_are_good_the_one_that_has_begun_stays(files: Files) -> None:
    """Two minutes early: nobody would take the new one yet, and the old one has weeks to go."""
    tls = files.server()
    AUTHORITY.server(starts_in_days=in_days(180.0)).write(files.folder, "tls")
    assert look(tls) is ReloadOutcome.INVALID
    assert "begins on" in tls.status.last_error
    assert tls.reload_if_changed(time.time() + 200.0) is ReloadOutcome.SUCCESS


def test_where_the_old_one_has_ended_the_new_one_is_taken_by_another_clock(files: Files) -> None:
    AUTHORITY.server(ends_in_days=0.5).write(files.folder, "tls")
    tls = files.server()
    half_a_day_later = time.time() + 43_210.0
    AUTHORITY.server(starts_in_days=0.5 + in_days(200.0)).write(files.folder, "tls")
    assert tls.reload_if_changed(half_a_day_later) is ReloadOutcome.SUCCESS


def test_a_chain_ends_with_the_first_that_ends(files: Files) -> None:
    """Its begin is that one's, too: from begin to end is a life."""
    identity = files.issue(ends_in_days=3)
    tls = files.server()
    (authority,) = identity.chain
    assert tls.ends_first is not None
    assert tls.ends_first.end_unix_s == authority.not_valid_after_utc.timestamp()
    assert tls.ends_first.begin_unix_s == authority.not_valid_before_utc.timestamp()


def test_what_nobody_needs_of_a_file_may_have_ended(files: Files) -> None:
    """A root, which clients have themselves; another chain's authority; one of two by the same name."""
    identity = files.issue(ends_in_days=90)
    ended = CertificateAuthority(ends_in_days=-1)
    twin = AUTHORITY.intermediate(ends_in_days=-1)
    others = [ended.certificate_pem, ended.intermediate("elsewhere", ends_in_days=-1).certificate_pem]
    leaf, chain = (each.public_bytes(Encoding.PEM) for each in (identity.certificate, identity.chain[0]))
    files.certificate.write_bytes(b"".join([leaf, twin.certificate_pem, *others, chain]))
    files.ca.write_bytes(ended.certificate_pem + AUTHORITY.certificate_pem)
    tls = files.server("required")
    Link(tls.context, client_as(ALICE, files.folder))
    assert tls.certificate_not_after_unix_s == identity.not_after.timestamp()
