"""DescribeClientQuotas and AlterClientQuotas, as the broker answers them, over the configured limits. Pure.

Which entries a filter matches; what an alteration makes of the entries, entity by entity, with the broker's
own error codes and messages. Knows neither bytes (wire.py), nor who may ask and where limits are kept
(service.py). What Kafka does not have is neither told nor altered: client-id prefixes, tenants. Limits in
shadow mode are not told; one that is set is in force from then on, whatever it was.
Source: KIP-546; ClientQuotasImage.describe, ClientQuotaControlManager.alterClientQuotas (4.3.1). Different
from the broker on purpose: an ip must be an address, for no name is resolved; a name that Kafka's readers
refuse in an answer is refused when a limit is set for it; NaN, infinity and what is no
whole number within 10^-6 are refused; a LONG that is one within it is kept as the whole number; of several
wrong keys of one entity the first is told, not the first in Java's order of hashes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluice.protocol.apis import ErrorCode
from sluice.proxy.quota_store.entities import CLIENT_ID, IP, USER, Parts, entity_of, parts_of, why_too_long
from sluice.quotas.addresses import usual_address
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, KindSpec, Scope, whole_int, whole_number
from sluice.quotas.limits.limits import QuotaLimits, why_not_for

_TYPES: Final = (USER, CLIENT_ID, IP)
_EXACT: Final = 0
_DEFAULT: Final = 1
_SPECIFIED: Final = 2
_WHOLE: Final[tuple[object, ...]] = (whole_number, whole_int)
_WHOLE_WITHIN: Final = 1e-6
_LONG_MAX: Final = 2**63 - 1
NO_SHADOW: Final[Mapping[QuotaEntity, frozenset[str]]] = {}


class QuotaApiError(Exception):
    """A request that is refused as a whole."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Component(NamedTuple):
    """One condition of a filter."""

    entity_type: str
    match_type: int
    """0 this name, 1 the default, 2 any name or the default"""
    match: str | None


class Alteration(NamedTuple):
    """What is asked for one entity."""

    parts: Parts
    ops: Sequence[tuple[str, float | None]]
    """(key, new limit); None: the key goes"""

    @property
    def keys_set(self) -> frozenset[str]:
        """Those that get a limit: it is in force, for that is what it means to whoever sets it."""
        return frozenset(key for key, limit in self.ops if limit is not None)


class Result(NamedTuple):
    """What became of it. A message is None where the code is 0."""

    parts: Parts
    code: int
    message: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes of all alterations of one request."""

    results: list[Result] = field(default_factory=list)
    """one for each different entity"""
    changes: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    """all limits that an entity then has, where they, or their shadow mode, are not as now; none: it goes"""
    asked: dict[QuotaEntity, Alteration] = field(default_factory=dict)
    """of each of these, what brought it about"""

    def refused(self, code: int, messages: Mapping[QuotaEntity, str]) -> list[Result]:
        """The results if the changes of these entities could not be kept."""
        told = {_key_of(self.asked[entity].parts): message for entity, message in messages.items()}
        return [
            Result(result.parts, code, told[_key_of(result.parts)])
            if result.code == ErrorCode.NONE and _key_of(result.parts) in told
            else result
            for result in self.results
        ]


def checked_filter(components: Sequence[Component]) -> None:
    """Raises QuotaApiError for a filter that the broker refuses."""
    seen: set[str] = set()
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise QuotaApiError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if entity_type in seen:
            raise QuotaApiError(
                ErrorCode.INVALID_REQUEST,
                f"Entity type {entity_type} cannot appear more than once in the filter.",
            )
        if entity_type not in _TYPES:
            raise QuotaApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
        seen.add(entity_type)
        if component.match_type == _EXACT:
            if component.match is None:
                raise QuotaApiError(
                    ErrorCode.INVALID_REQUEST,
                    "Request specified MATCH_TYPE_EXACT, but set match string to null.",
                )
        elif component.match_type in {_DEFAULT, _SPECIFIED}:
            if component.match is not None:
                name = "DEFAULT" if component.match_type == _DEFAULT else "SPECIFIED"
                raise QuotaApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Request specified MATCH_TYPE_{name}, but also specified a match string.",
                )
        else:
            raise QuotaApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if IP in seen and len(seen) > 1:
        raise QuotaApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        )


def matching(
    entries: Iterable[tuple[QuotaEntity, Mapping[str, float]]],
    components: Sequence[Component],
    *,
    strict: bool,
) -> Iterator[tuple[Parts, Mapping[str, float]]]:
    """The entries that fulfil all conditions of a checked filter; `strict`: and have no other entity type."""
    if strict and not components:
        return
    wanted = tuple((one.entity_type, one.match_type, _as_kept(one)) for one in components)
    for entity, limits in entries:
        parts = parts_of(entity)
        if parts is None or not limits or (strict and len(parts) != len(wanted)):
            continue
        names = dict(parts)
        if all(
            entity_type in names and (match_type == _SPECIFIED or names[entity_type] == match)
            for entity_type, match_type, match in wanted
        ):
            yield parts, limits


def _as_kept(component: Component) -> str | None:
    """The name that is looked for: tools ask for an address in the spelling in which they set its limit."""
    entity_type, _, match = component
    if entity_type == IP and match is not None:
        with suppress(ValueError):
            return usual_address(match)
    return match


def in_force(
    entries: Iterable[tuple[QuotaEntity, Mapping[str, float]]], shadow: Mapping[QuotaEntity, frozenset[str]]
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """The entries without their limits in shadow mode, which Kafka's API would tell as limits in force."""
    for entity, limits in entries:
        keys = shadow.get(entity)
        yield entity, limits if not keys else {key: limits[key] for key in limits if key not in keys}


