"""Certificate, key and CA files → the ssl.SSLContext of new handshakes; made anew when the files change.

A connection keeps the context that it began with. New files are put in force only if all of them can be used
together. A new context has new keys for session tickets: nobody resumes a session past a change of the CA.
Knows no clock, and logs nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, Literal

from sluice.proxy.listener.tls.chain import (
    Certificate,
    NotInForce,
    certificates,
    check_authorities,
    check_chain,
)
from sluice.proxy.listener.tls.stream import remember_server_name
from sluice.proxy.runtime.watched_file import (
    SETTLED_S,
    ReloadOutcome,
    ReloadStatus,
    Seen,
    WatchedFiles,
    hash_of,
    identify,
)
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_bytes

ClientAuth = Literal["none", "requested", "required"]
MinVersion = Literal["TLSv1.2", "TLSv1.3"]

_VERSIONS: Final[dict[MinVersion, ssl.TLSVersion]] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_VERIFY: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_CLOCK_SKEW_S: Final = 300.0
"""So much later than now a certificate may begin: one that was made just now, by another clock"""
_KEY_MARK: Final = b"PRIVATE KEY-----"
_ENCRYPTED_MARK: Final = b"ENCRYPTED"  # of PKCS #8, and of the older form: Proc-Type: 4,ENCRYPTED


class TlsConfigError(ConfigError):
    """A file of TLS cannot be used. Names option and file; never shows what is in it."""

    def __init__(
        self, message: str, option: str, file: Path | None = None, *, until_unix_s: float = inf
    ) -> None:
        """`until_unix_s`: from then on the same file can be used."""
        super().__init__([Problem(message, path=option, source=str(file or ""))])
        self.option = option
        self.file = file
        self.until_unix_s = until_unix_s

    @classmethod
    def of_all(cls, errors: Sequence[TlsConfigError]) -> TlsConfigError:
        """The first, with the problems of the others."""
        first = errors[0]
        until_unix_s = min(one.until_unix_s for one in errors)
        error = cls("", first.option, first.file, until_unix_s=until_unix_s)
        ConfigError.__init__(error, [problem for one in errors for problem in one.problems])
        return error


@dataclass(frozen=True, slots=True)
class _InForce:
    context: ssl.SSLContext
    ends_first: Certificate | None


class Tls(ABC):
    """The files of one context, followed. Start-up calls `load`, then a thread now and then
    `reload_if_changed`; both block for some ms. The properties may be asked from another thread any time."""

    def __init__(
        self,
        *,
        certificate_file: Path | None,
        key_file: Path | None,
        key_password_file: Path | None,
        ca_option: str,
        ca_file: Path | None,
        min_version: MinVersion,
    ) -> None:
        self._min_version: Final = min_version
        self._ca_option: Final = ca_option
        named = {
            "certificate_file": certificate_file,
            "key_file": key_file,
            "key_password_file": key_password_file,
            ca_option: ca_file,
        }
        self._files: Final = {option: file for option, file in named.items() if file is not None}
        self._watched: Final = WatchedFiles()
        self._in_force: _InForce | None = None
        self._hash_key: Final = secrets.token_bytes(32)  # a short password could be found from a plain hash

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake; ask each time."""
        assert self._in_force is not None, "load comes first"
        return self._in_force.context

    @property
    def certificate_not_after_unix_s(self) -> float | None:
        """When the certificate in use ends, or its chain's first; None if there is none."""
        return None if self.ends_first is None else self.ends_first.end_unix_s

    @property
    def ends_first(self) -> Certificate | None:
        """The certificate in use, or one of its chain if that ends before it; None if there is none."""
        return None if self._in_force is None else self._in_force.ends_first

    @property
    def status(self) -> ReloadStatus:
        """What became of the files so far; the same object always. `hash` is keyed by a secret of this
        process."""
        return self._watched.status

    def load(self, now_unix_s: float) -> None:
        """Read the files at start-up. Raises TlsConfigError."""
        seen = identify(self._files.values())
        contents = self._read()
        self._in_force = self._built(contents, now_unix_s)
        self._watched.take(seen, self._hash_of(contents), now_unix_s)
        self._watched.accept(self._hash_of(contents), now_unix_s)

    def hangs(self, error: OSError) -> ReloadOutcome | None:
        """A look has not ended in time."""
        return self._watched.hangs(error, self._files.values())

    def reload_if_changed(self, now_unix_s: float) -> ReloadOutcome | None:
        """One look: put new files in force if all can be used together; None if there is nothing new.

        After INVALID or UNREADABLE the last good ones stay, and `status.last_error` tells what is wrong.
        """
        seen = identify(self._files.values())
        if not self._watched.wants_reading(seen, now_unix_s):
            return None
        try:
            contents = self._read()
        except TlsConfigError as error:
            if identify(self._files.values()) != seen:
                return None  # exchanged while they were read: told by the next look, once
            return self._watched.take(seen, error, now_unix_s)
        try:
            built: _InForce | TlsConfigError = self._built(contents, now_unix_s)
        except TlsConfigError as error:
            built = error
        if identify(self._files.values()) != seen:
            return None  # exchanged while they were read: the next look finds them whole
        if isinstance(built, TlsConfigError) and _are_young(seen, now_unix_s):
            return None  # certificate and key cannot be written at once: see in a moment whether they fit
        content_hash = self._hash_of(contents)
        outcome = self._watched.take(seen, content_hash, now_unix_s)
        if outcome is not ReloadOutcome.SUCCESS:
            return outcome
        if isinstance(built, TlsConfigError):
            self._watched.refuse(content_hash, built, built.until_unix_s)
            return ReloadOutcome.INVALID
        self._in_force = built
        self._watched.accept(content_hash, now_unix_s)
        return ReloadOutcome.SUCCESS

    def _read(self) -> dict[str, bytes]:
        contents, errors = {}, []
        for option, file in self._files.items():
            try:
                contents[option] = read_bytes(file, MAX_SMALL_BYTES)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                errors.append(self._error(f"cannot be read: {why}", option))
        if errors:
            raise TlsConfigError.of_all(errors)
        return contents

    def _hash_of(self, contents: dict[str, bytes]) -> str:
        parts = (hashlib.sha256(content).digest() for content in contents.values())
        return hash_of(self._hash_key + b"".join(parts))

    def _built(self, contents: dict[str, bytes], now_unix_s: float) -> _InForce:
        """What is in the files. OpenSSL reads them by their paths: they may be others than `contents`."""
        context = self._new_context()
        context.minimum_version = _VERSIONS[self._min_version]
        context.options |= ssl.OP_NO_RENEGOTIATION
        # As in Java, whatever is in the CA file is trusted, also an intermediate authority without its root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        ends_first = None
        errors = []
        try:
            if "certificate_file" in contents:
                ends_first = self._checked(contents["certificate_file"], now_unix_s)
                self._load_identity(context, contents)
        except TlsConfigError as error:
            errors.append(error)
        try:
            if self._ca_option in contents:
                self._load_ca(context)
                if context.verify_mode is not ssl.CERT_NONE:
                    self._check_ca(contents[self._ca_option], now_unix_s)
        except TlsConfigError as error:
            errors.append(error)
        if errors:
            raise TlsConfigError.of_all(errors)
        return _InForce(context, ends_first)

    @abstractmethod
    def _new_context(self) -> ssl.SSLContext: ...

    def _error(self, message: str, option: str, *, until_unix_s: float = inf) -> TlsConfigError:
        return TlsConfigError(message, option, self._files[option], until_unix_s=until_unix_s)

    def _checked(self, content: bytes, now_unix_s: float) -> Certificate:
        try:
            held = certificates(content)
            if not held:
                raise self._error("holds no certificate in PEM form", "certificate_file")
            return check_chain(held, now_unix_s, self._skew_s(now_unix_s))
        except NotInForce as error:
            raise self._error(str(error), "certificate_file", until_unix_s=error.until_unix_s) from None
        except ValueError as error:
            raise self._error(f"holds a broken certificate: {error}", "certificate_file") from None

    def _skew_s(self, now_unix_s: float) -> float:
        """Nothing is gained by new files that have not begun while those in force have not ended."""
        end_unix_s = self.certificate_not_after_unix_s
        return 0.0 if end_unix_s is not None and now_unix_s <= end_unix_s else _CLOCK_SKEW_S

    def _load_identity(self, context: ssl.SSLContext, contents: dict[str, bytes]) -> None:
        if _KEY_MARK not in contents["key_file"]:
            raise self._error("holds no private key in PEM form", "key_file")

        def password() -> (
            bytes
        ):  # called for an encrypted key only; without it OpenSSL would ask the terminal
            if "key_password_file" not in contents:
                raise self._error("is encrypted; name a key_password_file", "key_file")
            return contents["key_password_file"].rstrip(b"\r\n")

        try:
            context.load_cert_chain(self._files["certificate_file"], self._files["key_file"], password)
        except ssl.SSLError as error:
            if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
                certificate = self._files["certificate_file"]
                raise self._error(f"does not fit the certificate in {certificate}", "key_file") from None
            if _ENCRYPTED_MARK in contents["key_file"]:
                message = "cannot be decrypted with the password in key_password_file, or is broken"
                raise self._error(message, "key_file") from None
            message = f"cannot be used with {self._files['key_file']}: {_words(error)}"
            raise self._error(message, "certificate_file") from None
        except ValueError:  # a password longer than OpenSSL's 1023 bytes
            raise self._error("holds no password: it is too long for one", "key_password_file") from None

    def _load_ca(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cafile=self._files[self._ca_option])
        except ssl.SSLError as error:
            message = f"holds no CA certificates in PEM form, or broken ones: {_words(error)}"
            raise self._error(message, self._ca_option) from None

    def _check_ca(self, content: bytes, now_unix_s: float) -> None:
        try:
            check_authorities(certificates(content), now_unix_s, self._skew_s(now_unix_s))
        except NotInForce as error:
            raise self._error(str(error), self._ca_option, until_unix_s=error.until_unix_s) from None
        except ValueError:
            return  # OpenSSL has taken it


