"""The command `sluice calibrate-cost`: what requests cost a broker like yours, measured on it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sluice.proxy.cli.options import EXIT_CODES_OF_MOST, CommandFailed, in_words

if TYPE_CHECKING:
    from sluice.proxy.calibration.calibrate import Target

_JMX_URL = "service:jmx:rmi:///jndi/rmi://{}/jmxrmi"


def register(app: typer.Typer) -> None:
    """Add `sluice calibrate-cost` to the command."""
    app.command("calibrate-cost", epilog=EXIT_CODES_OF_MOST)(calibrate_cost)


def calibrate_cost(
    bootstrap_server: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The broker itself, not a proxy; no login.")
    ],
    jmx: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Its JMX port (JMX_PORT), or a whole service:jmx: URL.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the costs; else standard output.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fit nothing: tell how far these costs are from this broker."),
    ] = None,
    tls_bootstrap_server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Its listener with TLS, to measure what that adds."),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PEM: the CA of the broker's certificate.")
    ] = None,
    jmx_command: Annotated[
        str, typer.Option(metavar="COMMAND", help="Kafka's JmxTool: bin/kafka-jmx.sh of any Kafka ≥ 3.4.")
    ] = "kafka-jmx.sh",
    seconds: Annotated[float, typer.Option(min=0.2, max=3.0, help="For how long each load runs.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each load runs.")] = 5,
    note: Annotated[str, typer.Option(metavar="TEXT", help="What was measured, for the file.")] = "",
) -> None:
    """Measure what requests cost a broker's threads, for request_percentage; about twenty minutes.

    Drives the broker with Produce, Fetch, Metadata and group requests, reads its own request-time of them
    over JMX, and fits the costs to it. It wants a broker with nothing else to do; it makes topics and native
    quotas whose names begin with `sluice-calibration-`, and removes them at the end. Then it tells how far
    the costs are from the broker's figures for mixes that they were not fitted to.
    """
    from sluice.proxy.calibration.calibrate import Calibration, calibrate, fit_table, mix_table
    from sluice.proxy.calibration.request_cost_file import load_request_costs
    from sluice.proxy.calibration.rig import CalibrationError

    target = _target(bootstrap_server, jmx, jmx_command)
    try:
        if check is not None:
            costs = load_request_costs(check).plain
        else:
            tls_target = None
            if tls_bootstrap_server is not None:
                tls_target = _target(tls_bootstrap_server, jmx, jmx_command, has_tls=True, ca_file=ca_file)
            text, found, tables = calibrate(target, tls_target, load_s=seconds, rounds=rounds, measured=note)
            costs = tables.plain
            if out is None:
                print(text)
            else:
                out.write_text(text, encoding="utf-8")
            print(fit_table(found, costs))
        mixes = Calibration(target, seconds).drive_mixes(rounds)
        print(mix_table(mix.judged(costs) for mix in mixes))
    except (CalibrationError, OSError) as error:
        raise CommandFailed(f"calibrate-cost: {_where(error)}{in_words(error)}") from None


def _where(error: Exception) -> str:
    """The file that an error is of, as the costs' or the command for JMX; a calibration's names its own."""
    filename = error.filename if isinstance(error, OSError) else None
    return f"{filename}: " if filename else ""


def _target(
    address: str, jmx: str, jmx_command: str, *, has_tls: bool = False, ca_file: Path | None = None
) -> Target:
    import ssl

    from sluice.proxy.calibration.calibrate import Target
    from sluice.proxy.config.options import host_and_port

    try:
        host, port = host_and_port(address)
    except ValueError as error:
        raise typer.BadParameter(f"{address!r} {error}") from None
    tls = ssl.create_default_context(cafile=ca_file) if has_tls else None
    url = jmx if jmx.startswith("service:") else _JMX_URL.format(jmx)
    return Target(host, port, tuple(shlex.split(jmx_command)), url, tls)