def describe(
    limits: QuotaLimits, components: Sequence[Component], *, strict: bool
) -> list[tuple[Parts, Mapping[str, float]]]:
    """The entries that a filter matches. Raises QuotaApiError for one that the broker refuses."""
    checked_filter(components)
    return list(matching(in_force(limits.entries.items(), limits.shadow), components, strict=strict))


def alter(
    entries: Mapping[QuotaEntity, Mapping[str, float]],
    alterations: Iterable[Alteration],
    shadow: Mapping[QuotaEntity, frozenset[str]] = NO_SHADOW,
    *,
    anew: bool = False,
) -> Outcome:
    """What the alterations come to. An entity that is refused keeps its limits; the others are altered.

    As in the broker, an entity that is named twice is altered by the first, and the answer tells the second.
    `shadow`: keys in shadow mode; that one of them is set is a change, though its number may stay the same.
    `anew`: all are told as changed, though their limits be the same.
    """
    results: dict[frozenset[tuple[str, str | None]], Result] = {}
    outcome = Outcome()
    seen: set[QuotaEntity] = set()
    for alteration in alterations:
        parts = tuple(dict(alteration.parts).items())
        key = _key_of(parts)
        ops = dict(alteration.ops)
        try:
            if key in results or len(ops) != len(alteration.ops):
                raise _duplicate(parts)
            entity = _checked_entity(parts)
            if entity in seen:  # an address in another spelling
                raise _duplicate(parts)
            seen.add(entity)
            # What was set for such a name, by an earlier version, can still be removed.
            too_long = why_too_long(entity) if alteration.keys_set else None
            if too_long is not None:
                raise QuotaApiError(ErrorCode.INVALID_REQUEST, too_long)
            limits = _altered(entity, entries.get(entity, {}), ops)
        except QuotaApiError as error:
            results[key] = Result(parts, error.code, error.message)
            continue
        results[key] = Result(parts, ErrorCode.NONE, None)
        ends_shadow = not shadow.get(entity, frozenset()).isdisjoint(alteration.keys_set)
        if anew or ends_shadow or limits != entries.get(entity, {}):
            outcome.changes[entity] = limits
            outcome.asked[entity] = alteration
    outcome.results.extend(results.values())
    return outcome


def entities_of(alterations: Iterable[Alteration]) -> Iterator[QuotaEntity]:
    """Whom they are for, as limits name them, without those that nobody can be."""
    for alteration in alterations:
        with suppress(QuotaApiError):
            yield _checked_entity(alteration.parts)


def _duplicate(parts: Parts) -> QuotaApiError:
    return QuotaApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_java_text(parts)}")


def _key_of(parts: Parts) -> frozenset[tuple[str, str | None]]:
    """The same for the same entity, in whatever order it is named."""
    return frozenset(dict(parts).items())


def _checked_entity(parts: Parts) -> QuotaEntity:
    """Raises QuotaApiError for an entity for which no limit can be set."""
    if not parts:
        raise QuotaApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for entity_type, name in parts:
        if entity_type not in _TYPES:
            raise QuotaApiError(
                ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {entity_type}"
            )
        if name is not None and not name:
            raise QuotaApiError(ErrorCode.INVALID_REQUEST, f"Empty {entity_type} not supported")
    names = dict(parts)
    if IP in names:
        if len(names) > 1:
            raise QuotaApiError(
                ErrorCode.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
            )
        address = names[IP]
        if address is not None:
            try:
                return QuotaEntity(ip=usual_address(address))
            except ValueError:
                raise QuotaApiError(
                    ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host."
                ) from None
    return entity_of(parts)


def _altered(
    entity: QuotaEntity, limits: Mapping[str, float], ops: Mapping[str, float | None]
) -> dict[str, float]:
    """The limits after `ops`. Raises QuotaApiError, with the broker's text, for one that cannot be."""
    altered = dict(limits)
    for key, value in ops.items():
        if value is None:
            altered.pop(key, None)
        else:
            altered[key] = checked_limit(entity, key, value)
    return altered


def checked_limit(entity: QuotaEntity, key: str, value: float) -> float:
    """The limit that a value of an AlterClientQuotas means. Raises QuotaApiError with the broker's text."""
    kind = KIND_BY_KEY.get(key)
    spec = None if kind is None else KINDS[kind]
    reason = None if spec is None else why_not_for(spec, entity)
    if spec is None or reason is not None:
        # Of a key that Kafka does not have either, more can be said than Kafka says.
        more = f": {key} {reason}" if spec is not None and spec.scope is Scope.USERS else ""
        raise QuotaApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}{more}")
    try:
        return spec.validated(key, _whole(spec, value))
    except ValueError as error:
        raise QuotaApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _whole(spec: KindSpec, value: float) -> float:
    """Java's clients can only send a double: what is a whole number but for its last digits is meant so."""
    if spec.validated not in _WHOLE or not math.isfinite(value) or value < 1.0:
        return value
    if value == _LONG_MAX + 1:  # Long.MAX_VALUE as a double
        return _LONG_MAX
    return int(value) if value % 1.0 <= _WHOLE_WITHIN else value


def _java_text(parts: Parts) -> str:
    """As ClientQuotaEntity prints itself."""
    inner = ", ".join(f"{entity_type}={'null' if name is None else name}" for entity_type, name in parts)
    return f"ClientQuotaEntity(entries={{{inner}}})"