class ServerTls(Tls):
    """TLS of a listener towards its clients."""

    def __init__(
        self,
        *,
        certificate_file: Path,
        key_file: Path,
        key_password_file: Path | None = None,
        client_ca_file: Path | None = None,
        client_auth: ClientAuth = "none",
        min_version: MinVersion = "TLSv1.2",
        server_names: bool = False,
    ) -> None:
        """`client_auth` is Kafka's ssl.client.auth: who was requested to may come without a certificate, but
        not with a bad one. `server_names`: streams know which name their client asked for; only for who needs
        it, as a handshake with a name that is not ASCII fails then. Raises TlsConfigError."""
        if client_auth != "none" and client_ca_file is None:
            raise TlsConfigError(f"client_auth: {client_auth} needs to know whom to trust", "client_ca_file")
        self._client_auth: Final = client_auth
        self._server_names: Final = server_names
        super().__init__(
            certificate_file=certificate_file,
            key_file=key_file,
            key_password_file=key_password_file,
            ca_option="client_ca_file",
            ca_file=client_ca_file,
            min_version=min_version,
        )

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _VERIFY[self._client_auth]
        if self._server_names:
            remember_server_name(context)
        return context


class ClientTls(Tls):
    """TLS of a listener towards its broker."""

    def __init__(
        self,
        *,
        ca_file: Path | None = None,
        certificate_file: Path | None = None,
        key_file: Path | None = None,
        key_password_file: Path | None = None,
        server_name: str | None = None,
        verify_hostname: bool = True,
        min_version: MinVersion = "TLSv1.2",
    ) -> None:
        """`ca_file`: None for whom the system trusts. `server_name`: in place of the host dialled, for SNI
        and for what the certificate must say; `verify_hostname=False` (Kafka: an empty
        ssl.endpoint.identification.algorithm) takes any name, if the CA is right. Raises TlsConfigError."""
        for present, missing, option in (
            (certificate_file, key_file, "key_file"),
            (key_file, certificate_file, "certificate_file"),
        ):
            if present is not None and missing is None:
                raise TlsConfigError("missing; certificate_file and key_file belong together", option)
        self.server_name: Final = server_name
        self._verify_hostname: Final = verify_hostname
        super().__init__(
            certificate_file=certificate_file,
            key_file=key_file,
            key_password_file=key_password_file,
            ca_option="ca_file",
            ca_file=ca_file,
            min_version=min_version,
        )

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # demands a certificate that the CA vouches for
        context.check_hostname = self._verify_hostname
        if self._ca_option not in self._files:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _are_young(seen: Seen, now_unix_s: float) -> bool:
    ages_s = (now_unix_s - identity.changed_ns / 1e9 for identity in seen if identity is not None)
    return any(0 <= age_s < SETTLED_S for age_s in ages_s)
