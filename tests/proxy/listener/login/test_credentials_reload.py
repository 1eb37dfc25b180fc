"""Credentials that change are in force at once, and a bad change loses no good ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sluice.proxy.listener.login.credentials import CredentialsFile
from sluice.proxy.runtime import watched_file
from sluice.proxy.runtime.watched_file import ReloadOutcome
from testkit.proxy.credentials_folder import BEARER, NOW_UNIX_S, Folder, password_of, token_of


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def look(file: CredentialsFile) -> ReloadOutcome | None:
    return file.reload_if_changed(NOW_UNIX_S)


def test_a_changed_yaml_is_in_force_at_once(folder: Folder) -> None:
    file = folder.loaded("users: {alice: {password: old}}")
    assert look(file) is None
    folder.write("credentials.yaml", "users: {alice: {password: new}, bob: {password: bobs}}")
    assert look(file) is ReloadOutcome.SUCCESS
    assert (password_of(file, "alice"), password_of(file, "bob")) == ("new", "bobs")
    assert look(file) is None


def test_a_renewed_token_is_in_force_at_once(folder: Folder) -> None:
    folder.write("token", "first")
    file = folder.loaded("service: {token_file: token}", BEARER)
    folder.write("token", "second")
    assert look(file) is ReloadOutcome.SUCCESS
    assert token_of(file, "anybody") == "second"


def test_a_projected_token_is_renewed_behind_its_symbolic_links(folder: Folder) -> None:
    """`token` → `..data/token`, and `..data` → a folder with a time in its name, which is exchanged."""
    for name, token in (("..1", "first"), ("..2", "second")):
        (folder.root / name).mkdir()
        folder.write(f"{name}/token", token)
    (folder.root / "..data").symlink_to("..1")
    (folder.root / "token").symlink_to("..data/token")
    file = folder.loaded("service: {token_file: token}", BEARER)
    assert token_of(file, "anybody") == "first"
    (folder.root / "..new").symlink_to("..2")
    (folder.root / "..new").rename(folder.root / "..data")
    assert look(file) is ReloadOutcome.SUCCESS
    assert token_of(file, "anybody") == "second"


def test_what_did_not_change_keeps_what_it_has_salted(folder: Folder) -> None:
    file = folder.loaded("users: {alice: {password: alices}, bob: {password: old}}")
    alice, bob = file.for_user("alice"), file.for_user("bob")
    folder.write("credentials.yaml", "users: {alice: {password: alices}, bob: {password: new}}")
    assert look(file) is ReloadOutcome.SUCCESS
    assert file.for_user("alice") is alice
    assert file.for_user("bob") != bob


@pytest.mark.parametrize("bad", ["users: {", "users: {alice: {password: }}", ""])
def test_a_bad_yaml_leaves_the_last_good_one_in_force(folder: Folder, bad: str) -> None:
    file = folder.loaded("users: {alice: {password: good}}")
    folder.write("credentials.yaml", bad)
    assert [look(file), look(file)] == [ReloadOutcome.INVALID, None]
    assert password_of(file, "alice") == "good"
    assert file.status.last_error
    assert file.problems
    folder.write("credentials.yaml", "users: {alice: {password: good}}")
    assert look(file) is ReloadOutcome.UNCHANGED
    assert (file.status.last_error, file.problems) == ("", ())


def test_a_missing_yaml_leaves_the_last_good_one_in_force(folder: Folder) -> None:
    file = folder.loaded("users: {alice: {password: good}}")
    folder.yaml.unlink()
    assert [look(file), look(file)] == [ReloadOutcome.UNREADABLE, None]
    assert password_of(file, "alice") == "good"
    assert file.problems


def test_a_lost_secret_is_kept_while_the_others_are_renewed(folder: Folder) -> None:
    for user in ("alice", "bob"):
        folder.write(f"{user}.token", f"{user}-1")
    file = folder.loaded("users: {alice: {token_file: alice.token}, bob: {token_file: bob.token}}", BEARER)
    (folder.root / "alice.token").unlink()
    folder.write("bob.token", "bob-2")
    assert look(file) is ReloadOutcome.INVALID
    assert (token_of(file, "alice"), token_of(file, "bob")) == ("alice-1", "bob-2")
    folder.write("bob.token", "bob-3")
    assert look(file) is ReloadOutcome.INVALID
    assert token_of(file, "bob") == "bob-3"
    folder.write("alice.token", "alice-4")
    assert look(file) is ReloadOutcome.SUCCESS
    assert (token_of(file, "alice"), token_of(file, "bob")) == ("alice-4", "bob-3")


def test_another_trouble_with_the_same_secret_is_told(folder: Folder) -> None:
    folder.write("token", "first")
    file = folder.loaded("service: {token_file: token}", BEARER)
    for content, words in ((b"", "is empty"), (b"\xff", "is not UTF-8")):
        folder.write("token", content)
        assert look(file) is ReloadOutcome.INVALID
        assert words in file.status.last_error
        assert words in file.problems[0].message


def test_while_one_secret_is_lost_the_others_keep_what_they_have_salted(folder: Folder) -> None:
    for user in ("alice", "bob"):
        folder.write(f"{user}.password", user)
    file = folder.loaded(
        "users: {alice: {password_file: alice.password}, bob: {password_file: bob.password}}"
    )
    bob = file.for_user("bob")
    (folder.root / "alice.password").unlink()
    assert look(file) is ReloadOutcome.INVALID
    assert file.for_user("bob") is bob


@pytest.mark.parametrize("damage", ["users: {", None])
def test_tokens_are_renewed_while_the_yaml_is_bad(folder: Folder, damage: str | None) -> None:
    folder.write("token", "first")
    file = folder.loaded("service: {token_file: token}", BEARER)
    if damage is None:
        folder.yaml.unlink()
    else:
        folder.write("credentials.yaml", damage)
    assert look(file) in {ReloadOutcome.INVALID, ReloadOutcome.UNREADABLE}
    folder.write("token", "second")
    assert look(file) is not ReloadOutcome.SUCCESS
    assert token_of(file, "anybody") == "second"


def test_a_new_user_whose_secret_comes_later_is_let_in_then(folder: Folder) -> None:
    """A ConfigMap and a Secret that were changed together arrive one after the other."""
    file = folder.loaded("users: {alice: {password: alices}}")
    folder.write("credentials.yaml", "users: {alice: {password: new}, bob: {password_file: bob.password}}")
    assert look(file) is ReloadOutcome.INVALID
    assert (password_of(file, "alice"), file.for_user("bob")) == ("alices", None)
    folder.write("bob.password", "bobs")
    assert look(file) is ReloadOutcome.SUCCESS
    assert (password_of(file, "alice"), password_of(file, "bob")) == ("new", "bobs")


def test_the_last_user_cannot_be_removed_where_identities_are_not_shared(folder: Folder) -> None:
    file = folder.loaded("users: {alice: {password: alices}}", share_service=False)
    folder.write("credentials.yaml", "service: {username: sluice, password: x}")
    assert look(file) is ReloadOutcome.INVALID
    assert password_of(file, "alice") == "alices"


def test_a_secret_written_twice_within_its_clocks_tick_is_noticed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "SETTLED_S", 2 * NOW_UNIX_S)
    folder.write("token", "first")
    file = folder.loaded("service: {token_file: token}", BEARER)
    before = (folder.root / "token").stat()
    (folder.root / "token").write_text("secnd")
    os.utime(folder.root / "token", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert look(file) is ReloadOutcome.SUCCESS
    assert token_of(file, "anybody") == "secnd"


def test_an_old_file_is_not_read_again(folder: Folder) -> None:
    folder.write("token", "first")
    file = folder.loaded("service: {token_file: token}", BEARER)
    before = (folder.root / "token").stat()
    (folder.root / "token").write_text("secnd")
    os.utime(folder.root / "token", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert look(file) is None
    assert token_of(file, "anybody") == "first"
