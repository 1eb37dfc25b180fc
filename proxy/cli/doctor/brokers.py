"""The brokers behind a listener, or that the proxy asks itself → findings: do they answer, do they take the
proxy's logins, where do they lead clients, and which quotas have they? Blocking.

Each login has a connection of its own, as the proxy's have.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from time import time
from typing import Final

from sluice.proxy.cli.doctor import judge, look
from sluice.proxy.cli.doctor.finding import Finding, Status
from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.client_properties import ClientSettings, load_client_properties
from sluice.proxy.config.config import Config
from sluice.proxy.config.listener import GatewayOptions, ListenerOptions
from sluice.proxy.config.options import host_and_port
from sluice.proxy.config.quotas import TopicOptions
from sluice.proxy.listener.login.credential_entries import Credentials
from sluice.proxy.listener.security import ListenerSecurity, load_security

_MOST_LOGINS: Final = 20
"""that are tried at a broker: each costs it a connection, and a SCRAM's hashing"""
_ANY_MECHANISM: Final = "PLAIN"
"""for who only asks whether there is a login: a broker that does not have this one says so"""
_SERVICE: Final = "the service"


@dataclass(frozen=True, slots=True)
class Login:
    """An identity of the proxy's own."""

    whose: str
    mechanism: str
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class Way:
    """A way to brokers: their addresses, and how one speaks to them."""

    name: str
    """whose brokers: the listener's, or what the proxy asks them for"""
    addresses: Sequence[judge.Endpoint]
    tls: SSLContext | None = None
    server_name: str = ""
    """that their certificate must have; empty: the host that is dialled"""
    logins: Sequence[Login] = field(default_factory=tuple)
    wants_login: bool = False
    """as it is configured"""
    passes_logins: bool = False
    """clients' own, if it is configured without"""

    def connected(self, address: judge.Endpoint) -> look.Connected:
        """A connection to one of them, for `with`. Raises NoAnswer."""
        return look.connected(*address, self.tls, self.server_name or address[0])


def of_listeners(config: Config, command_config: Path | None) -> Iterator[Finding]:
    """`command_config`: a login for what only a login is told. Raises ConfigError for it."""
    client = None if command_config is None else load_client_properties(command_config)
    now_unix_s = time()
    for listener in config.listeners:
        security = load_security(listener)
        for side, shown in security.certificates():
            yield judge.certificate(listener.name, side, shown.begin_unix_s, shown.end_unix_s, now_unix_s)
        if listener.gateway is not None:
            yield from _names(listener.name, listener.gateway)
        way = _way_of(listener, security)
        for address in way.addresses:
            if (yield from _answers(way, address)):
                yield from _logins(way, address)
                wants_login = yield from _sasl(way, address)
                if listener.gateway is None:
                    yield from _leads(listener, way, address, client, wants_login)
                yield from _quotas(f"{address[0]}:{address[1]}", command_config)


def asked_by_the_proxy(config: Config) -> Iterator[Finding]:
    """The brokers of the topics, and of replication throttles."""
    found: list[tuple[str, TopicOptions]] = []
    if config.quotas.topic is not None:
        found.append(("the quota topic", config.quotas.topic))
    if config.access_log is not None and config.access_log.topic is not None:
        found.append(("the access log", config.access_log.topic))
    if config.replication is not None:
        found.append(("replication", config.replication.cluster()))
    for name, options in found:
        way = _way_to(name, options)
        for address in way.addresses:
            if (yield from _answers(way, address)):
                yield from _logins(way, address)
                yield from _sasl(way, address)


def _way_of(listener: ListenerOptions, security: ListenerSecurity) -> Way:
    tls, server_name = None, ""
    if security.upstream_tls is not None:
        tls, server_name = security.upstream_tls.context, security.upstream_tls.server_name or ""
    logins = []
    if security.credentials is not None and listener.upstream_sasl is not None:
        for user, credentials in security.credentials.identities():
            if user is None or not listener.has_sasl:  # else clients log in themselves
                logins.append(Login(user or _SERVICE, listener.upstream_sasl.mechanism, credentials))
    return Way(
        listener.name, _brokers(listener), tls, server_name, logins,
        wants_login=listener.upstream_has_sasl, passes_logins=listener.takes_logins,
    )  # fmt: skip


def _way_to(name: str, options: TopicOptions) -> Way:
    from sluice.proxy.kafka_client.clients import ClusterAccess

    access = ClusterAccess(options)
    logins = []
    if access.login is not None and options.sasl is not None:
        logins.append(Login(_SERVICE, options.sasl.mechanism, access.login))
    return Way(name, [host_and_port(address) for address in options.bootstrap], access.tls, "", logins)


