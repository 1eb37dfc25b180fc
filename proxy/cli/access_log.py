"""The command `sluice access-log fetch`: the access log out of its topic, into a folder for the job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sluice.proxy.cli.options import EXIT_CODES_OF_MOST, CommandFailed, ConfigOption
from sluice.proxy.cli.output import change_made


def register(app: typer.Typer) -> None:
    """Add `sluice access-log fetch` to the command."""
    commands = typer.Typer(help="The access log.", no_args_is_help=True)
    commands.command("fetch", epilog=EXIT_CODES_OF_MOST)(fetch)
    app.add_typer(commands, name="access-log")


def fetch(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", show_default=False, help="Where the files go."),
    ],
    config: ConfigOption = None,
    group: Annotated[
        str, typer.Option(metavar="NAME", help="The consumer group that remembers what was fetched.")
    ] = "sluice-access-log",
) -> None:
    """Write what is new in the access log's topic (access_log.topic of the configuration) into FOLDER, where
    `sluice recalibrate --logs FOLDER` reads it.

    Each record is a file, and gets the place and name that it would have in a directory. What was fetched is
    not fetched again.
    """
    import asyncio

    from sluice.proxy.access_log.fetch import Fetched, FetchFailed, fetch_files
    from sluice.proxy.config.file import load_config

    if config is None and not any(name.startswith("SLUICE_") for name in os.environ):
        raise typer.BadParameter("give --config or SLUICE_CONFIG")
    options = load_config(config, os.environ).access_log
    if options is None or options.topic is None:
        raise typer.BadParameter("the configuration has no access_log.topic")
    try:
        found = asyncio.run(fetch_files(options.topic, folder, group))
    except FetchFailed as error:
        raise CommandFailed(f"access-log fetch: {error}") from None
    told = (
        f"{found.files} files; {found.there} there already; {found.foreign} records that are none of the log."
    )
    with change_made(told if found != Fetched() else ""):
        print(told)
