"""The access log's two tables, column by column: the one place that says what is written and what it means.

`rollup` has a row for each 10-second window and (proxy, broker, user, client id, API class, topic) that did
anything: exact; quotas are recalibrated from it. (Connections are counted by address, in rows of the class
`connection` without user, client id and broker: they come before any is known.) Each window of a proxy has a
row of class `heartbeat` besides, all zero: its rows were written, if there were any. `requests` has rows of
single requests: those that were throttled, refused, slow, failed or brought a producer id, and a sample of
the others with its weight. Both lie in `TABLE/date=YYYY-MM-DD/hour=HH/` (UTC, of the window's begin). Times
are Unix times in ms.

A version is only ever added to: a column is appended, with the default that older rows mean. A reader takes
what it knows by name, fills in what an older file lacks, and leaves what a newer one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

SCHEMA_VERSION: Final = 1
"""in each file's metadata, under VERSION_KEY"""
VERSION_KEY: Final = "sluice_schema_version"
WINDOW_MS: Final = 10_000
HEARTBEAT_CLASS: Final = "heartbeat"
HEARTBEAT_END_CLASS: Final = "heartbeat_end"
"""of the last one of a proxy that ended in order: what comes after it is no hole in the log"""
HEARTBEAT_CLASSES: Final = (HEARTBEAT_CLASS, HEARTBEAT_END_CLASS)
NAMELESS: Final = "?"
"""the proxy of rows that tell none; not "", by which the job means all proxies together"""
FILE_PART: Final = "file_part"
FILE_PARTS: Final = "file_parts"
"""columns of heartbeats: each part of a file that was cut has those of all, so that none is lost unnoticed"""
ROLLUP: Final = "rollup"
REQUESTS: Final = "requests"

STEPS_PER_MS: Final = {
    "upstream_ms": 64.0,
    "request_cost_ms": 1024.0,
    "held_ms": 1024.0,
    "throttle_ms": 1024.0,
    "request_throttle_ms": 1024.0,
}
"""to which rows round their times: the other bits are noise that no compression gets rid of; powers of two,
so that few bits of the fraction are in use"""

Value: TypeAlias = str | int | float | None
Columns: TypeAlias = Sequence[Sequence[Value]]
"""rows of a table, column by column; numbers may be packed in an array"""


class ColumnType(Enum):
    """As Parquet and Spark have them."""

    TEXT = "string"
    INT = "int"
    LONG = "bigint"
    DOUBLE = "double"


MOST: Final = {ColumnType.INT: 10**8, ColumnType.LONG: 10**14, ColumnType.DOUBLE: 1e11}
"""of what was used or how long it took, in a row that is written, in its column's unit; the least is 0. It is
a tenth at most of what the job takes for damage (recalibration/log/reason.py): a client may ask for 10¹²
partitions, or a thousand answers after 24 days, and would have the rows of all thrown away with its own"""
CODES: Final = {ColumnType.INT: "i", ColumnType.LONG: "q", ColumnType.DOUBLE: "d"}
"""of `struct` and `array`, for numbers that are packed"""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: ColumnType
    meaning: str
    """with its unit, for the docs"""
    default: Value = None
    """what a row of an older version means; None: null"""
    may_be_null: bool = False
    """in a row that is written; where none may, a file is encoded in a fifth less time"""


_T, _I, _L, _D = ColumnType.TEXT, ColumnType.INT, ColumnType.LONG, ColumnType.DOUBLE

_WHO: Final = (
    Column("proxy", _T, "which proxy wrote it: its instance name", NAMELESS),
    Column("broker", _T, "the broker behind the connection: its node id where it is known, else host:port"),
    Column("user", _T, "the principal's name, without its type", ""),
    Column("client_id", _T, 'as the client sent it, its first 256 characters; "" for a null one', ""),
)
LIMIT_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "producer_ids_rate",
)
_LIMITS: Final = tuple(
    Column(
        key,
        _D,
        f"{key} in force for user and client id at the end of the window, in the quota file's unit; null: "
        "unlimited, or in shadow mode",
        may_be_null=True,
    )
    for key in LIMIT_KEYS
)

