"""`sluice doctor`: everything that can be looked at from here, a line each, with what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.proxy.cli.doctor import judge
from sluice.proxy.cli.doctor.finding import Finding, Status, has_failed, lines_of
from sluice.proxy.cli.options import (
    EXIT_CODES,
    EXIT_FAILED,
    CommandFailed,
    ConfigOption,
    FileArgument,
    the_file,
)
from sluice.proxy.cli.quotas.options import CommandConfigOption

if TYPE_CHECKING:
    from sluice.proxy.cli.doctor import look
    from sluice.proxy.config.config import Config
    from sluice.proxy.config.listener import ListenerOptions
    from sluice.proxy.listener.security import ListenerSecurity


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command(epilog=EXIT_CODES)(doctor)


def doctor(
    file: FileArgument = None,
    config: ConfigOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: status, check, told, todo.")
    ] = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Look whether what is configured fits: files, ports, open files, kernel, clock, certificates, and the
    broker, its quotas and where it leads clients.

    A line each, with what to do. √ fine, ! works but should be otherwise, × does not work, - not looked at.
    To be run where the proxy runs, before or beside it. Exit code 1 if anything does not work.
    """
    findings = []
    for finding in examined(the_file(file, config), command_config):
        findings.append(finding)
        lines = [json.dumps(finding.as_json(), ensure_ascii=False)] if as_json else lines_of([finding])
        print("\n".join(lines), flush=True)
    if has_failed(findings):
        raise typer.Exit(EXIT_FAILED)


def examined(file: Path, command_config: Path | None) -> Iterator[Finding]:
    """The findings of a configuration, in the order in which they are looked at.

    `command_config`: with which a broker is asked for its quotas. Raises ConfigError for that file.
    """
    from sluice.proxy.cli.check import checked

    found = checked(file, os.environ)
    for problem in found.problems:
        yield Finding(Status.FAILED, "configuration", str(problem), "mend it; `sluice check` tells no more")
    config = found.config
    if config is None:
        if not found.problems:
            yield Finding(Status.FAILED, "configuration", f"{file} is a quota file", "give a configuration")
        return
    if found.problems:
        return
    yield Finding(Status.OK, "configuration", f"{file} and the files that it names")
    yield from _machine(config)
    from sluice.proxy.listener.security import load_security

    for listener in config.listeners:
        yield from _listener(listener, load_security(listener), command_config)


def _machine(config: Config) -> Iterator[Finding]:
    from sluice.proxy.cli.doctor import look
    from sluice.proxy.cli.healthcheck import dialled, failure
    from sluice.proxy.runtime.open_files import allowed

    host, port = config.admin.probe_address
    is_ours = bool(port) and failure(dialled(host), port) is None
    places = [(f"listener {one.name}", one.bind_host, one.bind_port) for one in config.listeners]
    places += [("metrics and status", config.admin.bind_host, config.admin.bind_port), ("probes", host, port)]
    for what, bind_host, bind_port in places:
        if bind_port:
            is_free = look.is_free(bind_host, bind_port)
            yield judge.port(what, (bind_host, bind_port), is_free=is_free, is_ours=is_ours)
    yield judge.open_files(*allowed(), config.limits.max_connections)
    yield judge.backlog(look.somaxconn())
    yield judge.clock(look.is_clock_synchronised())


def _listener(
    listener: ListenerOptions, security: ListenerSecurity, command_config: Path | None
) -> Iterator[Finding]:
    from sluice.proxy.cli.doctor import look

    now_unix_s = time()
    for side, end_unix_s in security.certificates():
        yield judge.certificate(listener.name, side, end_unix_s, now_unix_s)
    for host, port in _brokers(listener):
        address = f"{host}:{port}"
        name = (listener.upstream_tls and listener.upstream_tls.server_name) or host
        tls = security.upstream_tls.context if security.upstream_tls is not None else None
        try:
            with look.connected(host, port, tls, name) as line:
                yield judge.upstream(listener.name, address, None, line.newest_produce())
                if listener.gateway is None:
                    yield from _way(listener, line, (host, port))
        except look.NoAnswer as error:
            yield judge.upstream(listener.name, address, str(error), None)
            continue
        yield from _quotas(address, command_config)


def _way(listener: ListenerOptions, line: look.BrokerLine, upstream: tuple[str, int]) -> Iterator[Finding]:
    """Mode broker: where the broker's answers lead clients."""
    if listener.upstream_has_sasl:
        yield Finding(
            Status.NOT_ASKED, f"way of clients to {listener.name}", "the broker tells it only after a login",
            "look with a client's own: kafka-broker-api-versions --bootstrap-server, through the proxy",
        )  # fmt: skip
    else:
        yield judge.advertised(listener.name, listener.bind_port, upstream, line.advertised())
    yield judge.past_the_proxy(listener.name, upstream[0])


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


def _brokers(listener: ListenerOptions) -> list[tuple[str, int]]:
    from sluice.proxy.config.options import host_and_port

    if listener.gateway is not None:
        return [host_and_port(address) for address in listener.gateway.bootstrap_upstreams]
    assert listener.upstream_host is not None
    assert listener.upstream_port is not None
    return [(listener.upstream_host, listener.upstream_port)]
