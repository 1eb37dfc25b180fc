"""The commands that see and change quotas: `sluice configs`, as Kafka's tool; `sluice quotas …`, in YAML."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from sluice.proxy.cli.options import (
    EXIT_CODES_OF_DIFF,
    EXIT_CODES_OF_MOST,
    EXIT_FAILED,
    AdminSocketOption,
    ConfigOption,
    QuotasOption,
    quota_file_of,
)
from sluice.proxy.cli.output import change_made, print_file, print_left_out
from sluice.proxy.cli.plan import command as cli_plan
from sluice.proxy.cli.quotas.options import (
    AddConfigOption,
    AlterOption,
    BootstrapOption,
    ClientDefaultsOption,
    ClientOption,
    CommandConfigOption,
    DeleteConfigOption,
    DescribeOption,
    DryRunOption,
    EntityDefaultOption,
    EntityNameOption,
    EntityTypeOption,
    FileArgument,
    FileOrPlanArgument,
    IpDefaultsOption,
    IpOption,
    KeepOption,
    UserDefaultsOption,
    UserOption,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.proxy.cli.quotas.arguments import Asked
    from sluice.proxy.cli.quotas.edit import Whom
    from sluice.proxy.cli.quotas.listing import Difference, Listing
    from sluice.proxy.cli.quotas.places import Place
    from sluice.proxy.cli.quotas.throttle_arguments import Throttled

_DEFAULT = "<default>"


class OrderedNames(TyperCommand):
    """`--entity-default` counts among the `--entity-name`s, in the order in which they are written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read `--entity-default` as `--entity-name <default>`, in its place."""
        named = [f"--entity-name={_DEFAULT}" if arg == "--entity-default" else arg for arg in args]
        return super().parse_args(ctx, named)


def configs(
    alter: AlterOption = False,
    describe: DescribeOption = False,
    add_config: AddConfigOption = "",
    delete_config: DeleteConfigOption = "",
    entity_type: EntityTypeOption = None,
    entity_name: EntityNameOption = None,
    entity_default: EntityDefaultOption = False,  # OrderedNames makes a name of it
    user: UserOption = "",
    client: ClientOption = "",
    ip: IpOption = "",
    user_defaults: UserDefaultsOption = False,
    client_defaults: ClientDefaultsOption = False,
    ip_defaults: IpDefaultsOption = False,
    quotas: QuotasOption = None,
    config: ConfigOption = None,
    bootstrap_server: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    admin_socket: AdminSocketOption = None,
) -> None:
    """Show or set limits by the options of `kafka-configs`, in the quota file or at a server.

    `sluice configs -q quotas.yaml --alter --add-config producer_byte_rate=1048576 --entity-type users
    --entity-name alice`. In a file comments stay, and a running proxy notices the change.
    """
    from sluice.proxy.cli.quotas.arguments import asked_of, changes_of, given_shorthands
    from sluice.proxy.cli.quotas.throttle_arguments import throttle_changes_of, throttled_of

    if alter == describe:
        raise typer.BadParameter("give one of --alter and --describe")
    if describe and (add_config or delete_config):
        raise typer.BadParameter("--add-config and --delete-config go with --alter")
    shorthands: dict[str, str | bool | None] = {
        "user": user,
        "client": client,
        "ip": ip,
        "user_defaults": user_defaults,
        "client_defaults": client_defaults,
        "ip_defaults": ip_defaults,
    }
    types, names = entity_type or [], entity_name or []
    given_shorthands(types, names, shorthands)  # beside brokers and topics, too
    throttled = throttled_of(types, names, alter=alter)
    place = place_of(quotas, config, bootstrap_server, command_config, admin_socket)
    if throttled is not None:
        changes = throttle_changes_of(throttled.kind, add_config, delete_config) if alter else None
        _show_or_set_throttles(throttled, changes, place)
        return
    asked = asked_of(types, names, shorthands, alter=alter)
    if describe:
        _show(asked, place.listing())
        return
    limits = changes_of(add_config, delete_config, asked.whom)
    if not limits:
        raise typer.BadParameter("give --add-config KEY=VALUE or --delete-config KEY")
    done = place.alter({asked.whom: limits})
    _print_done(asked.shown(), place.written, done=done)
    _print_in_shadow(place, asked.whom, [key for key, limit in limits.items() if limit is not None])


def _show(asked: Asked, listing: Listing) -> None:
    from sluice.proxy.cli.quotas.listing import unnamable_line
    from sluice.proxy.cli.quotas.places import lines_of
    from sluice.proxy.cli.quotas.remote import whom_of_names

    for line in lines_of(listing, [whom for whom in listing.limits if asked.fits(whom)]):
        print(line)
    for names, its in listing.unnamable:
        if asked.fits(whom_of_names(dict(names))):
            print(unnamable_line(names, its))


def _show_or_set_throttles(asked: Throttled, changes: Mapping[str, str | None] | None, place: Place) -> None:
    """`changes`: None: show them."""
    from sluice.proxy.cli.quotas.places import QuotaFilePlace
    from sluice.proxy.cli.quotas.server import QuotaServer
    from sluice.proxy.cli.quotas.throttles import ThrottleFile, ThrottlePlace, ThrottleServer

    at: ThrottlePlace
    if isinstance(place, QuotaServer):
        at = ThrottleServer(place.server)
    elif isinstance(place, QuotaFilePlace):
        at = ThrottleFile(place)
    else:
        raise typer.BadParameter(
            f"of {asked.kind} a proxy keeps nothing; give --bootstrap-server HOST:PORT or --quotas FILE"
        )
    if changes is None:
        for line in at.lines(asked):
            print(line)
        return
    if not changes:
        raise typer.BadParameter("give --add-config KEY=VALUE or --delete-config KEY")
    with place.alone():
        done = at.alter(asked, changes)
    _print_done(asked.shown(), at.written, done=done)


def _print_done(whom: str, written: str, *, done: bool) -> None:
    told = f"{'Completed updating' if done else 'Nothing to change in'} {whom}."
    with change_made(told if done else ""):
        print(told)
        if done:
            print(written)


def _print_in_shadow(place: Place, whom: Whom, keys: list[str]) -> None:
    """Which of the limits that were set delay nobody: a file's entry stays in shadow mode, a server puts what
    is set in force."""
    from sluice.proxy.cli.quotas.places import QuotaFilePlace

    if not isinstance(place, QuotaFilePlace):
        return
    in_shadow = place.listing().shadow.get(whom, frozenset())
    found = [key for key in keys if key in in_shadow]
    if found:
        print(
            f"In shadow mode, so it delays nobody: {', '.join(found)}. To put it in force, remove `shadow` "
            f"from its entry in {place.name}, or the key from the list there."
        )


def place_of(
    quotas: Path | None,
    config: Path | None,
    bootstrap_server: str,
    command_config: Path | None,
    admin_socket: Path | None,
) -> Place:
    """The one that is named. Raises typer.BadParameter if none is, or two are."""
    from sluice.proxy.cli.quotas.places import QuotaFilePlace
    from sluice.proxy.cli.quotas.remote import SocketPlace

    if [bool(bootstrap_server), quotas is not None, admin_socket is not None].count(True) > 1:
        raise typer.BadParameter("give one of --quotas, --bootstrap-server and --admin-socket")
    if admin_socket is not None:
        return SocketPlace(admin_socket)
    if bootstrap_server:
        return server_of(bootstrap_server, command_config)
    if command_config is not None:
        raise typer.BadParameter("--command-config goes with --bootstrap-server")
    if quotas is None and config is not None:
        from sluice.proxy.config.file import load_config

        loaded = load_config(config, os.environ)
        if loaded.quotas.source == "topic":
            if loaded.admin.socket is None:
                raise typer.BadParameter(
                    "the limits of this proxy come from a topic; give --bootstrap-server HOST:PORT, with the "
                    "login of one of quotas.admins (--command-config FILE), or set admin.socket; --quotas "
                    "FILE: the file beside it; without these `sluice top --why` tells what applies to who is "
                    "connected"
                )
            return SocketPlace(loaded.admin.socket)
        return QuotaFilePlace(loaded.quotas.named_file(), loaded.quotas.reload_interval_s)
    otherwise = ", --bootstrap-server HOST:PORT or --admin-socket FILE"
    return QuotaFilePlace(quota_file_of(quotas, config, otherwise))


def names_place(quotas: Path | None, config: Path | None, admin_socket: Path | None) -> bool:
    """Whether these say where a proxy's quotas are; a configuration with a topic and no socket does not."""
    if quotas is not None or admin_socket is not None:
        return True
    if config is None:
        return "SLUICE_QUOTAS__FILE" in os.environ
    from sluice.proxy.config.file import load_config

    loaded = load_config(config, os.environ)
    return loaded.quotas.source != "topic" or loaded.admin.socket is not None


