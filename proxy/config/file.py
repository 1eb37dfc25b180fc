"""A YAML file and SLUICE_* variables → Config, or every problem with its key, file, line or variable.

Precedence: environment > file > default. A variable is named by its key's path in upper case, joined by `__`
(SLUICE_PACING__BURST_S); a list or section is written as YAML or JSON. pydantic-settings is not used: it adds
0.2 s to each start, ignores misspelt variables, and does not tell which variable an error came from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import ValidationError

from sluice.proxy.config.config import Config
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.messages import inner_section, mistake, section_at
from sluice.proxy.config.options import Options
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_SMALL_BYTES, read_text
from sluice.quotas.files.variables import NOT_OPTIONS
from sluice.quotas.files.yaml_lines import YamlDocument, YamlPath, YamlValue, dotted, parse_yaml

PREFIX = "SLUICE_"

# Kubernetes gives every pod variables for each service: one named `sluice` brings SLUICE_PORT=tcp://10.0.0.1:9092.
_SERVICE_LINK_NAME = re.compile(
    r"SLUICE_.*?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))"
)
_SERVICE_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://\S+:\d+")
_NUL = "must not hold the character NUL (\\0), which no file, host or name can have"

_NO_MAPPING = "must be a mapping of keys (listeners:, quotas:, …); a quota file without limits is quotas: []"


def load_config(file: Path | None, environ: Mapping[str, str]) -> Config:
    """The configuration in `file` (None: no file) under what `environ` says.

    Raises ConfigError with every problem found, each naming its key, its place and what would be right.
    """
    document, source = YamlDocument(value={}), ""
    if file is not None:
        source = str(file)
        document = parse_yaml(read_text(file, "configuration", MAX_SMALL_BYTES), source)
        if document.value is None:
            document.value = {}
    return config_of(document, source, environ)


def config_of(document: YamlDocument, source: str, environ: Mapping[str, str]) -> Config:
    """The same for a document that is parsed already; `source` is its file, or empty."""
    if not isinstance(document.value, dict):
        raise ConfigError([Problem(_NO_MAPPING, source=source, line=1)])
    if "listeners" not in document.value and isinstance(document.value.get("quotas"), list):
        message = "is a quota file; give the configuration that names it"
        raise ConfigError([Problem(message, source=source)])
    problems: list[Problem] = []
    variables = dict(_variables(environ, problems))
    values = document.value
    if source:
        _resolve_files(values, Path(source).parent)
    for path, (_, value) in variables.items():
        _put(values, path, value)
    translator = _Translator(document, source, variables)
    problems.extend(translator.problem(path, _NUL) for path in _with_nul(values, ()))
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        problems.extend(translator.problems(error))
        problems.extend(translator.problems_behind(values, error))
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0))
    return config


def variable_names() -> list[str]:
    """Every variable that sets an option: one for each that is not inside a list."""
    return list(_variable_names(Config, PREFIX))


def _variable_names(section: type[Options], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        variable = prefix + name.upper()
        yield variable
        inner = inner_section(field.annotation)
        if inner is not None and inner is not ListenerOptions:
            yield from _variable_names(inner, f"{variable}__")


def with_places(
    error: ConfigError, document: YamlDocument, source: str, environ: Mapping[str, str]
) -> ConfigError:
    """The same, but what is told of an option, or of a file as a whole (not there, no quota file), has the
    key and place of that option, or of the one that names the file. `document`: of a configuration that was
    read (config_of)."""
    translator = _Translator(document, source, dict(_variables(environ, [])))
    options: dict[str, list[YamlPath]] = {}
    for path, name in (*_named_files(document.value, Config, ()), *_mapping_rules(document.value)):
        options.setdefault(str(Path(name)), []).append(path)
    return ConfigError(_placed(problem, translator, options) for problem in error.problems)


def _placed(problem: Problem, translator: _Translator, options: Mapping[str, list[YamlPath]]) -> Problem:
    """`options`: by the source that a problem of them has."""
    if problem.line is not None:
        return problem
    if not problem.source:
        path = tuple(problem.path.split("."))
        return translator.problem(path, problem.message) if path[0] in Config.model_fields else problem
    for option in options.get(problem.source, ()):
        if problem.path in {"", option[-1]}:  # the certificate's, say, told by the name of the option alone
            return translator.problem(option, f"{problem.source}: {problem.message}")
    return problem


def _mapping_rules(values: YamlValue) -> Iterator[tuple[YamlPath, str]]:
    """Those of each listener, of which a problem has the listener's name as its source."""
    listeners = values.get("listeners") if isinstance(values, dict) else None
    for number, listener in enumerate(listeners if isinstance(listeners, list) else ()):
        if isinstance(listener, dict):
            yield ("listeners", number, "tls", "principal_mapping_rules"), f"listener {listener.get('name')}"


