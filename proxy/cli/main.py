"""The command `sluice`: arguments in; exit code, text on standard output, errors on standard error.

Each command imports what it needs when it runs, so that `sluice version` and `--help` do not load a server.
What a user did wrong is told without a traceback; a traceback means a fault of ours.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from time import time
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer
from typer.core import TyperGroup

from sluice.proxy.cli import access_log as cli_access_log
from sluice.proxy.cli import calibrate_cost as cli_calibrate
from sluice.proxy.cli import connections as cli_connections
from sluice.proxy.cli import top as cli_top
from sluice.proxy.cli.doctor import command as cli_doctor
from sluice.proxy.cli.options import (
    EXIT_CODES,
    EXIT_CODES_OF_MOST,
    EXIT_CODES_OF_RUN,
    EXIT_CONFIG,
    EXIT_FAILED,
    AdminSocketOption,
    CommandFailed,
    ConfigOption,
    FileArgument,
    QuotasOption,
    in_words,
    not_empty,
    the_file,
)
from sluice.proxy.cli.output import complain, escape_unprintable, print_file, to_nowhere
from sluice.proxy.cli.quotas import command as cli_quotas
from sluice.proxy.cli.quotas.options import (
    BrokerUserOption,
    CommandConfigOption,
    ExplainedAddressOption,
    ExplainedBrokerOption,
    ExplainedUserOption,
)
from sluice.quotas.files.config_error import USER_TYPE, ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from typer._click.core import Command, Context

COMMANDS: Final = "sluice.commands"
"""the group of entry points of commands that lie outside of this package: the proxy imports no Spark job"""


class _Commands(TyperGroup):
    """Ours, and those of COMMANDS, which are looked for only where a name is not ours: it takes 50 ms."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [*super().list_commands(ctx), *(command.name for command in _other_commands())]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        for command in _other_commands().select(name=cmd_name):
            alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
            alone.command(command.name)(command.load())
            return typer.main.get_command(alone)
        return None


def _other_commands() -> EntryPoints:
    from importlib.metadata import distribution

    return distribution("kafka-sluice").entry_points.select(group=COMMANDS)


app = typer.Typer(
    cls=_Commands,
    name="sluice",
    help="A proxy that speaks Kafka's protocol and enforces quotas per principal, evenly.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else the lines of a docstring are kept as they are
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


quotas_app = typer.Typer(help="Quotas as YAML: explain, export, compare, apply.", no_args_is_help=True)
app.add_typer(quotas_app, name="quotas")
schema_app = typer.Typer(help="JSON Schema of the files, for editors.", no_args_is_help=True)
app.add_typer(schema_app, name="schema")


@app.callback()
def of_all(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_show_version,
            help="Print the versions, as `sluice version` does.",
        ),
    ] = False,
) -> None:
    """A proxy that speaks Kafka's protocol and enforces quotas per principal, evenly."""


def main() -> NoReturn:
    """The entry point: run the command that the arguments name and exit with its code."""
    escape_unprintable()
    failed: ConfigError | CommandFailed | None = None
    try:
        try:
            app()
        except (ConfigError, CommandFailed) as error:
            failed = error  # an output that cannot be written must not hide it
        finally:
            sys.stdout.flush()  # so that what cannot be written is told here
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise
        to_nowhere(sys.stdout)
        if failed is None:
            if not isinstance(error, BrokenPipeError):  # else whoever read our output has gone
                complain(f"cannot write: {in_words(error)}")
            sys.exit(EXIT_FAILED)
    if failed is not None:
        complain(failed)
        sys.exit(EXIT_CONFIG if isinstance(failed, ConfigError) else EXIT_FAILED)
    sys.exit(0)


