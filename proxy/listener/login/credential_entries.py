"""What the proxy logs in with at the brokers, from YAML: one identity for each user, or one of the service.

    service: {username: sluice, password_file: sluice.password}   # or password; with OAUTHBEARER: token_file
    users:
      alice: {password_file: alice.password}                      # username: alice, if not given
      bob: {username: app-bob, password: "in quotes"}

Relative files start at the YAML file's folder. No error, repr or chained exception tells a secret: errors
name file, line and key. Does not know when to read: credentials.py follows the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import SecretStr

from sluice.protocol.sasl_client import (
    OauthBearerClient,
    PlainClient,
    SaltedPasswords,
    SaslClient,
    ScramClient,
    is_extension,
)
from sluice.quotas.files.config_error import ConfigError, Problem, unknown_key_message, why_not_user
from sluice.quotas.files.load import read_bytes
from sluice.quotas.files.yaml_lines import YamlDocument, YamlPath, YamlValue, dotted, parse_yaml

MAX_SECRET_BYTES: Final = 65_536
"""Tokens of 10 KiB exist; what is larger is not the file that was meant."""
_TOP_KEYS: Final = ("service", "users")
_PASSWORD_KEYS: Final[tuple[str, ...]] = ("username", "password", "password_file")
_TOKEN_KEYS: Final[tuple[str, ...]] = ("token_file", "extensions")
_QUOTING_MESSAGES: Final = re.compile(r"anchors|aliases|tags")


class CredentialsError(ConfigError):
    """The credentials cannot be used. At start-up: exit code 2; on a reload: those in force are kept."""


@dataclass(frozen=True, slots=True)
class PasswordCredentials:
    """For PLAIN and SCRAM."""

    username: str
    password: SecretStr
    _salted: SaltedPasswords = field(repr=False, compare=False)

    @classmethod
    def of(cls, username: str, password: str) -> PasswordCredentials:
        """Raises ValueError for an empty password, or one that is not Unicode."""
        return cls(username, SecretStr(password), SaltedPasswords(password))

    @property
    def secret(self) -> SecretStr:
        """What must not be told."""
        return self.password

    def client(self, mechanism: str, nonce: str) -> SaslClient:
        """The client's side of one exchange. Raises ValueError if `mechanism` cannot carry these."""
        if mechanism == "PLAIN":
            return PlainClient(self.username, self.password.get_secret_value())
        return ScramClient(mechanism, self.username, self._salted, nonce)


@dataclass(frozen=True, slots=True)
class TokenCredentials:
    """A token to log in with by OAUTHBEARER."""

    token: SecretStr
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def secret(self) -> SecretStr:
        """What must not be told."""
        return self.token

    def client(self, mechanism: str, nonce: str) -> SaslClient:
        """The client's side of a login with it, as PasswordCredentials.client."""
        if mechanism != "OAUTHBEARER":
            raise ValueError(f"{mechanism} wants a username and a password, not a token")
        return OauthBearerClient(self.token.get_secret_value(), self.extensions)


Credentials: TypeAlias = PasswordCredentials | TokenCredentials


@dataclass(frozen=True, slots=True)
class Entry:
    """One identity as the YAML describes it; its secret may be in a file of its own."""

    mechanism: str
    place: Problem
    """where it stands; the message is empty"""
    username: str = ""
    password: SecretStr | None = None
    secret_file: Path | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)

    def resolved(self) -> Credentials:
        """The credentials, the secret's file read now. Raises CredentialsError if it cannot be used."""
        secret = self.password.get_secret_value() if self.password is not None else self._read_secret()
        fault = ""
        credentials: Credentials
        try:
            if self.mechanism == "OAUTHBEARER":
                credentials = TokenCredentials(SecretStr(secret.strip()), self.extensions)
            else:
                credentials = PasswordCredentials.of(self.username, secret)
            credentials.client(self.mechanism, nonce="-")
        except ValueError as error:
            fault = str(error)
        else:
            return credentials
        raise self._error(fault)  # raised outside: no chain

    def _read_secret(self) -> str:
        assert self.secret_file is not None
        fault = "is not UTF-8"
        try:
            data = read_bytes(self.secret_file, MAX_SECRET_BYTES)
            text = data.decode().removesuffix("\n").removesuffix("\r")  # as editors and `echo` leave it
            if text:
                return text
            fault = "is empty"
        except OSError as error:
            fault = f"cannot be read: {(error.strerror or type(error).__name__).lower()}"
        except UnicodeDecodeError:
            pass
        raise self._error(f"{self.secret_file} {fault}")

    def _error(self, message: str) -> CredentialsError:
        place = self.place
        return CredentialsError([Problem(message, path=place.path, source=place.source, line=place.line)])


@dataclass(frozen=True, slots=True)
class Entries:
    """All identities of a YAML file."""

    service: Entry | None
    users: Mapping[str, Entry]


