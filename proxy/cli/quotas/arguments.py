"""What a `kafka-configs` line asks for: whose quotas, and which changes. Pure.

Types and names are told in three ways, as by Kafka's own tool:
    --entity-type users --entity-name alice        in pairs, by their order: the n-th name is of the n-th type
    --entity-type users --entity-default           the default; as a name in the quota file: `<default>`
    --user alice --client-defaults                 shorthands, in any order
and as the KIPs write it: `--alter --entity-type users` alone is the default, too. A type without a name asks
`--describe` for all of that type, no type for all; Kafka's tool refuses that. An empty name, which is the
default to Kafka's tool, is refused (options.not_empty). Source: ConfigCommand,
ConfigCommandOptions.entityTypes, entityNames.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sluice.proxy.cli.quotas.edit import Whom, canonical
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.files.config_error import USER_TYPE, ConfigError, Problem, unknown_key_message, wrong_limit
from sluice.quotas.files.quota_file import DEFAULT_NAME
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY, KINDS
from sluice.quotas.limits.limits import why_not_for
from sluice.quotas.names import printable

KEY_OF_TYPE: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
"""--entity-type → the key in the quota file, which is also the type in Kafka's API"""
SHORTHANDS: Final = ("client", "user", "ip", "client_defaults", "user_defaults", "ip_defaults")
"""in the order in which Kafka's tool looks at them"""
ADD: Final = "--add-config"
DELETE: Final = "--delete-config"
_Value = TypeVar("_Value")


class ArgumentError(ConfigError):
    """The options do not fit together. Exit code 2."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__([Problem(message, path=option)])


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose quotas: for each key a name, or None: every one that has this key and no other. No keys: all."""

    names: tuple[tuple[str, str | None], ...]
    """by key, user before client-id"""
    first_type: str
    """the --entity-type that came first, for messages"""

    @property
    def whom(self) -> Whom:
        """The one entity. Raises ArgumentError if not all parts have a name."""
        parts = tuple((key, name) for key, name in self.names if name is not None)
        if len(parts) != len(self.names):
            raise ArgumentError("give --entity-name or --entity-default with each --entity-type")
        return parts

    def fits(self, whom: Whom) -> bool:
        """Whether an entity is among those that are asked for: exactly these parts, no others; or any."""
        return not self.names or (
            len(whom) == len(self.names)
            and all(
                key == wanted_key and wanted in {None, name}
                for (key, name), (wanted_key, wanted) in zip(whom, self.names, strict=True)
            )
        )

    def shown(self) -> str:
        """As Kafka's tool shows it when it is done: `config for user alice`, `default config for users`."""
        key = KEY_OF_TYPE[self.first_type]
        name = dict(self.names)[key]
        if name == DEFAULT_NAME:
            return f"default config for {self.first_type}"
        return f"config for {self.first_type[:-1]} {printable(str(name))}"


def given_shorthands(
    types: Sequence[str], names: Sequence[str], shorthands: Mapping[str, str | bool | None]
) -> Sequence[tuple[str, str | bool | None]]:
    """Which of --user and the like are given, in SHORTHANDS' order. Raises ArgumentError if types or names
    are, too."""
    given = [(option, shorthands.get(option)) for option in SHORTHANDS if shorthands.get(option)]
    if given and (types or names):
        raise ArgumentError(
            "--entity-type, --entity-name, --entity-default do not go with --user and the like"
        )
    return given


def asked_of(
    types: Sequence[str],
    names: Sequence[str],
    shorthands: Mapping[str, str | bool | None],
    *,
    alter: bool,
) -> Asked:
    """`names`: in order, DEFAULT_NAME for each --entity-default. `shorthands`: by SHORTHANDS' names.

    Raises ArgumentError.
    """
    if given := given_shorthands(types, names, shorthands):
        types = [f"{option.removesuffix('_defaults')}s" for option, _ in given]
        names = [value if isinstance(value, str) else DEFAULT_NAME for _, value in given]
    if not (types or names or alter):
        return Asked((), "")
    _check_types(types)
    if len(names) > len(types):
        raise ArgumentError("more names than types", "--entity-name")
    if alter and not names:
        names = [DEFAULT_NAME] * len(types)
    if alter and len(names) < len(types):
        raise ArgumentError("give --entity-name or --entity-default with each --entity-type")
    padded: list[str | None] = [*names, *[None] * (len(types) - len(names))]
    found = {KEY_OF_TYPE[kind]: _name(kind, name) for kind, name in zip(types, padded, strict=True)}
    return Asked(tuple((key, found[key]) for key in KEY_OF_TYPE.values() if key in found), types[0])