@app.command(epilog=EXIT_CODES_OF_RUN)
def run(file: FileArgument = None, config: ConfigOption = None) -> None:
    """Run the proxy until SIGTERM or SIGINT, which drain it; a second signal ends it at once.

    Options come from `SLUICE_*` variables, the configuration file, and defaults, in this order:
    `pacing.burst_s` is `SLUICE_PACING__BURST_S`. Without a file all that is required must be in variables.
    """
    from sluice.proxy.config.file import load_config, with_places_in
    from sluice.proxy.runtime.file_work import within
    from sluice.proxy.server import run as serve

    given = file or config
    if given is None and not any(name.startswith("SLUICE_") for name in os.environ):
        raise typer.BadParameter("give FILE, --config or SLUICE_CONFIG, or all options as SLUICE_* variables")
    loaded = within(str(given), lambda: load_config(given, os.environ))
    try:
        code = serve(loaded, given)
    except ConfigError as error:
        raise with_places_in(error, given, os.environ) from None
    raise typer.Exit(code)


@app.command(epilog=EXIT_CODES_OF_MOST)
def check(
    file: FileArgument = None,
    config: ConfigOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The mistakes as one JSON object: file, line, key, message.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Ask the brokers for their replication throttles, too.")
    ] = False,
) -> None:
    """Check a configuration file, with the files that it names (quotas, certificates, credentials), or a
    quota file.

    Prints OK and a summary, or every mistake of all files with its key and line. SLUICE_* variables count as
    in `run`. FILE may be a pipe, as `<(…)` is, unlike in `run`: it is read to its end, and waited for until
    somebody writes into it.
    With --replication the brokers' throttles must be as they should be, or it fails.
    """
    from sluice.proxy.cli.check import checked

    found = checked(the_file(file, config), os.environ)
    if as_json:
        print(found.as_json())
        if found.problems:
            raise typer.Exit(EXIT_CONFIG)
    elif found.problems:
        raise ConfigError(found.problems)
    else:
        print("\n".join(found.summary()))
    if replication:
        from sluice.proxy.replication.setup import BrokersNotAsked, check_cluster

        if found.config is None or found.config.replication is None:
            raise typer.BadParameter(f"{found.file} has no section `replication`")
        try:
            findings = check_cluster(found.config.replication)
        except BrokersNotAsked as error:
            raise CommandFailed(str(error)) from None
        for finding in findings:
            print(f"  replication throttles: {finding.check}: {finding.message}")
        raise typer.Exit(EXIT_FAILED if findings else 0)


@quotas_app.command(epilog=EXIT_CODES_OF_MOST)
def explain(
    user: ExplainedUserOption,
    client_id: Annotated[str, typer.Option(help="The client id; empty for none.")] = "",
    address: ExplainedAddressOption = "",
    quotas: QuotasOption = None,
    config: ConfigOption = None,
    at: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="For schedules: `2026-12-05T01:30+01:00`; now if not given.",
            callback=not_empty,
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    bootstrap_server: ExplainedBrokerOption = "",
    command_config: CommandConfigOption = None,
    broker_user: BrokerUserOption = "",
    admin_socket: AdminSocketOption = None,
) -> None:
    """Which limits apply to a client, and why: all levels of each quota that are looked at, in order.

    The limits are those of a quota file, of which the line is told, or those in force: `--admin-socket`, or a
    configuration with a topic and a socket, asks the proxy that runs; `--bootstrap-server` alone asks a proxy
    or a broker. Beside one of the others it asks which limits the broker itself has: both apply, the lower
    rules.
    """
    from sluice.proxy.cli.at_broker import BrokerQuotas
    from sluice.proxy.cli.explain import Client, Explanation
    from sluice.proxy.cli.quotas.sources import source_of
    from sluice.quotas.limits.scheduled import limits_at

    now_unix_s = _instant(at)
    client = Client(user.removeprefix(USER_TYPE), client_id, _address(address))
    broker = None
    if not bootstrap_server and (command_config is not None or broker_user):
        raise typer.BadParameter("--command-config and --broker-user go with --bootstrap-server")
    if bootstrap_server and not cli_quotas.names_place(quotas, config, admin_socket):
        if broker_user:
            raise typer.BadParameter("--broker-user goes with a file or socket beside --bootstrap-server")
        source = source_of(cli_quotas.server_of(bootstrap_server, command_config))
    else:
        source = source_of(cli_quotas.place_of(quotas, config, "", None, admin_socket))
        if bootstrap_server:
            server = cli_quotas.server_of(bootstrap_server, command_config)
            there = broker_user.removeprefix(USER_TYPE) or client.user
            broker = BrokerQuotas.asked(server, there, client_id)
    limits = limits_at(source.limits, now_unix_s).limits
    explanation = Explanation(client, source, limits, now_unix_s, broker)
    if as_json:
        explanation.print_json()
    else:
        explanation.print_tables()


