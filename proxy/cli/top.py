"""`sluice top`: who is throttled, by how much, how near to the limit, by which rule, on which connections."""

from __future__ import annotations

import io
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sluice.proxy.admin.top.order import Sort
from sluice.proxy.cli.options import AdminSocketOption, ConfigOption, FileArgument, not_empty
from sluice.proxy.cli.output import json_text

if TYPE_CHECKING:
    from rich.console import Console

    from sluice.proxy.cli.local_admin import PortClient, SocketClient

_PIPE_WIDTH: Final = 211
"""characters, where no terminal gives a width"""
_DEFAULT_URL = "http://127.0.0.1:9308"


UrlOption = Annotated[
    str, typer.Option(metavar="URL", help=f"The admin port; {_DEFAULT_URL}.", callback=not_empty)
]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", help="The token of admin.status.token_file.")
]


class Output(StrEnum):
    """How the snapshot is told."""

    TABLE = "table"
    JSON = "json"


def top(
    file: FileArgument = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --output json.")] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json: one snapshot, for programs.")
    ] = Output.TABLE,
    once: Annotated[bool, typer.Option("--once", help="One table; so it is without a terminal.")] = False,
    user: Annotated[
        str,
        typer.Option(
            "--user",
            metavar="NAME",
            help="Buckets of this user, client id or tenant; * and ? stand for any characters.",
            callback=not_empty,
        ),
    ] = "",
    sort: Annotated[Sort, typer.Option("--sort", help="What comes first.")] = Sort.THROTTLED,
    why: Annotated[
        bool, typer.Option("--why", help="Explain each row: the levels, the arithmetic, each connection.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Followers that catch up with the broker behind, instead.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, max=200, help="At most so many rows.")] = 25,
    interval_s: Annotated[
        float, typer.Option("--interval-s", min=0.1, help="Seconds between two looks.")
    ] = 1.0,
    config: ConfigOption = None,
    admin_socket: AdminSocketOption = None,
    url: UrlOption = "",
    token_file: TokenFileOption = None,
) -> None:
    """Show who is throttled now, the most throttled first, then who is nearest to the limit; `q` ends it.

    A row is a bucket: the connections that share one limit. `owes`: how long until what it owes is paid.
    On a terminal `s` sorts otherwise, `w` tells why, and `f` filters by a part of the name; a narrow one
    shows fewer columns. With --user and --sort the 200 most throttled buckets are looked at. Asks the proxy
    of the configuration file, through its admin socket if it has one, else its admin port.
    """
    from sluice.proxy.cli.top_screen import Look, watch

    look = Look(source_of(file or config, admin_socket, url, token_file), rows, user, sort, why, replication)
    if as_json or output is Output.JSON:
        print(json_text(look.snapshot()))
        return
    console = console_of()
    if once or not console.is_terminal:
        console.print(look.rendered(console.width), crop=False)
        return
    watch(look, console, interval_s)


def console_of() -> Console:
    """A pipe is as wide as COLUMNS says, if that is a number. What its encoding has not is a question mark:
    a locale without UTF-8 has no lines."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else _PIPE_WIDTH
    return Console(highlight=False, width=width)


def source_of(
    config: Path | None, admin_socket: Path | None, url: str, token_file: Path | None
) -> SocketClient | PortClient:
    """The running proxy that is asked: its admin socket, or its admin port."""
    from sluice.proxy.cli.local_admin import PortClient, SocketClient

    if admin_socket is not None:
        return SocketClient(admin_socket)
    if url:
        return PortClient(url, token_file)
    if config is None:
        return PortClient(_DEFAULT_URL, token_file)
    from sluice.proxy.cli.healthcheck import dialled
    from sluice.proxy.config.file import load_config

    admin = load_config(config, os.environ).admin
    if admin.socket is not None:
        return SocketClient(admin.socket)
    host = dialled(admin.bind_host)
    at = f"[{host}]" if ":" in host else host
    return PortClient(f"http://{at}:{admin.bind_port}", token_file or admin.status.token_file)