def server_of(bootstrap_server: str, command_config: Path | None) -> Place:
    """A broker, or a proxy that answers in its place. Raises ConfigError."""
    from sluice.proxy.cli.quotas.client_properties import ClientSettings, load_client_properties
    from sluice.proxy.cli.quotas.server import QuotaServer

    settings = ClientSettings() if command_config is None else load_client_properties(command_config)
    return QuotaServer(bootstrap_server, settings)


def export(
    quotas: QuotasOption = None,
    config: ConfigOption = None,
    bootstrap_server: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    admin_socket: AdminSocketOption = None,
) -> None:
    """Print all quotas of a quota file or a server, as a quota file.

    A server may have what no quota file can: it is named on standard error, and the exit code is 1.
    """
    from sluice.proxy.cli.quotas.listing import faults_of, yaml_of

    listing = place_of(quotas, config, bootstrap_server, command_config, admin_socket).listing()
    text = yaml_of(listing)
    print_file(text)
    if faults := faults_of(listing, text):
        print("\n".join(faults), file=sys.stderr)
        raise typer.Exit(EXIT_FAILED)


def diff(
    file: FileArgument,
    quotas: QuotasOption = None,
    config: ConfigOption = None,
    bootstrap_server: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    admin_socket: AdminSocketOption = None,
) -> None:
    """Compare the quotas of FILE with those of another quota file or a server; exit code 1 if they differ.

    A line for each difference: `-` only FILE has it, `+` only the other has it, `~` both, with other limits.
    """
    from sluice.proxy.cli.quotas.listing import compared, unnamable_lines

    other = place_of(quotas, config, bootstrap_server, command_config, admin_socket)
    there = other.listing()
    found, left_out = compared(_read(file), there)
    _print_all(found)
    print_left_out(f"not compared, {other.name} cannot tell it", left_out)
    print_left_out(f"not compared, {other.name} has it", unnamable_lines(there))
    raise typer.Exit(EXIT_FAILED if found else 0)


