"""`sluice top`: who is throttled, by how much, how near to the limit, by which rule, on which connections."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sluice.proxy.admin.top.order import MAX_ROWS, Sort, chosen
from sluice.proxy.cli.options import AdminSocketOption, CommandFailed, ConfigOption

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from sluice.proxy.cli.local_admin import Snapshots

_PIPE_WIDTH: Final = 200
_DEFAULT_URL = "http://127.0.0.1:9308"
_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Output(StrEnum):
    """How the snapshot is told."""

    TABLE = "table"
    JSON = "json"


def top(
    as_json: Annotated[bool, typer.Option("--json", help="As --output json.")] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json: one snapshot, for programs.")
    ] = Output.TABLE,
    once: Annotated[bool, typer.Option("--once", help="One table; so it is without a terminal.")] = False,
    user: Annotated[
        str,
        typer.Option("--user", metavar="NAME", help="Of this user alone; * and ? stand for any characters."),
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
    url: Annotated[str, typer.Option(metavar="URL", help=f"The admin port; {_DEFAULT_URL}.")] = "",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="The token of admin.status.token_file.")
    ] = None,
) -> None:
    """Show who is throttled now, the most throttled first, then who is nearest to the limit; Ctrl-C ends it.

    A row is a bucket: the connections that share one limit. `owes`: how long until what it owes is paid.
    A narrow terminal shows fewer columns. With --user and --sort the 200 most throttled buckets are looked
    at. Asks the proxy of the configuration file, through its admin socket if it has one, else its admin port.
    """
    source = _source(config, admin_socket, url, token_file)
    asked = MAX_ROWS if user or sort is not Sort.THROTTLED else rows

    def look() -> dict[str, Any]:
        if replication:
            return source.replication(rows)
        return chosen(source.top(asked, why=why), user=user, sort=sort, rows=rows)

    if as_json or output is Output.JSON:
        print(json.dumps(look(), ensure_ascii=False))
        return
    from sluice.proxy.admin.top.replication_view import replication_view
    from sluice.proxy.admin.top.view import view

    console = _console()

    def shown() -> RenderableType:
        return replication_view(look()) if replication else view(look(), why=why, width=console.width)

    if once or not console.is_terminal:
        console.print(shown())
        return
    _watch(shown, console, interval_s)


def _console() -> Console:
    """A pipe is as wide as COLUMNS says, if that is a number."""
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        return console
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() and int(columns) else _PIPE_WIDTH
    return Console(highlight=False, width=width)


def _watch(shown: Callable[[], RenderableType], console: Console, interval_s: float) -> None:
    """Look again and again, until Ctrl-C. Raises CommandFailed if the first look fails."""
    from rich.live import Live
    from rich.text import Text

    # Python leaves it ignored where it was so at the start, as in a shell's background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        first = shown()  # if there is no proxy, it ends here
        with Live(first, console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.refresh()
                time.sleep(interval_s)
                try:
                    live.update(shown())
                except CommandFailed as error:  # it may come back
                    live.update(Text(str(error), style="red"))
    except KeyboardInterrupt:
        return


def _source(config: Path | None, admin_socket: Path | None, url: str, token_file: Path | None) -> Snapshots:
    from sluice.proxy.cli.local_admin import PortClient, SocketClient

    if admin_socket is not None:
        return SocketClient(admin_socket)
    if url:
        return PortClient(url, token_file)
    if config is None:
        return PortClient(_DEFAULT_URL, token_file)
    from sluice.proxy.config.file import load_config

    admin = load_config(config, os.environ).admin
    if admin.socket is not None:
        return SocketClient(admin.socket)
    host = _ANY.get(admin.bind_host, f"[{admin.bind_host}]" if ":" in admin.bind_host else admin.bind_host)
    return PortClient(f"http://{host}:{admin.bind_port}", token_file or admin.status.token_file)