ROLLUP_COLUMNS: Final = (
    Column("window_start_ms", _L, "begin of the window, a multiple of 10,000"),
    *_WHO,
    Column("address", _T, 'the client\'s, of rows of class connection alone; "" in all others'),
    Column(
        "api_class",
        _T,
        "produce, fetch, group, metadata, admin, login, other, connection, heartbeat or heartbeat_end; other "
        "without a user: what had no room for a row of its own",
    ),
    Column(
        "topic",
        _T,
        'of produce and fetch: its name, or its id while no answer to Metadata has told the name; "" where a '
        "request names several or none (a Fetch of a session: where the session has)",
    ),
    Column("requests", _L, "finished in this window"),
    Column(
        "request_bytes",
        _L,
        "bytes on the wire, sizes included; of a Produce that a quota refused 0, for it did not go on",
    ),
    Column("response_bytes", _L, "bytes on the wire, sizes included"),
    Column(
        "upstream_ms",
        _D,
        "ms between a request's last byte to the broker and its answer's first, summed; to 1/64 ms",
    ),
    Column(
        "request_cost_ms",
        _D,
        "ms of broker threads by the cost model, summed; a Produce as one batch of one record; to 1/1024 ms",
        0.0,
    ),
    Column("held_ms", _D, "ms that requests were kept before they were forwarded, summed; to 1/1024 ms"),
    Column(
        "throttle_ms",
        _D,
        "ms that requests' byte rates (mutations; of a refused Produce: producer ids) asked connections to "
        "wait in all, summed; to 1/1024 ms",
    ),
    Column("connections", _I, "that finished a request in this window"),
    Column("connections_opened", _I, "accepted in this window"),
    Column("holds", _I, "requests held: for a byte rate, mutations or producer ids"),
    Column("mutes", _I, "connections muted"),
    Column("refusals", _I, "requests answered by the proxy because of a quota"),
    Column("shadows", _I, "requests that a limit in shadow mode would have delayed"),
    Column("failures", _I, "connections that ended for another cause than the client's orderly leave"),
    Column(
        "mutations",
        _D,
        "partitions created or deleted (KIP-599), of users with a limit on them, as the broker answered",
    ),
    Column("producer_ids_new", _I, "producer ids admitted for the first time"),
    Column("producer_ids_refused", _I, "requests refused because of their producer ids"),
    Column("producer_ids_forced", _I, "producer ids admitted after their patience"),
    Column("producer_ids_resumed", _I, "producer ids that were alive before this process saw them"),
    Column(
        "peak_bytes_1s",
        _L,
        "bytes, requests and answers, in the busiest second that the bucket of the row's byte rate had in "
        "the window at this proxy (producer_byte_rate of class produce, consumer_byte_rate of class fetch; "
        "the first of seconds alike): the sum over the rows of a bucket is what it had in that second; of a "
        "refused Produce the answer alone. "
        "Without such a limit: in the row's own busiest second",
    ),
    *_LIMITS,
    Column("request_mutes", _I, "those of `mutes` that were for request_percentage"),
    Column(
        "request_throttle_ms",
        _D,
        "ms for which request_percentage muted connections, summed; not in throttle_ms; to 1/1024 ms",
    ),
    Column("producer_id_holds", _I, "those of `holds` that were for producer ids"),
    Column(
        FILE_PART,
        _I,
        "of a heartbeat of a file that was cut into several: which of them this is, from 1 on; else 0",
        0,
    ),
    Column(
        FILE_PARTS,
        _I,
        "of a heartbeat of a file that was cut into several: how many these are; else 0",
        0,
    ),
)

REQUEST_COLUMNS: Final = (
    Column(
        "finished_ms",
        _L,
        "when the answer's first byte came, an acks=0 request was forwarded, or the connection of a failed "
        "one ended",
    ),
    *_WHO,
    Column("address", _T, "the client's"),
    Column("api_key", _I, "Kafka's"),
    Column("api_version", _I, "Kafka's"),
    Column("topic", _T, "as in the roll-up"),
    Column("request_bytes", _L, "bytes on the wire, size included"),
    Column("response_bytes", _L, "bytes on the wire, size included; 0: acks=0"),
    Column("upstream_ms", _D, "ms; to 1/64"),
    Column("held_ms", _D, "ms; to 1/1024"),
    Column("throttle_ms", _D, "ms; to 1/1024"),
    Column("rule", _T, 'level of the limit that was charged: user_client, …; "" if none'),
    Column(
        "why",
        _T,
        "why this row: throttled, refused, slow, producer_id, failed (its answer never came) or sample",
    ),
    Column("weight", _D, "how many requests it stands for: 1, of a sample 1 ÷ its share"),
)


def heartbeat(start_unix_ms: int, proxy: str, *, is_last: bool) -> Columns:
    """A roll-up row which says that all rows of a window have been handed over."""
    told: dict[str, Value] = {
        "window_start_ms": start_unix_ms,
        "proxy": proxy,
        "api_class": HEARTBEAT_END_CLASS if is_last else HEARTBEAT_CLASS,
    }
    nothing: dict[ColumnType, Value] = {_T: "", _I: 0, _L: 0, _D: 0.0}
    return [
        (told.get(column.name, None if column.may_be_null else nothing[column.type]),)
        for column in ROLLUP_COLUMNS
    ]


TABLES: Final = {ROLLUP: ROLLUP_COLUMNS, REQUESTS: REQUEST_COLUMNS}