def with_places_in(error: ConfigError, file: Path | None, environ: Mapping[str, str]) -> ConfigError:
    """The same, of the configuration in `file` (None: no file), as load_config read it."""
    document, source = YamlDocument(value={}), "" if file is None else str(file)
    try:
        if file is not None:
            document = parse_yaml(read_text(file, "configuration", MAX_SMALL_BYTES), source)
        config_of(document, source, environ)  # which resolves the names of files
    except ConfigError:  # it has become another meanwhile
        return error
    return with_places(error, document, source, environ)


def _resolve_files(values: YamlValue, folder: Path) -> None:
    """Relative files in the file start at the file's folder, so that all can be moved together."""
    for path, name in list(_named_files(values, Config, ())):
        _inside(values, path)[path[-1]] = str(folder / name)


def _named_files(values: YamlValue, section: type[Options], at: YamlPath) -> Iterator[tuple[YamlPath, str]]:
    """(path of the option, its value) of each that names a file, also a wrong one."""
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        field = section.model_fields.get(str(key))
        if field is None:
            continue
        inner = inner_section(field.annotation)
        if inner is not None and isinstance(value, list):
            for number, item in enumerate(value):
                yield from _named_files(item, inner, (*at, key, number))
        elif inner is not None:
            yield from _named_files(value, inner, (*at, key))
        elif isinstance(value, str) and value.strip() and _is_file(field.annotation):
            yield (*at, key), value


def _is_file(annotation: Any) -> bool:
    """An option that names a file, also one that may be left out (`Annotated[Path, …] | None`)."""
    return annotation is Path or any(_is_file(inner) for inner in get_args(annotation))


def _variables(
    environ: Mapping[str, str], problems: list[Problem]
) -> Iterator[tuple[tuple[str, ...], tuple[str, YamlValue]]]:
    """(path, (variable, value)) of each option in the environment, sections before what is in them."""
    found: list[tuple[tuple[str, ...], str]] = []
    for name in environ:
        if not name.upper().startswith(PREFIX) or name.upper() in NOT_OPTIONS:
            continue
        path = tuple(name[len(PREFIX) :].lower().split("__"))
        whole = _option_above(path)
        if whole:
            variable = PREFIX + "__".join(whole).upper()
            problems.append(
                Problem(f"{'.'.join(whole)} has no keys below it; set {variable} whole", source=name)
            )
        elif path[0] in Config.model_fields:
            found.append((path, name))
        elif not (_SERVICE_LINK_NAME.fullmatch(name) or _SERVICE_LINK_VALUE.fullmatch(environ[name])):
            problems.append(Problem(_unknown_variable(name), source=name))
    for path, name in sorted(found):
        text = environ[name]
        value: YamlValue = text
        if text.lstrip().startswith(("[", "{")):
            try:
                value = parse_yaml(text, name).value
            except ConfigError as error:
                problems.extend(replace(problem, line=None) for problem in error.problems)
                continue
        yield path, (name, value)


def _option_above(path: tuple[str, ...]) -> tuple[str, ...]:
    """The option, or list of sections, that `path` leads through; empty where it leads through sections."""
    for length in range(1, len(path)):
        section = section_at(Config, path[: length - 1])
        field = section.model_fields.get(path[length - 1]) if section is not None else None
        if field is None or get_origin(field.annotation) is dict:
            return ()
        if inner_section(field.annotation) in {None, ListenerOptions}:
            return path[:length]
    return ()