def parse_credentials(text: str, source: Path, mechanism: str) -> Entries:
    """The identities in `text`, which is what `source` holds; they must fit `mechanism`.

    Reads no other file. Raises CredentialsError with every problem, naming `source`, key and line.
    """
    try:
        document = parse_yaml(text, str(source))
    except ConfigError as error:
        problems = error.problems
    else:
        reader = _Reader(document, source, mechanism)
        entries = reader.entries()
        if not reader.problems:
            return entries
        problems = tuple(sorted(reader.problems, key=lambda problem: problem.line or 0))
    raise CredentialsError(map(_without_values, problems))


def _without_values(problem: Problem) -> Problem:
    """YAML's message for `password: &abc`, `*abc` or `!abc` names what may be the password."""
    if not _QUOTING_MESSAGES.match(problem.message):
        return problem
    message = "a value that begins with & * or ! must be in quotes"
    return Problem(message, path=problem.path, source=problem.source, line=problem.line)


class _Reader:
    """Takes a document apart and collects what is wrong with it."""

    def __init__(self, document: YamlDocument, source: Path, mechanism: str) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._source = source
        self._mechanism = mechanism

    def entries(self) -> Entries:
        """What could be read; only whole if there are no `problems`."""
        top = self._document.value
        if not isinstance(top, dict) or not any(key in top for key in _TOP_KEYS):
            self._problem((), "must have `service:` (one identity), `users:` (one for each user), or both")
            return Entries(None, {})
        for key in top:
            if key not in _TOP_KEYS:
                self._problem((key,), unknown_key_message(key, _TOP_KEYS))
        service = self._entry(("service",), top["service"], "") if "service" in top else None
        users: dict[str, Entry] = {}
        listed = top.get("users", {})
        if not isinstance(listed, dict):
            self._problem(("users",), "must be a mapping, such as `alice: {password_file: alice.password}`")
            listed = {}
        for user, value in listed.items():
            at = ("users", user)
            if not user.strip() or user == "<default>":
                self._problem(at, "must be the name of one user; what all others share is `service:`")
            elif (reason := why_not_user(user)) is not None:
                self._problem(at, reason)
            elif (entry := self._entry(at, value, user)) is not None:
                users[user] = entry
        return Entries(service, users)

    def _entry(self, at: YamlPath, value: YamlValue, default_username: str) -> Entry | None:
        """One identity, or None after telling what is wrong with it."""
        before = len(self.problems)
        known = _TOKEN_KEYS if self._mechanism == "OAUTHBEARER" else _PASSWORD_KEYS
        if not isinstance(value, dict):
            self._problem(at, f"must be a mapping with some of {', '.join(known)}")
            return None
        self._check_keys(at, value, known)
        texts = {
            key: self._text((*at, key), value[key]) for key in known if key in value and key != "extensions"
        }
        extensions = self._extensions((*at, "extensions"), value.get("extensions", {}))
        wanted = [key for key in known if key.startswith(("password", "token"))]
        given = sum(key in value for key in wanted)
        if given != 1:
            self._problem(at, f"give {' or '.join(wanted)}{', not both' if given > 1 else ''}")
        username = texts.get("username", default_username)
        if self._mechanism != "OAUTHBEARER" and not username and "username" not in value:
            self._problem(at, "give username")
        if len(self.problems) > before:
            return None
        key = next(key for key in wanted if key in value)
        return Entry(
            self._mechanism,
            self._place((*at, key), ""),
            username,
            SecretStr(texts[key]) if key == "password" else None,
            None if key == "password" else self._source.parent / texts[key],
            extensions,
        )

    def _check_keys(self, at: YamlPath, value: Mapping[str, YamlValue], known: tuple[str, ...]) -> None:
        """Tell of the keys that are not `known`, and so have no meaning with this mechanism."""
        for key in value:
            if key in known:
                continue
            if key in _PASSWORD_KEYS or key in _TOKEN_KEYS:
                self._problem((*at, key), f"not with {self._mechanism}; known here: {', '.join(known)}")
            else:
                self._problem((*at, key), unknown_key_message(key, known))

    def _extensions(self, at: YamlPath, value: YamlValue) -> dict[str, str]:
        if not isinstance(value, dict):
            self._problem(at, "must be a mapping of names to texts")
            return {}
        texts = {key: self._text((*at, key), item) for key, item in value.items()}
        for key, text in texts.items():
            if text and not is_extension(key, text):
                self._problem((*at, key), "must be letters, not `auth`, and its value printable ASCII")
        return texts

    def _text(self, at: YamlPath, value: YamlValue) -> str:
        """`value`, or an empty string after telling what is wrong with it."""
        if isinstance(value, str) and value.strip():
            return value
        if value is None or isinstance(value, str):
            self._problem(at, "must not be blank")
        else:
            self._problem(at, "must be a text; write it in quotes")
        return ""

    def _problem(self, path: YamlPath, message: str) -> None:
        self.problems.append(self._place(path, message))

    def _place(self, path: YamlPath, message: str) -> Problem:
        line = self._document.line_of(path)
        return Problem(message, path=dotted(path), source=str(self._source), line=line)