def _brokers(listener: ListenerOptions) -> list[judge.Endpoint]:
    if listener.gateway is not None:
        return [host_and_port(address) for address in listener.gateway.bootstrap_upstreams]
    assert listener.upstream_host is not None
    assert listener.upstream_port is not None
    return [(listener.upstream_host, listener.upstream_port)]


def _names(listener: str, gateway: GatewayOptions) -> Iterator[Finding]:
    """Those that clients are told."""
    host = gateway.advertised_host or ""
    if gateway.sni_domain is not None:
        host = f"broker-{gateway.first_broker_id}.{gateway.sni_domain.strip('.')}"
    try:
        yield judge.name_of_gateway(listener, host, look.addresses_of(host), "")
    except look.NoAnswer as error:
        yield judge.name_of_gateway(listener, host, [], str(error))


def _answers(way: Way, address: judge.Endpoint) -> Generator[Finding, None, bool]:
    """Returns whether it does."""
    text = f"{address[0]}:{address[1]}"
    try:
        with way.connected(address) as line:
            yield judge.upstream(way.name, text, None, line.newest_produce())
    except look.NoAnswer as error:
        yield judge.upstream(way.name, text, str(error), None)
        return False
    return True


def _logins(way: Way, address: judge.Endpoint) -> Iterator[Finding]:
    """The proxy's own, each tried."""
    taken: list[str] = []
    refused: dict[str, str] = {}
    for login in way.logins[:_MOST_LOGINS]:
        try:
            with way.connected(address) as line:
                line.log_in(login.mechanism, login.credentials)
        except look.NoAnswer as error:
            refused[login.whose] = str(error)
        else:
            taken.append(login.whose)
    if way.logins:
        untried = len(way.logins[_MOST_LOGINS:])
        yield judge.logins(way.name, f"{address[0]}:{address[1]}", taken, refused, untried)


def _sasl(way: Way, address: judge.Endpoint) -> Generator[Finding, None, bool]:
    """Returns whether the broker wants a login; where it does not tell, what is configured."""
    if way.logins:  # they have told
        return way.wants_login
    try:
        with way.connected(address) as line:
            found = line.has_sasl(_ANY_MECHANISM)
    except look.NoAnswer:
        found = None
    if found is None or found == way.wants_login:
        return way.wants_login
    text = f"{address[0]}:{address[1]}"
    yield judge.sasl(way.name, text, wants_login=found, passes_logins=way.passes_logins)
    return found


def _leads(
    listener: ListenerOptions,
    way: Way,
    address: judge.Endpoint,
    client: ClientSettings | None,
    wants_login: bool,
) -> Iterator[Finding]:
    """Mode broker: where the broker's answers lead clients."""
    login = next(iter(way.logins), None)
    if login is None and client is not None and client.credentials is not None:
        login = Login("--command-config", client.mechanism, client.credentials)
    check = f"way of clients to {listener.name}"
    if wants_login and login is None:
        yield Finding(
            Status.NOT_ASKED, check, "the broker tells it only after a login",
            "give --command-config, with any login that the broker takes at this listener",
        )  # fmt: skip
    else:
        try:
            with way.connected(address) as line:
                if wants_login and login is not None:
                    line.log_in(login.mechanism, login.credentials)
                told = line.advertised()
        except look.NoAnswer as error:
            todo = "mend the login with which it was asked" if wants_login else "see the broker's log"
            yield Finding(Status.NOT_ASKED, check, str(error), todo)
        else:
            # A name of another port is not the broker's listener, whatever it leads to.
            hosts = [address[0], *sorted(host for host, port in told if port == address[1])]
            addresses = look.resolved(hosts)
            yield judge.advertised(listener.name, listener.bind_port, address, told, addresses)
    host = address[0]
    yield judge.past_the_proxy(listener.name, host, look.resolved([host]).get(host, ()))


def _quotas(address: str, command_config: Path | None) -> Iterator[Finding]:
    from sluice.proxy.cli.quotas.command import server_of
    from sluice.proxy.cli.quotas.listing import described

    try:
        limits = server_of(address, command_config).listing().limits
    except CommandFailed as error:
        yield Finding(
            Status.NOT_ASKED, f"quotas at {address}", str(error),
            "give --command-config, with a login that may do DescribeConfigs on the cluster",
        )  # fmt: skip
        return
    yield judge.broker_quotas(address, [described(whom) for whom in limits])
