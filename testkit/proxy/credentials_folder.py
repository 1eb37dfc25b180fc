"""A folder with credentials and secrets whose files were all written long ago."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from sluice.proxy.listener.login.credential_entries import PasswordCredentials, TokenCredentials
from sluice.proxy.listener.login.credentials import CredentialsFile

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


def password_of(file: CredentialsFile, user: str) -> str:
    found = file.for_user(user)
    assert isinstance(found, PasswordCredentials)
    return found.password.get_secret_value()


def token_of(file: CredentialsFile, user: str) -> str:
    found = file.for_user(user)
    assert isinstance(found, TokenCredentials)
    return found.token.get_secret_value()
