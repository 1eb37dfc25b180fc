"""`sluice connections`: live connections by what passes through them, as `rpk cluster connections list`."""

from __future__ import annotations

from typing import Annotated

import typer

from sluice.proxy.admin.top.order import ConnectionSort
from sluice.proxy.cli.options import AdminSocketOption, ConfigOption, FileArgument, not_empty
from sluice.proxy.cli.output import json_text
from sluice.proxy.cli.top import Output, TokenFileOption, UrlOption, console_of, source_of


def connections(
    file: FileArgument = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="json: one snapshot, for programs.")
    ] = Output.TABLE,
    user: Annotated[
        str,
        typer.Option(
            "--user",
            metavar="NAME",
            help="Those of this user, client id or address; * and ? stand for any characters.",
            callback=not_empty,
        ),
    ] = "",
    sort: Annotated[
        ConnectionSort, typer.Option("--sort", help="What comes first.")
    ] = ConnectionSort.THROUGHPUT,
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many rows.")] = 25,
    config: ConfigOption = None,
    admin_socket: AdminSocketOption = None,
    url: UrlOption = "",
    token_file: TokenFileOption = None,
) -> None:
    """Show live connections, those through which most passes first: a second's bytes in and out, requests in
    flight, and what they owe.

    Asks the proxy of the configuration file, through its admin socket if it has one, else its admin port; the
    proxy looks at the counters of its connections twice, a second apart.
    """
    from sluice.proxy.admin.top.throughput_view import connections_view

    source = source_of(file or config, admin_socket, url, token_file)
    snapshot = source.connections(rows, user=user, sort=sort.value)
    if output is Output.JSON:
        print(json_text(snapshot))
        return
    console = console_of()
    console.print(connections_view(snapshot, width=console.width, searched=user))
