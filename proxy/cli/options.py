"""What several commands of `sluice` have in common: exit codes and options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeVar

import typer

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_CODES = """\
Exit codes: 0 success (also after SIGTERM or SIGINT, once drained); 1 failed while running, `decode` met a bad
line, or `quotas diff` found a difference; 2 bad configuration, quota file or arguments; 3 `recalibrate`
found no log of the date that it could use; 128+n ended by signal n."""
EXIT_CODES_OF_RUN = """\
Exit codes: 0 drained, after SIGTERM or SIGINT; 1 failed while running; 2 bad configuration,
quota file or arguments; 128+n ended by signal n."""
EXIT_CODES_OF_MOST = "Exit codes: 0 success; 1 failed; 2 bad configuration, quota file or arguments."
EXIT_CODES_OF_DIFF = """\
Exit codes: 0 no difference; 1 they differ, or one of them did not answer; 2 bad configuration, quota file or
arguments."""


_Value = TypeVar("_Value", str, list[str] | None)


class CommandFailed(Exception):
    """What a command was to do could not be done. Told without a traceback; exit code 1."""


def in_words(error: Exception) -> str:
    """Why something failed, for people: `connection refused`, without Python's `[Errno 111]` around it."""
    inner = getattr(error, "reason", None)  # of a URLError; a text, in some
    if isinstance(inner, OSError):
        return in_words(inner)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(inner or error) or type(error).__name__


def not_empty(context: typer.Context, option: typer.CallbackParam, value: _Value) -> _Value:
    """An option's callback. Raises typer.BadParameter if it was given as "": a shell's variable without a
    value is never the same as no option, which mostly means all."""
    if _is_on_command_line(context, option.name or "") and "" in (
        [value] if isinstance(value, str) else value or ()
    ):
        raise typer.BadParameter("must not be empty")
    return value


def _is_on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _not_two(context: typer.Context, option: typer.CallbackParam, value: Path | None) -> Path | None:
    """The callback of FILE and --config. Raises typer.BadParameter if the command line has both: none is
    passed over in silence. They are read in the order in which they stand there."""
    other = context.params.get("file" if option.name == "config" else "config")
    if value is not None and other is not None:
        file, config = (other, value) if option.name == "config" else (value, other)
        if _is_on_command_line(context, "file") and _is_on_command_line(context, "config"):
            raise typer.BadParameter(f"two files are given, {file} and --config {config}; give one of them")
    return value


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="SLUICE_CONFIG", metavar="FILE", help="The configuration file.",
        callback=_not_two,
    ),
]  # fmt: skip
FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", show_default=False, help="The configuration file, as --config.", callback=_not_two
    ),
]
AdminSocketOption = Annotated[
    Path | None, typer.Option("--admin-socket", metavar="FILE", help="A running proxy's admin.socket.")
]
QuotasOption = Annotated[Path | None, typer.Option("--quotas", "-q", metavar="FILE", help="The quota file.")]


def the_file(file: Path | None, config: Path | None) -> Path:
    """That which was given. Raises typer.BadParameter if none was."""
    given = file or config
    if given is None:
        raise typer.BadParameter("give FILE, --config or SLUICE_CONFIG")
    return given


def quota_file_of(quotas: Path | None, config: Path | None, otherwise: str = "") -> Path:
    """The quota file that was named, else the one that the configuration names.

    Raises typer.BadParameter if there is none; `otherwise`: what else could be given.
    """
    from sluice.proxy.config.file import load_config

    if quotas is not None:
        return quotas
    if config is not None:
        return load_config(config, os.environ).quotas.named_file()
    if "SLUICE_QUOTAS__FILE" in os.environ:
        return Path(os.environ["SLUICE_QUOTAS__FILE"])
    raise typer.BadParameter(f"give --quotas FILE or --config FILE{otherwise}")