def apply(
    file: FileOrPlanArgument,
    quotas: QuotasOption = None,
    config: ConfigOption = None,
    bootstrap_server: BootstrapOption = "",
    command_config: CommandConfigOption = None,
    admin_socket: AdminSocketOption = None,
    dry_run: DryRunOption = False,
    keep: KeepOption = False,
    rollback: cli_plan.RollbackOption = False,
    max_changes: cli_plan.MaxChangesOption = None,
    include_reviews: cli_plan.IncludeReviewsOption = False,
    include: cli_plan.IncludeOption = None,
    unattended: cli_plan.UnattendedOption = False,
    skip_changed: cli_plan.SkipChangedOption = False,
    max_age_days: cli_plan.MaxAgeOption = None,
    max_cut_share: cli_plan.MaxCutOption = None,
    max_total_fall: cli_plan.MaxFallOption = None,
    record: cli_plan.RecordOption = None,
) -> None:
    """Make a quota file or a server say what FILE says; asks nothing, prints each change.

    Only what differs is changed: `+` is set, `-` is removed, `~` gets another limit. `import` is the same.
    Of a plan all limits that it proposes are written. Those that need review are among them, as far as the
    policy's guard goes (at most twice the limit): what is wanted beyond that waits for --include. A plan is
    refused if it is empty, stale or suspicious.
    """
    from sluice.proxy.cli.plan.apply import plan_file_of

    place = place_of(quotas, config, bootstrap_server, command_config, admin_socket)
    options = cli_plan.PlanOptions(
        rollback,
        max_changes,
        include_reviews,
        tuple(include or ()),
        unattended,
        skip_changed,
        max_age_days,
        max_cut_share,
        max_total_fall,
        record,
    )
    plan = None if str(file) == "-" else plan_file_of(file)
    if plan is not None:
        if keep:
            raise typer.BadParameter("--keep goes with a quota file; a plan removes nothing")
        cli_plan.run_plan(plan, place, options, dry_run=dry_run)
        return
    if given := options.given():
        raise typer.BadParameter(f"{given[0]} goes with a plan; {file} is none")
    _apply_quota_file(file, place, keep=keep, dry_run=dry_run)


def _apply_quota_file(file: Path, place: Place, *, keep: bool, dry_run: bool) -> None:
    """Change what differs from FILE, and print each change. `keep`: remove nothing."""
    from sluice.proxy.cli.quotas.listing import changes_at, merged, unnamable_lines, without_place
    from sluice.proxy.cli.quotas.places import QuotaFilePlace

    is_new = is_changed = False
    found: list[Difference] = []
    wanted = _read(file)  # before others wait for this command: it may be a pipe
    try:
        with nullcontext() if dry_run else place.alone():
            if isinstance(place, QuotaFilePlace):
                place.may_be_new = True
                is_new = place.is_new
            now = place.listing()
            print_left_out(f"left out, {place.name} has no place for it", without_place(wanted, now))
            print_left_out(f"stays as it is at {place.name}", unnamable_lines(now))
            if keep:
                wanted = merged(now, wanted)
            found = changes_at(now, wanted)
            if (found or is_new) and not dry_run:
                place.become(wanted, found)
                is_changed = True
    except Exception:
        with suppress(OSError):  # why it failed is what counts
            _print_all(found)
        raise
    last = cli_plan.last_line(place.name, len(found), dry_run=dry_run)
    with change_made(last if is_changed else ""):  # others do not wait for who reads this
        _print_all(found)
        if is_new and not dry_run:
            print(f"{place.name} is a new file.")
        print(last)


def _print_all(found: list[Difference]) -> None:
    for difference in found:
        print(difference)


def register(app: typer.Typer, quotas_app: typer.Typer) -> None:
    """Put the commands where they are called."""
    app.command("configs", cls=OrderedNames, epilog=EXIT_CODES_OF_MOST)(configs)
    quotas_app.command("export", epilog=EXIT_CODES_OF_MOST)(export)
    quotas_app.command("diff", epilog=EXIT_CODES_OF_DIFF)(diff)
    quotas_app.command("apply", epilog=EXIT_CODES_OF_MOST)(apply)
    quotas_app.command("import", epilog=EXIT_CODES_OF_MOST, help="The same as `apply`.")(apply)


def _read(file: Path) -> Listing:
    from sluice.proxy.cli.quotas.places import QuotaFilePlace

    return QuotaFilePlace(file).listing()
