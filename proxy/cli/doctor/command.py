"""`sluice doctor`: everything that can be looked at from here, a line each, with what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sluice.proxy.cli.doctor import judge
from sluice.proxy.cli.doctor.finding import Finding, Status, lines_of
from sluice.proxy.cli.options import (
    EXIT_CODES_OF_MOST,
    EXIT_CONFIG,
    EXIT_FAILED,
    ConfigOption,
    FileArgument,
    the_file,
)
from sluice.proxy.cli.output import json_text
from sluice.proxy.cli.quotas.options import CommandConfigOption

if TYPE_CHECKING:
    from sluice.proxy.config.config import Config

_CONFIGURATION: Final = "configuration"
"""the check's name"""


def register(app: typer.Typer) -> None:
    """Add `sluice doctor` to the command."""
    app.command(epilog=EXIT_CODES_OF_MOST)(doctor)


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
    To be run where the proxy runs, before or beside it. Exit code 1 if anything does not work, 2 if it is
    the configuration that `sluice run` would refuse.
    """
    findings = []
    for finding in examined(the_file(file, config), command_config):
        findings.append(finding)
        lines = [json_text(finding.as_json())] if as_json else lines_of([finding])
        print("\n".join(lines), flush=True)
    failed = {finding.check for finding in findings if finding.status is Status.FAILED}
    if failed:
        # As `sluice check` and `run` end: of a configuration that is refused nothing else is looked at.
        raise typer.Exit(EXIT_CONFIG if _CONFIGURATION in failed else EXIT_FAILED)


def examined(file: Path, command_config: Path | None) -> Iterator[Finding]:
    """The findings of a configuration, in the order in which they are looked at.

    `command_config`: with which a broker is asked for its quotas. Raises ConfigError for that file.
    """
    from sluice.proxy.cli.check import checked

    found = checked(file, os.environ)
    for problem in found.problems:
        yield Finding(Status.FAILED, _CONFIGURATION, str(problem), "correct it: `sluice run` ends with it")
    config = found.config
    if config is None:
        if not found.problems:
            yield Finding(
                Status.FAILED,
                _CONFIGURATION,
                f"{file} is a quota file",
                "give the configuration that names it",
            )
        return
    if found.problems:
        return
    yield Finding(Status.OK, _CONFIGURATION, f"{file} and the files that it names")
    for gap in found.warnings:
        yield Finding(Status.WARNING, gap.event, gap.told, gap.remedy)
    yield from _machine(config)
    from sluice.proxy.cli.doctor import brokers

    yield from brokers.of_listeners(config, command_config)
    yield from brokers.asked_by_the_proxy(config)


def _machine(config: Config) -> Iterator[Finding]:
    from sluice.proxy.cli.doctor import look
    from sluice.proxy.runtime.open_files import allowed

    yield from _ports(config)
    yield judge.open_files(*allowed(), config.limits.max_connections)
    yield judge.backlog(look.somaxconn())
    yield judge.clock(look.is_clock_synchronised())


def _ports(config: Config) -> Iterator[Finding]:
    """Those that a start binds."""
    from sluice.proxy.cli.doctor import look
    from sluice.proxy.cli.healthcheck import dialled, failure

    host, port = config.admin.probe_address
    is_ours = bool(port) and failure(dialled(host), port) is None
    places = [(f"listener {one.name}", one.bind_host, one.bind_port) for one in config.listeners]
    places += [("metrics and status", config.admin.bind_host, config.admin.bind_port), ("probes", host, port)]
    for what, bind_host, bind_port in places:
        if bind_port:
            fault = look.why_not_bound(bind_host, bind_port)
            yield judge.port(what, (bind_host, bind_port), fault, is_ours=is_ours)
    for listener in config.listeners:
        if numbers := listener.broker_ports:
            found = {number: look.why_not_bound(listener.bind_host, number) for number in numbers}
            faults = {number: fault for number, fault in found.items() if fault}
            yield judge.ports(listener.name, listener.bind_host, numbers, faults, is_ours=is_ours)
