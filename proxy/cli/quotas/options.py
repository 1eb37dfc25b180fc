"""The options of `sluice configs` and `sluice quotas …`, and what the shell completes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from sluice.proxy.cli.options import not_empty

_SHORT: Final = "As Kafka's shorthands"
"""the heading under which the help lists them"""


def entity_types(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [name for name in ("users", "clients", "ips", "brokers", "topics") if name.startswith(incomplete)]


def config_keys(incomplete: str) -> list[str]:
    """For the shell's completion: the key behind the last comma."""
    from sluice.quotas.kinds import KIND_BY_KEY

    done, comma, key = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in KIND_BY_KEY if name.startswith(key)]


def config_settings(incomplete: str) -> list[str]:
    """The same with `=`."""
    return [f"{key}=" for key in config_keys(incomplete)]


# Which quotas: a quota file (sluice.proxy.cli.options) or a server.
BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="A proxy that keeps quotas in a topic, or Kafka itself.",
        callback=not_empty,
    ),
]
ExplainedUserOption = Annotated[
    str,
    typer.Option(
        "--user", help="The principal's name; without SASL everybody is ANONYMOUS.", callback=not_empty
    ),
]
ExplainedAddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        help="The client's IP address: for exempt rules, and its connection_creation_rate.",
        callback=not_empty,
    ),
]
ExplainedBrokerOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT,…",
        help="Beside a file or socket: a broker, asked for limits of its own. Alone: the place to ask.",
        callback=not_empty,
    ),
]
BrokerUserOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Whom the broker takes the client for, where the proxy logs in by itself.",
        callback=not_empty,
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Properties, as Kafka's tools take them: `security.protocol`, `sasl.*`, `ssl.*`",
    ),
]

# `sluice configs`, as kafka-configs has them.
AlterOption = Annotated[bool, typer.Option("--alter", help="Change limits.")]
DescribeOption = Annotated[bool, typer.Option("--describe", help="Print limits.")]
AddConfigOption = Annotated[
    str,
    typer.Option(
        "--add-config", metavar="KEY=VALUE,…", help="Limits to set.", autocompletion=config_settings
    ),
]
DeleteConfigOption = Annotated[
    str,
    typer.Option("--delete-config", metavar="KEY,…", help="Limits to remove.", autocompletion=config_keys),
]
EntityTypeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-type",
        metavar="users|clients|ips|brokers|topics",
        help="Users with clients: give both. Brokers and topics: their replication throttles.",
        autocompletion=entity_types,
    ),
]
EntityNameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-name",
        metavar="NAME",
        help="The name; the n-th is of the n-th type. None with --alter: default.",
        callback=not_empty,
    ),
]
EntityDefaultOption = Annotated[
    bool, typer.Option("--entity-default", help="In the place of a name: all without an entry.")
]
UserOption = Annotated[
    str, typer.Option("--user", metavar="NAME", help="A user.", rich_help_panel=_SHORT, callback=not_empty)
]
ClientOption = Annotated[
    str,
    typer.Option(
        "--client", metavar="CLIENT-ID", help="A client id.", rich_help_panel=_SHORT, callback=not_empty
    ),
]
IpOption = Annotated[
    str,
    typer.Option("--ip", metavar="ADDRESS", help="An address.", rich_help_panel=_SHORT, callback=not_empty),
]
UserDefaultsOption = Annotated[
    bool, typer.Option("--user-defaults", help="All other users.", rich_help_panel=_SHORT)
]
ClientDefaultsOption = Annotated[
    bool, typer.Option("--client-defaults", help="All other client ids.", rich_help_panel=_SHORT)
]
IpDefaultsOption = Annotated[
    bool, typer.Option("--ip-defaults", help="All other addresses.", rich_help_panel=_SHORT)
]

# `sluice quotas …`.
FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", show_default=False, help="A quota file; `-` reads standard input.")
]
FileOrPlanArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="A quota file, `-` reads standard input; or the nightly job's plan: its folder, plan.json.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would be changed.")]
KeepOption = Annotated[bool, typer.Option("--keep", help="Remove nothing that FILE does not name.")]
