"""What the status API answers and what it may be asked: types from which docs/status-api.json is made. Pure.

Names are as clients and the quota file give them, but cut (quotas/names.py); who shows them must escape
them. Times are UTC, ISO 8601. A page of a list begins at `offset`; of `matching` ones the first `listed` can
be paged through.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sluice.quotas.kinds import KIND_BY_KEY, QuotaKind

MAX_LISTED: Final = 1_000
"""rows of a list that can be paged through: the most throttled, or the newest"""
MAX_LIMIT: Final = 100
"""rows of one answer"""
DEFAULT_LIMIT: Final = 50
MAX_SEARCH: Final = 200


class Model(BaseModel):
    """What all answers have in common: they are frozen, and have no other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="null")


class Order(StrEnum):
    """By what principals are sorted."""

    THROTTLE = "throttle"
    """what is owed, then how near to the limit"""
    DELAYED = "delayed"
    """how much of the last minute it was delayed"""
    UTILISATION = "utilisation"
    USED = "used"
    LIMIT = "limit"
    CONNECTIONS = "connections"
    WHO = "who"
    QUOTA = "quota"
    RULE = "rule"


class Direction(StrEnum):
    """Which way a list is sorted."""

    ASC = "asc"
    DESC = "desc"


class Query(BaseModel):
    """What may stand behind the `?` of every list; anything else is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    offset: Annotated[int, Field(ge=0, le=MAX_LISTED, description="The first row that is told.")] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Rows that are told at most.")] = (
        DEFAULT_LIMIT
    )
    search: Annotated[
        str, Field(max_length=MAX_SEARCH, description="Part of a name, upper and lower case alike.")
    ] = ""


class ConnectionsQuery(Query):
    """What may be asked about connections."""

    throttled: Annotated[bool, Field(description="Only those that sit out a delay.")] = False


def _kind_named(name: object) -> object:
    """The kind of a limit's key in the quota file; any other name as it is."""
    return KIND_BY_KEY.get(name, name) if isinstance(name, str) else name


class PrincipalsQuery(Query):
    """What may be asked about principals."""

    search: Annotated[
        str,
        Field(
            max_length=MAX_SEARCH,
            description="Part of a name, upper and lower case alike: of the bucket (user, client id, tenant, "
            "address), or of a user that is a member of its tenant or whose connections charge it.",
        ),
    ] = ""

    throttled: Annotated[bool, Field(description="Only those that owe, shadow mode not counted.")] = False
    quota: Annotated[
        QuotaKind | None,
        BeforeValidator(_kind_named),
        Field(
            description="Only limits of this kind: the kind as rows tell it (`produce`), or its key in the "
            "quota file (`producer_byte_rate`)."
        ),
    ] = None
    sort: Annotated[Order, Field(description="By what the listed ones are sorted.")] = Order.THROTTLE
    order: Annotated[Direction, Field(description="Of the sort.")] = Direction.DESC
    history: Annotated[bool, Field(description="With the points of the curves.")] = False


class PageQuery(PrincipalsQuery):
    """What may stand behind the `?` of the page."""

    connections_offset: Annotated[int, Field(ge=0, le=MAX_LISTED)] = 0
    bucket: Annotated[str, Field(pattern="^([0-9a-f]{16})?$")] = ""
    """whose reasons are shown"""


class Nothing(BaseModel):
    """What is asked for without `?`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Summary(Model):
    """The proxy as a whole."""

    version: str
    at: str
    uptime_s: float
    ready: bool
    not_ready: list[str] = Field(description="Why no client should be sent here; empty: ready.")
    not_in_force: list[str] = Field(
        description="Files whose newest content could not be used, and why; what was in force goes on."
    )
    pacing: str = Field(description="`smooth` or `kafka`.")
    buckets: int = Field(description="Quota buckets in all: connections that share one limit of one kind.")
    active_buckets: int = Field(description="Of them used in the last minute.")
    throttled_buckets: int = Field(description="Of them in debt, shadow mode not counted.")
    delayed_buckets_1m: int = Field(description="Of them with a request delayed in the last minute.")
    connections: int
    throttled_connections: int
    interval_s: float = Field(description="Between two points of a curve.")
    age_ms: float = Field(description="How old these figures are.")
    work_ms: float = Field(description="What it took to gather them, in steps.")


class History(Model):
    """The last points of a bucket, the newest last; null where nothing was seen."""

    interval_s: float
    utilisation: list[float | None] = Field(description="Mean rate over 10 to 20 s, divided by the limit.")
    delay_ms: list[float | None]


class Principal(Model):
    """One quota bucket: whom a limit of one kind is for."""

    id: str = Field(description="Of this bucket and kind, the same as long as the names are.")
    who: str = Field(description="The bucket in words; what is not printable in names is escaped.")
    bucket: dict[str, str] = Field(description="Its names, by the keys of the quota file.")
    quota: str
    key: str = Field(description="The limit's key in the quota file and in Kafka's API.")
    unit: str = Field(description="Of `limit` and `used`.")
    rule: str = Field(description="The level at which the limit was found.")
    limit: float
    shadow: bool = Field(description="Measured, but nobody is delayed.")
    used: float = Field(
        description="Mean rate over the last 10 to 20 s; of producer ids, how many of the burst are gone."
    )
    utilisation: float = Field(
        description="`used` divided by `limit`; of producer ids, what is gone of the burst."
    )
    tokens: float = Field(description="What may pass at once; negative: owed.")
    delay_ms: float = Field(description="Until what is owed is paid.")
    delayed_share_1m: float = Field(
        description="Of the last minute, 0 to 1: one of its connections was delayed."
    )
    delayed_s_1m: float = Field(
        description="Delay that began in the last minute, all its connections together."
    )
    waiting: int = Field(description="Requests that wait for the turn of their producer ids.")
    connections: int
    throttled_connections: int
    history: History | None = None


class Listing(Model):
    """A page of a list."""

    at: str
    age_ms: float = Field(description="How old the list is.")
    work_ms: float = Field(description="What it took to make it, in steps.")
    offset: int
    limit: int
    matching: int = Field(description="All that fit the question.")
    listed: int = Field(description="Of them so many can be paged through.")


class Principals(Listing):
    """A page of principals."""

    rows: list[Principal]


class ConnectionInfo(Model):
    """One client connection, as it is now."""

    peer: str = Field(description="The client's address and port.")
    user: str
    client_id: str
    state: str = Field(description="reading, muted, holding, awaiting_broker, ending")
    throttled_by: str = Field(description="The kind whose delay it sits out; empty: none.")
    for_ms: float = Field(description="How much longer.")
    in_flight: int = Field(description="Requests that the broker has not answered.")
    requests: int = Field(description="So far.")


class PrincipalDetail(Principal):
    """One bucket, with its reasons."""

    charged: float = Field(description="Units since the bucket began, less what is held or was given back.")
    forgiven: float = Field(description="Units of debt beyond pacing.max_debt_s.")
    why: list[str] = Field(description="The level that applies and the arithmetic, in sentences.")
    shown: list[ConnectionInfo] = Field(
        description="Its connections, the longest throttled first; at most 20."
    )


class Connections(Listing):
    """A page of connections: the longest throttled first, then those with most in flight."""

    rows: list[ConnectionInfo]


class ProducerIdsOf(Model):
    """A principal's producer ids."""

    user: str
    rule: str
    limit: float = Field(description="New ids per hour.")
    shadow: bool = Field(description="Counted, but nobody waits.")
    known: int = Field(description="Ids that are remembered: they pass freely.")
    new: int | None = Field(description="Ids admitted within `new_span_s`; null: not followed.")
    new_span_s: float = Field(description="At most an hour.")
    tokens: float = Field(description="Ids that may come at once, less the requests that wait.")
    waiting: int = Field(description="Requests that wait for their turn.")
    delay_ms: float = Field(description="Until as many ids may come as requests wait.")
    pairs: int = Field(description="Pairs of id and partition that the broker keeps.")
    forced: int = Field(description="Admitted after a long wait, from the bucket for that.")