cli_quotas.register(app, quotas_app)
app.command(epilog=EXIT_CODES_OF_MOST)(cli_top.top)
app.command(epilog=EXIT_CODES_OF_MOST)(cli_connections.connections)
cli_calibrate.register(app)
cli_doctor.register(app)
cli_access_log.register(app)


@app.command()
def healthcheck(file: FileArgument = None, config: ConfigOption = None) -> None:
    """Ask the proxy of this machine or container whether it is alive: exit code 0, or 1 and the reason.

    Asks /livez at the probe port that `SLUICE_*` variables, or the configuration file, say. The file is not
    validated: what cannot be read in it is passed over.
    """
    from sluice.proxy.cli.healthcheck import main as check

    check(str(file or config or ""))


@app.command()
def version() -> None:
    """Print the versions of Sluice, of the Kafka protocol that it knows, and of Python, and whether the
    compiled data path is built (the option `pump`)."""
    from importlib.metadata import version as version_of
    from platform import python_version

    from sluice.protocol._tables import KAFKA_VERSION
    from sluice.proxy.pump.built import is_built

    pump = "pump built" if is_built() else "pump not built: Python alone"
    parts = f"Kafka protocol {KAFKA_VERSION}, Python {python_version()}, {pump}"
    print(f"sluice {version_of('kafka-sluice')} ({parts})")


@app.command(epilog=EXIT_CODES_OF_MOST)
def decode(
    roundtrip: Annotated[
        bool, typer.Option("--roundtrip", help="Add the frame encoded anew, as `hex`, to each answer.")
    ] = False,
) -> None:
    """Decode Kafka frames: JSON lines on standard input, one JSON line on standard output for each.

    In: `{"api_key": 0, "api_version": 13, "direction": "request", "hex": "…"}`, the frame without its size.
    Out: `{"header": …, "body": …}`, or `{"error": …}`. Exit code 1 if any line was bad.
    """
    from sluice.protocol.codec.decode import run as decode_lines

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # a damaged line is a bad one, and no end
    raise typer.Exit(EXIT_FAILED if decode_lines(sys.stdin, sys.stdout, roundtrip) else 0)


@schema_app.command("config")
def schema_config() -> None:
    """Print the JSON Schema of the configuration file."""
    from sluice.proxy.config.schema import config_schema_text

    print_file(config_schema_text())


@schema_app.command("quotas")
def schema_quotas() -> None:
    """Print the JSON Schema of the quota file."""
    from sluice.proxy.quota_store.schema import quotas_schema_text

    print_file(quotas_schema_text())


def _instant(text: str) -> float:
    """Unix seconds of an ISO time, of this machine's zone where it names none. Raises typer.BadParameter."""
    from datetime import datetime

    if not text:
        return time()
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"--at: {error}; give a time such as 2026-12-05T01:30+01:00") from None


def _address(text: str) -> str:
    """As limits name it. Raises typer.BadParameter for what is none."""
    from sluice.quotas.exempt import address_of

    found = address_of(text) if text else None
    if text and found is None:
        raise typer.BadParameter(f"--address: must be an address such as 10.1.2.3, is {text!r}")
    return str(found or "")
