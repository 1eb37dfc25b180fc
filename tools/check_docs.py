"""Check the command and configuration blocks of README.md, docs/ and the examples: `make check-docs`.

Configurations and quota files are loaded, `sluice` command lines parsed by the commands themselves, `make`
targets looked up, other programs' command lines held against what they name here (docs_commands.py); the
quick start's blocks are run by its own test, but for those whose comment says why not
(testkit/repository/docs_blocks.py). A block that cannot be judged fails; one with such a comment is skipped.
Last line: JSON.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer
from typer._click.exceptions import ClickException

from sluice.proxy.cli.main import app
from sluice.proxy.cli.quotas.arguments import SHORTHANDS, asked_of, changes_of
from sluice.proxy.config.file import config_of
from sluice.proxy.listener.login.credential_entries import CredentialsError, parse_credentials
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.files.yaml_lines import parse_yaml
from testkit.repository.docs_blocks import Block, blocks_of
from tools.docs_commands import NotJudged, check_other

ROOT: Final = Path(__file__).resolve().parents[1]
LISTENERS: Final = "listeners: [{name: c, bind_port: 9092, upstream_host: 127.0.0.1, upstream_port: 19092}]\n"
COMMAND: Final = re.compile(r" *(?:sluice|make|kubectl|docker|helm|curl|spark-submit|pip|python3?) ")
HAVE_A_PLACE: Final = ("configs", "explain", "export", "diff", "apply", "import")
PLACES: Final = ("quotas", "config", "bootstrap_server", "admin_socket")
RUN_BY_TEST: Final = "docs/quick-start.md"
"""whose blocks tests/e2e/cluster/test_quick_start.py runs"""


def check_yaml(text: str) -> None:
    """Load a configuration or quota file; a section alone as part of the smallest one. Raises ConfigError."""
    value: Any = parse_yaml(text, "block").value
    if not isinstance(value, dict):
        raise ValueError("no mapping")
    if "users" in value or "service" in value:
        parse_credentials(text, ROOT / "credentials.yaml", "SCRAM-SHA-512")
        return
    if isinstance(value.get("quotas"), list) or "exempt" in value:
        parse_quotas(text if "quotas" in value else f"{text}quotas: []\n", "block")
        return
    added = "" if "listeners" in value else LISTENERS
    added += "" if "quotas" in value else "quotas: {file: quotas.yaml}\n"
    config_of(parse_yaml(text + added, "block"), "block", {})


def check_shell(text: str) -> None:
    """Look up `make` targets, parse every `sluice` command line, and hold others against what they name
    (docs_commands.py). Raises ValueError."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for line in text.replace("\\\n", " ").splitlines():
        for command in _commands(line):
            match command:
                case ["make", target, *_] if target in targets:
                    pass
                case ["sluice", *arguments]:
                    _parse(arguments)
                case _:
                    check_other(command, _parse)


def _commands(line: str) -> Iterator[list[str]]:
    words = shlex.split(line, comments=True)
    command: list[str] = []
    for word in [*words, "|"]:
        if word == "|" and command:
            yield command[: command.index(">")] if ">" in command else command
            command = []
        elif word != "|":
            command.append(word)


def _parse(arguments: list[str]) -> None:
    """Raises ClickException if a command or an option is not known, or a value is missing or wrong, and
    ValueError or ConfigError if options of a command about quotas do not fit together."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    left = [word.strip("[]") for word in arguments]  # what may be left out, in a synopsis
    while hasattr(command, "commands"):
        if left[:1] and left[0].startswith("--"):
            break
        found = command.get_command(context, left[0])
        if found is None:
            raise ValueError(f"no command {left[0]}")
        command, left = found, left[1:]
    options = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
    acts = False
    for word in left:
        if word.startswith("-") and word != "-":
            option = options.get(word.split("=")[0])
            if option is None:
                raise ValueError(f"sluice {shlex.join(arguments)}: no option {word}")
            acts |= option.is_eager or (option.callback is not None and not option.expose_value)
    if acts or hasattr(command, "commands"):  # --install-completion would be done, were it parsed
        return
    found = command.make_context(command.name, left)
    if command.name in HAVE_A_PLACE and not any(found.params[name] for name in PLACES):
        raise ValueError(f"sluice {shlex.join(arguments)}: names no place")
    if command.name == "configs":
        given = found.params
        shorthands = {name: given[name] for name in SHORTHANDS}
        types, names = given["entity_type"] or [], given["entity_name"] or []
        asked = asked_of(types, names, shorthands, alter=given["alter"])
        changes_of(given["add_config"], given["delete_config"], asked.whom if given["alter"] else ())


def judge(page: str, block: Block) -> str:
    """`run`, `validated`, `skipped`, or what is wrong."""
    if (
        page == RUN_BY_TEST
        and block.language in {"sh", "properties"}
        and not (block.is_make or block.not_run)
    ):
        return "run"
    try:
        if block.language == "yaml":
            check_yaml(block.text)
        elif block.language == "sh":
            check_shell(block.text)
        else:
            raise NotJudged(f"a block of {block.language} is not judged")
    except NotJudged as error:
        return "skipped" if block.not_run else str(error)
    except (ConfigError, CredentialsError, ValueError) as error:
        return str(error)
    except ClickException as error:
        return error.format_message()
    return "validated"


def judged() -> Iterator[tuple[str, Block, str]]:
    """Every block of commands or configuration, with its page and how it was judged."""
    examples = sorted((ROOT / "deploy" / "examples").rglob("*.md"))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *examples]:
        page = path.relative_to(ROOT).as_posix()
        for block in blocks_of(path.read_text(encoding="utf-8")):
            if block.language or COMMAND.match(block.text):
                yield page, block, judge(page, block)


def main() -> None:
    """Print a row a block and the counts; exit code 1 if a block failed."""
    rows = list(judged())
    for page, block, outcome in rows:
        first = block.text.splitlines()[0]
        reason = f": {block.not_run}" if block.not_run else ""
        print(f"{page:28}  {block.language:10}  {outcome}{reason}  {first[:60]}")
    counts = Counter(outcome for _, _, outcome in rows)
    names = ("run", "validated", "skipped")
    print(json.dumps({"blocks": len(rows), **{name: counts[name] for name in names}}))
    sys.exit(sum(counts[name] for name in names) != len(rows))


if __name__ == "__main__":
    main()
