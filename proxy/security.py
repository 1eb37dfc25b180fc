"""The files of a listener's security, loaded and followed: certificates to both sides, and credentials."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from sluice.proxy.config_listener import ListenerOptions

if TYPE_CHECKING:
    from sluice.proxy.credentials import CredentialsFile
    from sluice.proxy.tls_context import ClientTls, ServerTls


@dataclass(slots=True)
class ListenerSecurity:
    """Of one listener; None for what it does not have."""

    tls: ServerTls | None = None
    upstream_tls: ClientTls | None = None
    credentials: CredentialsFile | None = None


def load_security(options: ListenerOptions) -> ListenerSecurity:
    """Raises ConfigError (TlsConfigError, CredentialsError) that names the file and what is wrong with it."""
    security = ListenerSecurity()
    if options.upstream_sasl is not None:
        from sluice.proxy.credentials import CredentialsFile

        # Where clients log in themselves, these are for the proxy's own questions alone.
        share_service = options.accept_shared_upstream_identity or options.has_sasl
        sasl = options.upstream_sasl
        credentials = CredentialsFile(sasl.credentials_file, sasl.mechanism, share_service=share_service)
        credentials.load(time())
        security.credentials = credentials
    return security
