"""Follows the credentials file and each file that it names: Kubernetes renews a projected token while we run.

What is good is in force at once. While something is wrong (the YAML, or one secret), the identities in force
stay, and each of their secrets that can be read is renewed: one bad line must not let all tokens expire.
Knows no clock, and logs nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sluice.proxy.listener.login.credential_entries import (
    Credentials,
    CredentialsError,
    Entries,
    Entry,
    parse_credentials,
)
from sluice.proxy.runtime.watched_file import ReloadOutcome, ReloadStatus, WatchedFiles, identify
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_text


@dataclass(frozen=True, slots=True)
class _InForce:
    """Replaced as a whole, so that a thread that reloads disturbs nobody who asks."""

    entries: Entries = field(default_factory=lambda: Entries(None, {}))
    service: Credentials | None = None
    users: Mapping[str, Credentials] = field(default_factory=dict)


class CredentialsFile:
    """One credentials file, followed. Start-up calls `load`, then a thread now and then `reload_if_changed`.

    Both block as long as the file system does. Questions may be asked from another thread at any time.
    """

    def __init__(self, path: Path, mechanism: str, *, share_service: bool) -> None:
        """`mechanism`: what all identities are for.

        `share_service`: users who are not listed log in as `service` (accept_shared_upstream_identity). If
        not, `service` is only for the proxy's own requests, and a file without users is refused.
        """
        self._path = path
        self._mechanism = mechanism
        self._share_service = share_service
        self._watched = WatchedFiles()
        self._paths: tuple[Path, ...] = (path,)
        self._in_force = _InForce()
        self.problems: tuple[Problem, ...] = ()
        """why the newest content is not in force; empty when it is"""
        # Of the content in force something is shown: without a key, a short password could be found from it.
        self._hash_key = secrets.token_bytes(32)

    def __repr__(self) -> str:
        users = len(self._in_force.users)
        return f"<CredentialsFile {self._path}, {users} users, service: {self.service is not None}>"

    @property
    def status(self) -> ReloadStatus:
        """What became of the files so far; the same object always.

        `hash` is not that of other processes: it is keyed by a secret of this one.
        """
        return self._watched.status

    @property
    def service(self) -> Credentials | None:
        """What the proxy's own requests log in with; None if the file has no `service`."""
        return self._in_force.service

    @property
    def per_user(self) -> bool:
        """Whether users have identities of their own."""
        return bool(self._in_force.users)

    def identities(self) -> list[tuple[str | None, Credentials]]:
        """(whose connections, what they log in with), as it is now; None: the service's."""
        in_force = self._in_force
        service = [] if in_force.service is None else [(None, in_force.service)]
        return [*service, *in_force.users.items()]

    def for_user(self, user: str) -> Credentials | None:
        """What connections of `user` log in with, as it is now; None: nothing, and they must be refused.

        Ask again for each login and re-authentication: tokens are renewed meanwhile. An answer equals the one
        before if nothing has changed for this user.
        """
        in_force = self._in_force
        found = in_force.users.get(user)
        if found is None and self._share_service:
            return in_force.service
        return found

    def load(self, now_unix_s: float) -> None:
        """Put the file in force at start-up. Raises CredentialsError if it, or one it names, is no good."""
        outcome = self.reload_if_changed(now_unix_s)
        if outcome in {ReloadOutcome.INVALID, ReloadOutcome.UNREADABLE}:
            raise CredentialsError(self.problems)

    def hangs(self, error: OSError) -> ReloadOutcome | None:
        """A look has not ended in time."""
        return self._watched.hangs(error, (self._path,))

    def reload_if_changed(self, now_unix_s: float) -> ReloadOutcome | None:
        """One look: what became of a new state of the files, None if there is none.

        After INVALID or UNREADABLE, `problems` and `status.last_error` tell what is wrong.
        """
        seen = identify(self._paths)
        if not self._watched.wants_reading(seen):
            return None
        try:
            text = read_text(self._path, "credentials", MAX_SMALL_BYTES)
        except ConfigError as error:
            self._renew_secrets()
            self.problems = error.problems
            return self._watched.take(seen, error, now_unix_s)
        parsed = self._parsed(text)
        self._paths = tuple(dict.fromkeys((self._path, *_files(parsed), *_files(self._in_force.entries))))
        # As they are before they are read: what changes in between shows in the next look.
        seen = (seen[0], *identify(self._paths[1:]))
        candidate, parts = self._resolved(parsed)
        content_hash = self._hash_of(text, *parts)
        outcome = self._watched.take(seen, content_hash, now_unix_s)
        if isinstance(candidate, CredentialsError):
            self._renew_secrets()
            self.problems = candidate.problems
            if outcome is ReloadOutcome.SUCCESS:
                self._watched.refuse(content_hash, candidate)
                outcome = ReloadOutcome.INVALID
            return outcome
        self._in_force = candidate
        self.problems = ()
        if outcome is ReloadOutcome.SUCCESS:
            self._watched.accept(content_hash, now_unix_s)
        return outcome

    def _parsed(self, text: str) -> Entries | CredentialsError:
        try:
            entries = parse_credentials(text, self._path, self._mechanism)
        except CredentialsError as error:
            return error
        if not entries.users and not self._share_service:
            message = (
                "lists no `users:`, so that all would be one user to the broker, and its ACLs could not tell"
                " them apart; list them, or set accept_shared_upstream_identity: true"
            )
            return CredentialsError([Problem(message, source=str(self._path))])
        return entries

    def _resolved(self, parsed: Entries | CredentialsError) -> tuple[_InForce | CredentialsError, list[str]]:
        """The identities with their secrets, or every problem; and what beside the YAML it was made from."""
        if isinstance(parsed, CredentialsError):
            return parsed, []
        parts: list[str] = []
        problems: list[Problem] = []

        def resolve(entry: Entry, before: Credentials | None) -> Credentials | None:
            try:
                found = entry.resolved()
            except CredentialsError as error:
                problems.extend(error.problems)
                parts.append(str(error))
                return None
            parts.append(found.secret.get_secret_value())
            return before if before == found else found  # with what it has salted

        before = self._in_force
        service = None if parsed.service is None else resolve(parsed.service, before.service)
        users = {user: resolve(entry, before.users.get(user)) for user, entry in parsed.users.items()}
        if problems:
            return CredentialsError(sorted(problems, key=lambda problem: problem.line or 0)), parts
        whole = {user: found for user, found in users.items() if found is not None}
        return _InForce(parsed, service, whole), parts

    def _renew_secrets(self) -> None:
        """Read the secrets in force again, and keep each that cannot be used now."""

        def renewed(entry: Entry | None, before: Credentials) -> Credentials:
            try:
                found = entry.resolved() if entry is not None else before
            except CredentialsError:
                return before
            return before if before == found else found

        entries, service, users = self._in_force.entries, self._in_force.service, self._in_force.users
        self._in_force = _InForce(
            entries,
            None if service is None else renewed(entries.service, service),
            {user: renewed(entries.users[user], before) for user, before in users.items()},
        )

    def _hash_of(self, *parts: str) -> str:
        digest = hashlib.blake2b(key=self._hash_key, digest_size=6)
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()


def _files(entries: Entries | CredentialsError) -> Iterator[Path]:
    """The files that hold secrets."""
    if isinstance(entries, Entries):
        for entry in (entries.service, *entries.users.values()):
            if entry is not None and entry.secret_file is not None:
                yield entry.secret_file