def _unknown_variable(name: str) -> str:
    """Compared without the difference of `_` and `__`, which is what people get wrong."""
    known = {variable.replace("__", "_").removeprefix(PREFIX): variable for variable in variable_names()}
    close = get_close_matches(name.upper().replace("__", "_").removeprefix(PREFIX), known, n=1, cutoff=0.6)
    return f"unknown variable; did you mean {known[close[0]]}?" if close else "unknown variable; remove it"


def _put(values: dict[str, YamlValue], path: tuple[str, ...], value: YamlValue) -> None:
    for part in path[:-1]:
        inner = values.get(part)
        if not isinstance(inner, dict):
            inner = values[part] = {}
        values = inner
    values[path[-1]] = value


def _with_nul(value: YamlValue, path: YamlPath) -> Iterator[YamlPath]:
    """The paths of texts with a NUL: what is given to the operating system or OpenSSL would raise ValueError
    for it there, behind all checks."""
    if isinstance(value, str):
        if "\0" in value:
            yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _with_nul(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _with_nul(inner, (*path, number))


class _Translator:
    """pydantic's errors in our words, with their places."""

    def __init__(
        self, document: YamlDocument, source: str, variables: Mapping[tuple[str, ...], tuple[str, YamlValue]]
    ) -> None:
        self._document = document
        self._source = source
        self._variables = variables

    def problems(self, error: ValidationError) -> Iterator[Problem]:
        for detail in _details(error):
            if detail["type"] == "contradictions":
                for path, message in detail["ctx"]["contradictions"]:
                    yield self.problem(path, message)
            else:
                yield self.problem(detail["loc"], mistake(Config, detail))

    def problems_behind(self, values: YamlValue, error: ValidationError) -> Iterator[Problem]:
        """What only shows once what `error` names is right: options are compared with each other where each
        is fine by itself. So look again without those; what is required has a stand-in then."""
        values = deepcopy(values)
        gone = {detail["loc"] for detail in _details(error)}
        if () in gone or not all(_take_out(values, path) for path in gone):
            return
        for _ in range(2):
            try:
                Config.model_validate(values)
            except ValidationError as further:
                missing = [detail["loc"] for detail in _details(further) if detail["type"] == "missing"]
                if not missing:
                    yield from (
                        self.problem(path, message)
                        for detail in _details(further)
                        if detail["type"] == "contradictions"
                        for path, message in detail["ctx"]["contradictions"]
                        if path not in gone
                    )
                    return
                for path in missing:
                    _put_stand_in(values, path)
                gone |= set(missing)

    def problem(self, path: YamlPath, message: str) -> Problem:
        """`message` with the place of `path`: a variable, or a line of the file."""
        for length in range(len(path), 0, -1):
            variable = self._variables.get(tuple(map(str, path[:length])))
            if variable is not None:
                return Problem(message, path=dotted(path), source=variable[0])
        line = self._document.line_of(path) if self._source else None
        return Problem(message, path=dotted(path), source=self._source, line=line)


def _details(error: ValidationError) -> Iterator[Mapping[str, Any]]:
    """pydantic's; but a list whose items are all wrong is reported as too short as well."""
    for detail in error.errors(include_url=False):
        if detail["type"] != "too_short" or not detail["input"]:
            yield detail


def _inside(values: Any, path: YamlPath) -> Any:
    """What holds the last part of `path`; None if there is no such place."""
    for part in path[:-1]:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def _take_out(values: Any, path: YamlPath) -> bool:
    """False: it is part of a list, whose other items would be others' then."""
    holder = _inside(values, path)
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    return isinstance(holder, dict) or holder is None


def _put_stand_in(values: Any, path: YamlPath) -> None:
    """Something for a required option. A port 0 is taken by nobody."""
    holder, section = _inside(values, path), section_at(Config, path[:-1])
    if isinstance(holder, dict) and section is not None:
        field = section.model_fields.get(str(path[-1]))
        is_number = field is not None and field.annotation in {int, float}
        holder[path[-1]] = 0 if is_number else "stand-in"
