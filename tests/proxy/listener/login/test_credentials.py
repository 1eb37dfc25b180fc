"""The credentials file: what it may say, and that no error tells a secret."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from sluice.proxy.listener.login.credential_entries import (
    MAX_SECRET_BYTES,
    CredentialsError,
    PasswordCredentials,
    TokenCredentials,
)
from sluice.proxy.listener.login.credentials import CredentialsFile
from testkit.proxy.credentials_folder import BEARER, NOW_UNIX_S, PLAIN, SCRAM, Folder, password_of, token_of

SECRET = "hunter2-hunter2"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


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
    "a type": (SCRAM, f"users: {{User:alice: {{password: {SECRET}}}}}", "write it without its type: alice"),
    "users as a list": (SCRAM, f"users: [{SECRET}]", "users: must be a mapping"),
    "a user as a text": (SCRAM, f"users: {{alice: {SECRET}}}", "users.alice: must be a mapping"),
    "an anchor": (SCRAM, f"service: {{username: a, password: &{SECRET} x}}", "must be in quotes"),
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
    "a folder": (SCRAM, "users: {a: {password_file: .}}", "is a directory"),
    "an empty file of a password": (SCRAM, "users: {a: {password_file: empty}}", "empty is empty"),
    "a file that is no text": (SCRAM, "users: {a: {password_file: binary}}", "binary is not UTF-8"),
    "a large file": (
        SCRAM,
        "users: {a: {password_file: large}}",
        f"has more than {MAX_SECRET_BYTES:,} bytes",
    ),
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
    assert ("not both" in told) == ("not both" in message)
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