class ProducerIdsList(Listing):
    """A page of principals with producer ids: those with most waiting requests first, then most new ids."""

    rows: list[ProducerIdsOf]


class Event(Model):
    """An episode of throttling of one bucket, as the log tells of it."""

    quota: str
    rule: str
    who: str
    bucket: dict[str, str]
    shadow: bool
    active: bool = Field(description="Something of it was delayed in the last 5 s.")
    began: str
    lasted_s: float
    delays: int
    delayed_s: float = Field(description="Of all connections together.")
    refused: int = Field(description="Requests refused for their producer ids.")
    client_id: str = Field(description="Of its first request; of producer ids, who brings most.")
    address: str = Field(description="Likewise, of producer ids only.")
    why: str = Field(description="What its first request did, and what for.")


class Events(Listing):
    """A page of episodes, the latest first."""

    rows: list[Event]


class FollowerInfo(Model):
    """A follower of this broker, by what its fetches tell."""

    follower: int = Field(description="Its broker id.")
    limit: float | None = Field(description="Bytes per second that it may have here; null: no limit.")
    rate: float = Field(description="Of what is throttled, bytes per second.")
    passed_bytes: int = Field(description="Throttled bytes that went to it so far.")
    waiting: int = Field(description="Throttled partitions that it is behind on.")
    lag_records: int
    left_bytes: int | None = Field(description="Null: nothing has come yet to tell it by.")
    ends_in_s: float | None = Field(description="Null: unknown, or more comes in than may go.")


class ReplicaInfo(Model):
    """A throttled partition that a follower is behind on."""

    topic: str
    partition: int
    follower: int
    offset: int = Field(description="What the follower asked for last.")
    high_watermark: int
    lag_records: int
    passed_bytes: int = Field(description="So far.")
    left_bytes: int | None = Field(description="Null: nothing has come yet to tell it by.")
    inflow: float = Field(description="Bytes per second that producers add meanwhile.")
    ends_in_s: float | None = Field(description="Null: unknown, or more comes in than may go.")


class ReplicationInfo(Listing):
    """Followers that catch up with this broker, and a page of what they are behind on: most left first."""

    leader: int | None = Field(description="This broker's id; null: no listener has followers.")
    throttle: float | None = Field(description="`leader.replication.throttled.rate`; null: no limit.")
    rate: float = Field(description="Of what is throttled, bytes per second.")
    move_ratio: float | None = Field(description="Partitions that are being moved, of all.")
    followers: list[FollowerInfo]
    rows: list[ReplicaInfo]


class PlanChange(Model):
    """A limit that the plan would change."""

    key: str
    who: str
    current: float
    proposed: float
    unit: str
    reason: str
    needs_review: bool
    confidence: float | None


class Plan(Model):
    """The recalibration job's last plan."""

    state: Literal["none", "shown", "unusable"] = Field(
        description="none: no folder is configured, or no plan is there."
    )
    problem: str = Field(default="", description="Why it cannot be shown.")
    name: str = Field(default="", description="Of its folder, or file.")
    date: str = ""
    entities: int = 0
    changes: int = 0
    reviews: int = 0
    log_files: int = 0
    damaged_files: int = 0
    rows: list[PlanChange] = Field(
        default_factory=list,
        description="Made-up names last; to be reviewed first, then the largest; at most 100.",
    )


class Problem(Model):
    """Why there is no answer."""

    status: int
    title: str
    detail: str
