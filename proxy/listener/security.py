"""The files of a listener's security, loaded and followed: certificates to both sides, and credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import TYPE_CHECKING, Final, Protocol

from sluice.proxy.config.listener import (
    ListenerOptions,
    TlsOptions,
    UpstreamSaslOptions,
    UpstreamTlsOptions,
)
from sluice.proxy.runtime.file_work import FileHangs, FileWork, within
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import next_beat
from sluice.proxy.runtime.watched_file import ReloadOutcome, ReloadStatus
from sluice.quotas.files.config_error import Problems

if TYPE_CHECKING:
    from sluice.proxy.listener.login.credentials import CredentialsFile
    from sluice.proxy.listener.tls.chain import Certificate
    from sluice.proxy.listener.tls.context import ClientTls, ServerTls

CERTIFICATES: Final = "certificates"
CREDENTIALS: Final = "credentials"
_LOOK_INTERVAL_S: Final = 10.0
_LOGGED_PROBLEMS: Final = 20

_log = get_logger()


class Followed(Protocol):
    """Files that are put in force when they change."""

    @property
    def status(self) -> ReloadStatus:
        """What became of them so far."""

    def hangs(self, error: OSError) -> ReloadOutcome | None:
        """A look has not ended in time. None: nothing new."""

    def reload_if_changed(self, now_unix_s: float) -> ReloadOutcome | None:
        """One look; blocks as long as the file system does."""


@dataclass(slots=True)
class ListenerSecurity:
    """Certificates and credentials of one listener; None for what it does not have."""

    name: str = ""
    """the listener's"""
    tls: ServerTls | None = None
    upstream_tls: ClientTls | None = None
    credentials: CredentialsFile | None = None
    look_interval_s: float = _LOOK_INTERVAL_S

    def followed(self) -> Iterator[tuple[str, Followed]]:
        """(what it holds, the files), for the metrics."""
        for files in (self.tls, self.upstream_tls):
            if files is not None:
                yield CERTIFICATES, files
        if self.credentials is not None:
            yield CREDENTIALS, self.credentials

    def certificates(self) -> Iterator[tuple[str, Certificate]]:
        """(towards whom the proxy shows it: clients, broker; the one of its chain that ends first)."""
        for side, tls in (("clients", self.tls), ("broker", self.upstream_tls)):
            ends_first = None if tls is None else tls.ends_first
            if ends_first is not None:
                yield side, ends_first

    async def follow(self) -> None:
        """Look for changes until cancelled, in a thread; new connections get what is good."""
        followed = [(what, files, FileWork[ReloadOutcome | None]()) for what, files in self.followed()]
        told: set[tuple[str, float]] = set()
        while True:
            await next_beat(self.look_interval_s)
            self._tell_ended(time(), told)
            for what, files, work in followed:
                try:
                    outcome = await work.run(partial(_look, files))
                except FileHangs as error:
                    outcome = files.hangs(error)
                if outcome is ReloadOutcome.SUCCESS:
                    _log.info(f"{what}_applied", listener=self.name, hash=files.status.hash)
                elif outcome is ReloadOutcome.UNCHANGED:
                    if files.status.is_back:
                        _log.info(f"{what}_in_force_again", listener=self.name, hash=files.status.hash)
                elif outcome is not None:
                    problems = files.status.last_error.splitlines()[:_LOGGED_PROBLEMS]
                    _log.error(
                        f"{what}_not_applied", listener=self.name, outcome=str(outcome), problems=problems
                    )

    def _tell_ended(self, now_unix_s: float, told: set[tuple[str, float]]) -> None:
        """A line for each certificate in force that has ended, once: nobody has put another in its place."""
        for side, certificate in self.certificates():
            end_unix_s = certificate.end_unix_s
            if end_unix_s < now_unix_s and (side, end_unix_s) not in told:
                told.add((side, end_unix_s))
                _log.error(
                    "certificate_ended",
                    listener=self.name,
                    towards=side,
                    ended=datetime.fromtimestamp(end_unix_s, UTC).isoformat(),
                    remedy="put one that is in force into certificate_file; who verifies refuses this one",
                )


def _look(files: Followed) -> ReloadOutcome | None:
    return files.reload_if_changed(time())


def load_security(options: ListenerOptions) -> ListenerSecurity:
    """Raises ConfigError that names all files that cannot be used, and what is wrong with each."""
    return within(f"files of the listener {options.name}", partial(_load, options))


def _load(options: ListenerOptions) -> ListenerSecurity:
    security = ListenerSecurity(options.name)
    problems = Problems()
    if options.tls is not None:
        security.look_interval_s = options.tls.reload_interval_s
        security.tls = problems.tried(partial(_server_tls, options, options.tls))
    if options.upstream_has_tls:
        security.upstream_tls = problems.tried(partial(upstream_tls, options.upstream_tls))
    if options.upstream_sasl is not None:
        security.credentials = problems.tried(partial(_credentials, options, options.upstream_sasl))
    problems.refuse()
    return security


def _server_tls(options: ListenerOptions, files: TlsOptions) -> ServerTls:
    from sluice.proxy.listener.tls.context import ServerTls

    tls = ServerTls(
        certificate_file=files.certificate_file,
        key_file=files.key_file,
        key_password_file=files.key_password_file,
        client_ca_file=files.client_ca_file,
        client_auth=files.client_auth,
        min_version=files.min_version,
        server_names=options.gateway is not None and options.gateway.sni_domain is not None,
    )
    tls.load(time())
    return tls


def upstream_tls(options: UpstreamTlsOptions | None) -> ClientTls:
    """Towards brokers, with its files read; None: as the options are by default. Raises ConfigError."""
    from sluice.proxy.listener.tls.context import ClientTls

    there = options or UpstreamTlsOptions()
    tls = ClientTls(
        ca_file=there.ca_file,
        certificate_file=there.certificate_file,
        key_file=there.key_file,
        server_name=there.server_name,
        verify_hostname=there.verify_hostname,
    )
    tls.load(time())
    return tls


def _credentials(options: ListenerOptions, sasl: UpstreamSaslOptions) -> CredentialsFile:
    from sluice.proxy.listener.login.credentials import CredentialsFile

    # Where clients log in themselves, these are for the proxy's own questions alone.
    share_service = options.accept_shared_upstream_identity or options.has_sasl
    credentials = CredentialsFile(sasl.credentials_file, sasl.mechanism, share_service=share_service)
    credentials.load(time())
    return credentials