def _check_types(types: Sequence[str]) -> None:
    """Raises ArgumentError unless these are users, clients, both, or ips."""
    if not types:
        raise ArgumentError("give users, clients or ips", "--entity-type")
    for name in types:
        if name not in KEY_OF_TYPE:
            raise ArgumentError(
                f"must be users, clients, ips, brokers or topics, is {name!r}", "--entity-type"
            )
    if len(set(types)) != len(types):
        raise ArgumentError("each type only once", "--entity-type")
    if len(types) > 1 and "ips" in types:
        raise ArgumentError("only users and clients go together", "--entity-type")


def changes_of(add: str, delete: str, whom: Whom = ()) -> dict[str, float | None]:
    """What `key=value,…` and `key,…` ask for. Raises ConfigError that names the option and the key.

    `whom`: whose they are; () if any key will do.
    """
    problems: list[Problem] = []
    changes: dict[str, float | None] = {}
    for text in filter(None, (part.strip() for part in add.split(","))):
        key, has_value, value = (part.strip() for part in text.partition("="))
        if is_known(ADD, key, KIND_BY_KEY, problems) and not (has_value and value):
            problems.append(Problem("has no value; write KEY=VALUE", path=key, source=ADD))
        elif key in KIND_BY_KEY:
            spec = KINDS[KIND_BY_KEY[key]]
            reason = why_not_for(spec, entity_of(whom)) if whom else None
            number = _number(value)
            try:
                changes[key] = spec.validated(key, number)
            except ValueError as error:
                problems.append(Problem(wrong_limit(spec, number, str(error)), path=key, source=ADD))
            else:
                if reason is not None:
                    problems.append(Problem(reason, path=key, source=ADD))
    take_removals(delete, KIND_BY_KEY, changes, problems)
    if problems:
        raise ConfigError(problems)
    return changes


def entity_of(whom: Whom) -> QuotaEntity:
    """As the limits know it."""
    parts = {key: DEFAULT if name == DEFAULT_NAME else name for key, name in whom}
    return QuotaEntity(parts.get("user"), parts.get("client-id"), parts.get("ip"))


def _name(kind: str, name: str | None) -> str | None:
    if name is None:
        return None
    if not name.strip():
        raise ArgumentError("must not be blank; the default is --entity-default", "--entity-name")
    refuse_no_text(name)
    if kind == "users":
        name = name.removeprefix(USER_TYPE)
    try:
        return canonical(KEY_OF_TYPE[kind], name)
    except ValueError:
        raise ArgumentError(f"must be an address such as 10.1.2.3, is {name!r}", "--entity-name") from None


def refuse_no_text(name: str) -> None:
    """Raises ArgumentError for the name of an argument whose bytes are not UTF-8: no file and no server can
    have such a name. A client id that is not UTF-8 counts as Kafka reads it, with U+FFFD in it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ArgumentError(f"must be UTF-8, is {name!r}", "--entity-name") from None


def take_removals(
    delete: str, known: Collection[str], changes: MutableMapping[str, _Value | None], problems: list[Problem]
) -> None:
    """What `key,…` asks for, as None in `changes`, which has what is added; what cannot be, in `problems`."""
    for key in filter(None, (part.strip() for part in delete.split(","))):
        if is_known(DELETE, key, known, problems):
            if changes.get(key) is not None:
                problems.append(Problem(f"is in {ADD} too", path=key, source=DELETE))
            changes[key] = None


def is_known(option: str, key: str, known: Collection[str], problems: list[Problem]) -> bool:
    """Whether `key` is one of these; a problem that names the nearest if it is not."""
    if key not in known:
        problems.append(Problem(unknown_key_message(key, known), path=key, source=option))
    return key in known


def _number(text: str) -> object:
    """What the quota file would make of it."""
    try:
        return parse_yaml(text, ADD).value
    except (ConfigError, UnicodeEncodeError):  # the bytes of an argument need not be text
        return text
