"""The credentials file: what it may say, that no error tells a secret, that a reload loses no good one."""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.proxy.listener.login.credential_entries import (
    MAX_SECRET_BYTES,
    CredentialsError,
    PasswordCredentials,
    TokenCredentials,
)
from sluice.proxy.listener.login.credentials import CredentialsFile
from sluice.proxy.runtime import watched_file
from sluice.proxy.runtime.watched_file import ReloadOutcome

SECRET = "hunter2-hunter2"
NOW_UNIX_S = 4e9
"""So late that every file of a test has settled."""
PLAIN, SCRAM, BEARER = "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"


class Folder:
    """Files that are each written at a time of their own, long ago."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.yaml = root / "credentials.yaml"
        self._times: Iterator[int] = itertools.count(1)

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        when = next(self._times)
        os.utime(path, (when, when))

    def file(self, yaml: str, mechanism: str = SCRAM, *, share_service: bool = True) -> CredentialsFile:
        self.write("credentials.yaml", yaml)
        return CredentialsFile(self.yaml, mechanism, share_service=share_service)

    def loaded(self, yaml: str, mechanism: str = SCRAM, *, share_service: bool = True) -> CredentialsFile:
        file = self.file(yaml, mechanism, share_service=share_service)
        file.load(NOW_UNIX_S)
        return file


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def look(file: CredentialsFile) -> ReloadOutcome | None:
    return file.reload_if_changed(NOW_UNIX_S)


def password_of(file: CredentialsFile, user: str) -> str:
    found = file.for_user(user)
    assert isinstance(found, PasswordCredentials)
    return found.password.get_secret_value()


def token_of(file: CredentialsFile, user: str) -> str:
    found = file.for_user(user)
    assert isinstance(found, TokenCredentials)
    return found.token.get_secret_value()


BOTH = """\
service: {username: sluice, password: service-password}
users:
  alice: {password: alice-password}
  bob:
    username: app-bob
    password_file: bob.password
