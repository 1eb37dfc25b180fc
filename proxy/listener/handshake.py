"""What a client does before it speaks Kafka: a PROXY header where one is due, and TLS.

Then it is known who came. Of one listener. Bounded in time by the caller. Knows no broker.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from ssl import SSLError
from time import time
from typing import TYPE_CHECKING, Final

from sluice.protocol.errors import ProtocolError
from sluice.protocol.proxy_protocol import Endpoint, parse_v2
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.stream import Stream, receive_exactly
from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.entity import UNNAMED_USERS
from sluice.quotas.files.config_error import ConfigError

if TYPE_CHECKING:
    from sluice.proxy.listener.tls.context import ServerTls
    from sluice.proxy.listener.tls.principal_mapping import PrincipalMapping

_HEADER_BYTES: Final = 16  # of a PROXY header, up to the length of what follows


class NotLetIn(Exception):
    """This client is not served; its connection is to be closed."""

    def __init__(self, cause: DisconnectCause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail


@dataclass(slots=True)
class Arrival:
    """A client that may speak now."""

    stream: Stream
    source: Endpoint
    """the client's own address, also behind a balancer"""
    destination: Endpoint
    """what it connected to"""
    user: str | None = None
    """the principal of its certificate, which counts if no SASL login follows"""
    server_name: str | None = None
    """the name it asked for (SNI)"""

    @property
    def peer(self) -> str:
        """The client's address and port, for the log."""
        return f"{self.source.host}:{self.source.port}"


class TooFast(NotLetIn):
    """As `NotLetIn`, to be closed after `delay_ms`."""

    def __init__(self, source: Endpoint, delay_ms: float) -> None:
        super().__init__(DisconnectCause.CONNECTION_CREATION_RATE, "faster than its connection_creation_rate")
        self.source = source
        self.delay_ms = delay_ms


def principal_mapping(options: ListenerOptions) -> PrincipalMapping | None:
    """From certificates to principals; None: no certificate says who a client of the listener is.

    Raises ConfigError for rules that are none.
    """
    if options.tls is None or options.has_sasl or options.tls.client_auth == "none":
        return None
    from sluice.proxy.listener.tls.principal_mapping import MappingRuleError, PrincipalMapping

    try:
        return PrincipalMapping(options.tls.principal_mapping_rules)
    except MappingRuleError as error:
        source = f"listener {options.name}"
        raise ConfigError(replace(problem, source=source) for problem in error.problems) from None


class Entrance:
    """Lets clients of one listener in."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, options: ListenerOptions, tls: ServerTls | None
    ) -> None:
        """`tls`: for a listener that has TLS. Raises ConfigError for mapping rules that are none."""
        self._loop = loop
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(n) for n in options.proxy_protocol_from]
        self._tls = tls
        self._mapping = principal_mapping(options)

    async def let_in(
        self, client: socket.socket, source: Endpoint, check: Callable[[Endpoint], None] | None = None
    ) -> Arrival:
        """`source`: who connected, a balancer or a client. Closes nothing. Raises NotLetIn or OSError.

        `check`: called with the client for whom a balancer connected, before TLS; may raise NotLetIn.
        """
        destination = endpoint(client.getsockname())
        if self.is_trusted(source):
            source, destination = await self._read_header(client, source, destination)
            if check is not None:
                check(source)
        arrival = Arrival(client, source, destination)
        if self._tls is not None:
            await self._secure(arrival, client)
        return arrival

    @property
    def is_open(self) -> bool:
        """Clients speak Kafka at once."""
        return self._tls is None and not self._networks

    def is_trusted(self, source: Endpoint) -> bool:
        """Whether a PROXY header tells who is behind `source`."""
        if not self._networks:
            return False
        address: IPv4Address | IPv6Address = ip_address(source.host.partition("%")[0])
        return any(address in network for network in self._networks)

    async def _read_header(
        self, client: socket.socket, source: Endpoint, destination: Endpoint
    ) -> tuple[Endpoint, Endpoint]:
        """Byte-exact, for what follows the header is the client's."""
        try:
            head = await receive_exactly(self._loop, client, _HEADER_BYTES)
            header = parse_v2(head, 0, len(head))  # refuses what is no header, before more is waited for
            if header is None:
                head += await receive_exactly(self._loop, client, int.from_bytes(head[14:16], "big"))
                header = parse_v2(head, 0, len(head))
        except ProtocolError as error:
            raise NotLetIn(DisconnectCause.PROXY_PROTOCOL, str(error)) from None
        assert header is not None
        return header.source or source, header.destination or destination

    async def _secure(self, arrival: Arrival, client: socket.socket) -> None:
        from sluice.proxy.listener.tls.stream import TlsStream

        assert self._tls is not None
        try:
            stream = await TlsStream.handshake(self._loop, client, self._tls.context, server_side=True)
        except SSLError as error:
            raise NotLetIn(DisconnectCause.TLS_FAILED, str(error)) from None
        try:
            certificate = stream.peer_certificate_der()
            _check_end(certificate)
            arrival.user = self._user_of(certificate)
        except NotLetIn:
            stream.close()  # the socket below is the stream's from the handshake on
            raise
        arrival.stream = stream
        arrival.server_name = stream.server_name

    def _user_of(self, certificate: bytes | None) -> str | None:
        """The principal of a client's certificate, if it names him here."""
        if self._mapping is None or certificate is None:
            return None
        from sluice.proxy.listener.tls.principal_mapping import distinguished_name

        try:
            user = self._mapping.principal(distinguished_name(certificate))
        except ValueError as error:
            raise NotLetIn(DisconnectCause.TLS_FAILED, str(error)) from None
        if user in UNNAMED_USERS:
            raise NotLetIn(DisconnectCause.TLS_FAILED, "its certificate claims a reserved name")
        return user


def _check_end(certificate: bytes | None) -> None:
    """OpenSSL does not look at it again where a session is resumed: for hours it would outlive its end."""
    if certificate is None:
        return
    from sluice.proxy.listener.tls.certificate_fields import validity_unix_s

    try:
        _, end_unix_s = validity_unix_s(certificate)
    except ValueError as error:
        raise NotLetIn(DisconnectCause.TLS_FAILED, str(error)) from None
    if end_unix_s < time():
        raise NotLetIn(DisconnectCause.TLS_FAILED, "the client's certificate is refused: it has ended")


def endpoint(address: tuple[str, int] | tuple[str, int, int, int]) -> Endpoint:
    """A socket's address; an IPv4 one mapped into IPv6 is given as IPv4."""
    host = address[0]
    return Endpoint(host[7:] if host.startswith("::ffff:") and "." in host else host, address[1])
