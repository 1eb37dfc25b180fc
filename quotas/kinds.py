"""What can be limited, one row a kind: manager, limits, metrics, docs and the quota file iterate over KINDS.

To add a kind: a member of QuotaKind and its row in KINDS; nothing else in quotas/ changes. (Producer ids are
not charged by a sensor but admitted by a door of their own: producer_ids/quota.py.)
Keys, value types and error texts are Kafka's: QuotaConfig, ClientQuotaControlManager.validateQuotaKeyValue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from sluice.quotas.numbers import as_yaml

WHOLE_FROM: Final = 100.0
"""of a limit that is worked out: from here on a fraction is noise, also where it is allowed"""
_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1


class QuotaKind(Enum):
    """What a limit limits. The value is the metric label `quota`."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"
    CONTROLLER_MUTATION = "controller_mutation"
    PRODUCER_IDS = "producer_ids"
    CONNECTION_CREATION = "connection_creation"

    # Enum's own hash is a Python call (70 ns in each look-up); members are singletons, so identity serves.
    __hash__ = object.__hash__


class Scope(Enum):
    """Whose limit a kind can be."""

    USERS_AND_CLIENTS = "users, client ids, or both"
    USERS = "users"
    """a limit for a client id would be none: clients choose their ids"""
    IPS = "addresses"


def whole_number(key: str, value: object) -> int:
    """The rule of Kafka's LONG: whole, > 0, < 2⁶³. 1e6 is whole; a bool, a string and NaN are no numbers.

    Raises ValueError with Kafka's text.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"Quota {key} must be a whole number, not {as_yaml(value)}")
    if value <= 0:
        raise ValueError(f"Quota {key} must be greater than 0")
    if value > _LONG_MAX:
        raise ValueError(f"Proposed value for {key} is too large for a LONG.")
    if value != int(value):
        raise ValueError(f"{key} cannot be a fractional value.")
    return int(value)


def whole_int(key: str, value: object) -> int:
    """As `whole_number`, of Kafka's INT: < 2³¹."""
    whole = whole_number(key, value)
    if whole > _INT_MAX:
        raise ValueError(f"Proposed value for {key} is too large for an INT.")
    return whole


def positive_number(key: str, value: object) -> float:
    """A number > 0, also a fraction. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"Quota {key} must be a number, not {as_yaml(value)}")
    if value <= 0:
        raise ValueError(f"Quota {key} must be greater than 0")
    return float(value)


@dataclass(frozen=True, slots=True)
class KindSpec:
    """All that the rest of Sluice needs to know of a kind."""

    kind: QuotaKind
    config_key: str
    """the name in quota files and in Kafka's API"""
    kafka_type: str
    """Kafka's QuotaType as its metric groups print it"""
    amount_unit: str
    """what charge() counts"""
    limit_unit: str
    """what the configured number is a number of"""
    limit_span_s: float
    """the configured number is of units per this many seconds"""
    validated: Callable[[str, object], float]
    """(config_key, value) → the limit; raises ValueError with Kafka's text"""
    effect: str
    """one sentence for the docs: what is limited"""
    log_units: tuple[str, str]
    """of a limit and of a charge, as keys of log lines end"""
    scope: Scope = Scope.USERS_AND_CLIENTS

    def rate_per_s(self, limit: float) -> float:
        """The limit in units per second."""
        return limit / self.limit_span_s

    @property
    def is_whole(self) -> bool:
        """Whether its limits are whole numbers alone."""
        try:
            self.validated(self.config_key, 0.5)
        except ValueError:
            return True
        return False


_ROWS: Final = (
    KindSpec(
        kind=QuotaKind.PRODUCE,
        config_key="producer_byte_rate",
        kafka_type="Produce",
        amount_unit="bytes",
        limit_unit="bytes per second",
        limit_span_s=1.0,
        validated=whole_number,
        effect="Bytes of Produce requests.",
        log_units=("bytes_per_s", "bytes"),
    ),
    KindSpec(
        kind=QuotaKind.FETCH,
        config_key="consumer_byte_rate",
        kafka_type="Fetch",
        amount_unit="bytes",
        limit_unit="bytes per second",
        limit_span_s=1.0,
        validated=whole_number,
        effect="Bytes of Fetch and ShareFetch answers.",
        log_units=("bytes_per_s", "bytes"),
    ),
    KindSpec(
        kind=QuotaKind.REQUEST,
        config_key="request_percentage",
        kafka_type="Request",
        amount_unit="ms of broker threads",
        limit_unit="percent of one broker thread",
        limit_span_s=0.1,  # n % of a thread are n ms in 100 ms
        validated=positive_number,
        effect="Time of the broker's network and I/O threads, by a cost model (KIP-124).",
        log_units=("percent", "ms"),
    ),
    KindSpec(
        kind=QuotaKind.CONTROLLER_MUTATION,
        config_key="controller_mutation_rate",
        kafka_type="ControllerMutation",
        amount_unit="partitions",
        limit_unit="partitions created or deleted per second",
        limit_span_s=1.0,
        validated=positive_number,
        effect="Partitions that CreateTopics, CreatePartitions and DeleteTopics create and delete (KIP-599).",
        log_units=("partitions_per_s", "partitions"),
    ),
    KindSpec(
        kind=QuotaKind.PRODUCER_IDS,
        config_key="producer_ids_rate",
        kafka_type="ProducerIds",
        amount_unit="new producer ids",
        limit_unit="new producer ids per hour",
        limit_span_s=3600.0,
        validated=positive_number,
        effect="New producer ids that a user's clients may bring to the broker (KIP-936).",
        log_units=("per_hour", "ids"),
        scope=Scope.USERS,
    ),
    KindSpec(
        kind=QuotaKind.CONNECTION_CREATION,
        config_key="connection_creation_rate",
        kafka_type="ConnectionCreation",
        amount_unit="connections",
        limit_unit="new connections per second",
        limit_span_s=1.0,
        validated=whole_int,
        effect="New connections from one address (KIP-612).",
        log_units=("per_s", "connections"),
        scope=Scope.IPS,
    ),
)
KINDS: Final[Mapping[QuotaKind, KindSpec]] = MappingProxyType({row.kind: row for row in _ROWS})
BYTE_KINDS: Final = tuple(row.kind for row in _ROWS if row.amount_unit == "bytes")
CLIENT_KINDS: Final = tuple(row for row in _ROWS if row.scope is not Scope.IPS)
"""those that are looked up by user and client id"""
KIND_BY_KEY: Final[Mapping[str, QuotaKind]] = MappingProxyType({row.config_key: row.kind for row in _ROWS})