"""


def test_users_have_their_own_and_the_others_the_services(folder: Folder) -> None:
    folder.write("bob.password", "bob-password\n")
    file = folder.loaded(BOTH)
    assert file.for_user("alice") == PasswordCredentials.of("alice", "alice-password")
    assert file.for_user("bob") == PasswordCredentials.of("app-bob", "bob-password")
    assert file.for_user("carol") == file.service == PasswordCredentials.of("sluice", "service-password")
    assert file.per_user


def test_the_service_is_nobodys_where_identities_are_not_shared(folder: Folder) -> None:
    folder.write("bob.password", "bob-password\n")
    file = folder.loaded(BOTH, share_service=False)
    assert file.for_user("alice") == PasswordCredentials.of("alice", "alice-password")
    assert file.for_user("carol") is None
    assert file.service == PasswordCredentials.of("sluice", "service-password")


def test_a_service_alone_is_refused_where_identities_are_not_shared(folder: Folder) -> None:
    yaml = f"service: {{username: sluice, password: {SECRET}}}"
    assert not folder.loaded(yaml).per_user
    with pytest.raises(CredentialsError, match="accept_shared_upstream_identity: true") as refused:
        folder.loaded(yaml, share_service=False)
    assert SECRET not in str(refused.value)


def test_users_alone_leave_the_others_outside(folder: Folder) -> None:
    file = folder.loaded("users: {alice: {password: x}}")
    assert file.for_user("bob") is None
    assert file.service is None


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"pass word\n", "pass word"),
        (b"pass\r\n", "pass"),
        (b" pass \n\n", " pass \n"),
        (b"p\xc3\xa4ss", "p\u00e4ss"),
    ],
)
def test_of_a_password_file_one_line_end_is_not_the_password(
    folder: Folder, content: bytes, password: str
) -> None:
    folder.write("bob.password", content)
    assert password_of(folder.loaded(BOTH), "bob") == password


def test_tokens_and_their_extensions(folder: Folder) -> None:
    folder.write("token", " abc.def. \n\n")  # no token has blanks
    file = folder.loaded("service: {token_file: token, extensions: {logicalCluster: lkc-1}}", BEARER)
    found = file.for_user("anybody")
    assert found == file.service
    assert isinstance(found, TokenCredentials)
    assert (token_of(file, "anybody"), found.extensions) == ("abc.def.", {"logicalCluster": "lkc-1"})


def test_an_absolute_file_is_taken_as_it_is(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "token"
    elsewhere.write_text("abc")
    assert token_of(folder.loaded(f"service: {{token_file: {elsewhere}}}", BEARER), "anybody") == "abc"


FAULTS = {
    "an empty file": (SCRAM, "", "must have `service:`"),
    "a list": (SCRAM, "- service", "must have `service:`"),
    "an unknown top key": (
        SCRAM,
        f"service: {{username: a, password: {SECRET}}}\nuser: x",
        "2: user: unknown key",
    ),
    "an unknown key": (
        SCRAM,
        f"service:\n  username: a\n  pasword: {SECRET}",
        "3: service.pasword: unknown key",
    ),
    "a password that is no text": (
        SCRAM,
        "service:\n  username: a\n  password: 1234567",
        "3: service.password: must be a text; write it in quotes",
    ),
    "a blank password": (SCRAM, "service: {username: a, password: }", "service.password: must not be blank"),
    "a password twice": (
        SCRAM,
        f"service: {{username: a, password: {SECRET}, password_file: b}}",
        "1: service: give password or password_file, not both",
    ),
    "no password": (SCRAM, "service: {username: a}", "service: give password or password_file"),
    "no username": (SCRAM, f"service: {{password: {SECRET}}}", "service: give username"),
    "a blank username": (SCRAM, f"users: {{a: {{username: '', password: {SECRET}}}}}", "must not be blank"),
    "a duplicate": (
        SCRAM,
        f"users:\n  a: {{password: {SECRET}}}\n  a: {{password: x}}",
        "3: users.a: duplicate",
    ),
    "everybody": (SCRAM, f"users: {{<default>: {{password: {SECRET}}}}}", "is `service:`"),
    "nobody": (SCRAM, f"users: {{'': {{password: {SECRET}}}}}", "must be the name of one user"),
    "users as a list": (SCRAM, f"users: [{SECRET}]", "users: must be a mapping"),
    "a user as a text": (SCRAM, f"users: {{alice: {SECRET}}}", "users.alice: must be a mapping"),
    "an alias": (SCRAM, f"service: {{username: a, password: *{SECRET}}}", "must be in quotes"),
    "a tag": (SCRAM, f"service: {{username: a, password: !{SECRET}}}", "not YAML"),
    "a tag and a text": (SCRAM, f"service: {{username: a, password: !{SECRET} x}}", "must be in quotes"),
    "broken YAML": (SCRAM, f"service:\n  username: a\n  password: '{SECRET}", "not YAML"),
    "a tab": (SCRAM, f"service:\n\tpassword: {SECRET}", "not YAML"),
    "a character": (SCRAM, f"service:\n  password: {SECRET}\x01", "not YAML"),
    "a percent sign": (SCRAM, f"service:\n  username: a\n  password: %{SECRET}", "not YAML"),
    "a colon": (SCRAM, f"service:\n  username: a\n  password: {SECRET}: {SECRET}", "not YAML"),
    "a token for SCRAM": (
        SCRAM,
        "service:\n  token_file: token",
        "2: service.token_file: not with SCRAM-SHA-256",
    ),
    "a password for OAUTHBEARER": (
        BEARER,
        f"service:\n  username: a\n  password: {SECRET}",
        "3: service.password: not with OAUTHBEARER",
    ),
    "no token": (BEARER, "service: {}", "service: give token_file"),
    "a missing file": (SCRAM, "users:\n  a:\n    password_file: no.such", "3: users.a.password_file: "),
    "a folder": (SCRAM, "users: {a: {password_file: .}}", "no such file"),
    "an empty file of a password": (SCRAM, "users: {a: {password_file: empty}}", "empty is empty"),
    "a file that is no text": (SCRAM, "users: {a: {password_file: binary}}", "binary is not UTF-8"),
    "a large file": (SCRAM, "users: {a: {password_file: large}}", f"is larger than {MAX_SECRET_BYTES} bytes"),
    "a token of two lines": (
        BEARER,
        "users: {a: {token_file: lines}}",
        "users.a.token_file: not a bearer token",
    ),
    "a blank token": (BEARER, "users: {a: {token_file: blank}}", "users.a.token_file: not a bearer token"),
    "a NUL for PLAIN": (
        PLAIN,
        f'users: {{a: {{password: "{SECRET}\\0"}}}}',
        "users.a.password: PLAIN cannot carry",
    ),
    "an extension of the mechanism": (
        BEARER,
        f"users: {{a: {{token_file: token, extensions: {{auth: {SECRET}}}}}}}",
        "users.a.extensions.auth: must be letters, not `auth`",
    ),
    "an extension that is no text": (
        BEARER,
        "users: {a: {token_file: token, extensions: {pool: 1234567}}}",
        "users.a.extensions.pool: must be a text",
    ),
    "extensions as a text": (
        BEARER,
        f"users: {{a: {{token_file: token, extensions: {SECRET}}}}}",
        "users.a.extensions: must be a mapping",
    ),
}


@pytest.fixture
def stocked(folder: Folder) -> Folder:
    for name, content in {
        "token": SECRET.encode(),
        "empty": b"\n",
        "blank": b" \n\n",
        "binary": SECRET.encode() + b"\xff",
        "large": SECRET.encode() * (MAX_SECRET_BYTES // len(SECRET) + 1),
        "lines": f"{SECRET}\n{SECRET}\n".encode(),
    }.items():
        folder.write(name, content)
    return folder


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_is_told_with_its_place_and_without_a_secret(stocked: Folder, case: str) -> None:
    mechanism, yaml, message = FAULTS[case]
    file = stocked.file(yaml, mechanism)
    with pytest.raises(CredentialsError) as refused:
        file.load(NOW_UNIX_S)
    told = str(refused.value)
    assert message in told
    assert told.startswith(str(stocked.yaml))
    trace = "".join(traceback.format_exception(refused.value))
    for secret in (SECRET, "1234567"):
        assert (
            secret not in told + trace + repr(file) + repr(refused.value.__context__) + file.status.last_error
        )


def test_all_faults_are_told_at_once_in_their_order(folder: Folder) -> None:
    file = folder.file("users:\n  a: {password: }\n  b: {}\n  c: {password_file: gone}\nservice: 1\n")
    with pytest.raises(CredentialsError) as refused:
        file.load(NOW_UNIX_S)
    assert [problem.line for problem in refused.value.problems] == [2, 3, 5]
    folder.write(
        "credentials.yaml",
        "users:\n  b: {password_file: gone}\nservice: {username: a, password_file: gone}\n",
    )
    with pytest.raises(CredentialsError) as refused:
        file.load(NOW_UNIX_S)
    assert [problem.line for problem in refused.value.problems] == [2, 3]


def test_a_missing_yaml_is_a_fault(folder: Folder) -> None:
    file = CredentialsFile(folder.yaml, SCRAM, share_service=True)
    with pytest.raises(CredentialsError, match="cannot read the credentials file: no such file"):
        file.load(NOW_UNIX_S)


def test_nothing_that_is_kept_shows_a_secret(folder: Folder) -> None:
    folder.write("token", SECRET)
    passwords = folder.loaded(f"users: {{alice: {{password: {SECRET}}}}}")
    shown = [repr(passwords), str(passwords.for_user("alice")), f"{passwords.for_user('alice')!r}"]
    tokens = folder.loaded("users: {alice: {token_file: token}}", BEARER)
    shown += [repr(tokens), str(tokens.for_user("alice")), repr(passwords.status), repr(tokens.status)]
    assert SECRET not in "".join(shown)


def test_the_hash_in_metrics_cannot_be_tried_against_guesses(folder: Folder) -> None:
    """Two processes show two hashes for one content, so nobody can compare them with that of a guess."""
    yaml = "users: {alice: {password: 1234x}}"
    hashes = {folder.loaded(yaml).status.hash for _ in range(2)}
    assert len(hashes) == 2
    assert all(len(text) == 12 for text in hashes)


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
