"""The rows of one date → what each entity used in each window, per kind and proxy.

    rows → (joined) which entities each row counts against → (summed) one row per entity, proxy and window

Only DataFrame and SQL functions; the rules by which an entity is found are the proxy's own (QuotaLimits),
asked once for each pair of user and client id that occurs, and joined as numbers, by a hash of its texts. A
row counts for up to six kinds, but for one alone of those that look at different API classes; these share a
lane, and each lane is looked at once for a row. Hence the cost of a row does not depend on how many clients
or entities there are, and a hot one is folded where it is read, before anything is sent to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sluice.quotas.entity_key import key_of_address, key_of_client
from sluice.quotas.kinds import KINDS, QuotaKind, Scope
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.reason import BeyondReasonError, within_sql
from sluice.recalibration.policy.holes import Beats
from sluice.recalibration.spark.local_frame import DOUBLE, INT, LONG, TEXT, local_frame
from sluice.recalibration.state.measures import CONNECTION_CLASS, MEASURES, Measure
from sluice.recalibration.state.scheduled import left_out
from sluice.usage.access_record import NAMELESS, ROLLUP, WINDOW_MS

INFLATION_MAX: Final = 10.0
"""a window that was throttled nearly throughout says that more was wanted, not ten thousand times more"""
SCHEMA: Final = "entity_id BIGINT, proxy STRING, window BIGINT, rate DOUBLE, offered DOUBLE, busiest DOUBLE"
_RATE: Final = "amount / (span_ms / 1000D)"
_CLIENT: Final = ("user", "client_id", "address")
_HASH: Final = f"XXHASH64({', '.join(_CLIENT)})"
_Client = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Windows:
    """What was used on a date."""

    rows: DataFrame
    """the columns of SCHEMA; those of one entity come in one partition"""
    names: DataFrame
    """entity_id, kind, entity"""


def entity_id(kind: QuotaKind, entity: str) -> int:
    """Stands for a kind and an entity in windows of all dates, which are many, and shorter so.

    64 bits of a good hash: two of 100,000 entities are alike in one of 3·10⁹ clusters, and would be one.
    """
    digest = blake2b(f"{kind.value}\n{entity}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def windows_of(
    rows: DataFrame,
    limits: QuotaLimits,
    day: date,
    burst_s: float = 1.0,
    beating: Mapping[str, Beats] = MappingProxyType({}),
) -> Windows:
    """`rows` has the columns of the roll-up, and is of `day` (UTC). `beating`: proxy → its heartbeats; of a
    window that it has had several times counts the mean.

    What lies in a declared calendar is not among them (scheduled.py), nor what an exempt rule of user and
    client id lets through.

    `window`: the window's begin ÷ the kind's span (measures.py). `rate`: what passed in it, > 0, in the
    kind's units a second. `offered`: of a throttled window the throttle-inflated rate, else null.
    `busiest`: the least limit that lets the busiest second pass at once: its units ÷ (1 s + `burst_s`).
    Raises BeyondReasonError.
    """
    spark = rows.sparkSession
    clients = _clients_of(rows)
    numbers: dict[tuple[QuotaKind, str], int] = {}
    charged = _charged(rows, list(_numbered(clients, limits, numbers)), clients)
    names = _named(spark, numbers)
    declared = list(_declared(clients, limits, numbers, day)) if limits.schedules else []
    limited = {kind for kind, _ in numbers}
    used = (
        _by_kind(charged, [kind for kind in MEASURES if kind in limited] or list(MEASURES))
        .groupBy("number", "proxy", "window")
        .agg(
            f.sum("amount").alias("amount"),
            f.max("throttled").alias("throttled"),
            # Whole microseconds: the sum of floats depends on their order, and so on who has read which file.
            # By FLOOR: Spark's ROUND goes by way of a decimal's text, for each row.
            f.expr("SUM(FLOOR(throttle_ms * 1000D + 0.5D)) / 1000D AS throttle_ms"),
            f.sum("connections").alias("connections"),
            f.sum("busiest").alias("busiest"),
        )
        .where("amount > 0")
    )
    if declared:
        windows = local_frame(spark, {"of": INT, "first": LONG, "last": LONG}, declared)
        within = f.expr("number = of AND window BETWEEN first AND last")
        used = used.join(f.broadcast(windows), within, "left_anti")
    ids = names.select("number", "entity_id", "span_ms")
    told = (
        _mean(used, beating)
        .join(f.broadcast(ids), "number")
        .selectExpr(
            "entity_id",
            f"IF(proxy = '', '{NAMELESS}', proxy) AS proxy",  # "" is all of them together (plan.POOLED)
            "window",
            f"{_RATE} AS rate",
            f"IF(throttled, {_offered()}, NULL) AS offered",
            f"busiest / {1.0 + burst_s!r}D AS busiest",
        )
    )
    return Windows(told.repartition("entity_id"), names.select("entity_id", "kind", "entity"))


def _clients_of(rows: DataFrame) -> dict[_Client, int]:
    """All clients that there are → their hashes. Raises BeyondReasonError."""
    # In this reading of all rows, for what comes next takes each number for what it is. A Boolean: with a
    # text in it Spark would sort all rows.
    is_within = f.min(f.expr(within_sql(ROLLUP))).alias("is_within")
    found = rows.groupBy(*_CLIENT).agg(is_within).selectExpr(*_CLIENT, _HASH, "is_within").collect()
    if any(within is False for *_, within in found):
        raise BeyondReasonError("a number in the log is beyond all reason")
    return {(user, client_id, address): hashed for user, client_id, address, hashed, _ in found}


def _named(spark: SparkSession, numbers: Mapping[tuple[QuotaKind, str], int]) -> DataFrame:
    """(number, entity_id, kind, entity, span_ms) of each."""
    return local_frame(
        spark,
        {"number": INT, "entity_id": LONG, "kind": TEXT, "entity": TEXT, "span_ms": DOUBLE},
        [
            (number, entity_id(kind, entity), kind.value, entity, float(MEASURES[kind].window_ms))
            for (kind, entity), number in numbers.items()
        ],
    )


def _mean(used: DataFrame, beating: Mapping[str, Beats]) -> DataFrame:
    """With no more of a window that there was several times than of one."""
    repeated = _repeated(beating)
    if not repeated:
        return used
    columns = {"proxy": TEXT, "window": LONG, "times": DOUBLE}
    times = f.broadcast(local_frame(used.sparkSession, columns, repeated))
    means = {name: f.expr(f"{name} / COALESCE(times, 1D)") for name in ("amount", "busiest")}
    return used.join(times, ["proxy", "window"], "left").withColumns(means)


def _repeated(beating: Mapping[str, Beats]) -> list[tuple[str, int, float]]:
    """(proxy, window, how many times its length it had) of windows of any measure with more than one."""
    spans_ms = {measure.window_ms for measure in MEASURES.values()}
    found: dict[tuple[str, int], float] = {}
    for proxy, beats in beating.items():
        for first, last, times in beats.repeated:
            for window in range(first, last + 1):
                for span_ms in spans_ms:  # numbers of 10 s are far above those of hours (store.py)
                    place = proxy, window * WINDOW_MS // span_ms
                    found[place] = found.get(place, 1.0) + (times - 1) * WINDOW_MS / span_ms
    return [(*place, times) for place, times in found.items()]


_Keys = tuple[_Client, list[int | None]]


def _charged(rows: DataFrame, keys: Sequence[_Keys], hashes: Mapping[_Client, int]) -> DataFrame:
    """The rows of clients with a limit, and the numbers of their entities.

    Joined by the hash of a client, which is quicker to look up than three texts; and by these if two of the
    clients that there are have the same.
    """
    columns = {_key(kind): INT for kind in MEASURES}
    if len(set(hashes.values())) == len(hashes):
        of_hash = local_frame(
            rows.sparkSession,
            {"client": LONG} | columns,
            [(hashes[client], *numbers) for client, numbers in keys],
        )
        return rows.withColumn("client", f.expr(_HASH)).join(f.broadcast(of_hash), "client")
    of_texts = local_frame(
        rows.sparkSession,
        dict.fromkeys(_CLIENT, TEXT) | columns,
        [(*client, *numbers) for client, numbers in keys],
    )
    return rows.join(f.broadcast(of_texts), list(_CLIENT))


def _numbered(
    clients: Iterable[_Client], limits: QuotaLimits, numbers: dict[tuple[QuotaKind, str], int]
) -> Iterator[_Keys]:
    """(client, the number of its entity of each kind, None: no limit); fills `numbers`."""
    for client in clients:
        found: list[int | None] = []
        for kind in MEASURES:
            entity = _entity_of(limits, kind, *client)
            found.append(None if entity is None else numbers.setdefault((kind, entity), len(numbers)))
        if any(number is not None for number in found):
            yield client, found


def _declared(
    clients: Iterable[_Client], limits: QuotaLimits, numbers: Mapping[tuple[QuotaKind, str], int], day: date
) -> Iterator[tuple[int, int, int]]:
    """(number of an entity, first, last window that does not count for it), each once."""
    seen = set()
    for client in clients:
        for kind in MEASURES:
            entity = _entity_of(limits, kind, *client)
            if entity is not None and (kind, entity) not in seen:
                seen.add((kind, entity))
                for first, last in left_out(limits, kind, client, day):
                    yield numbers[kind, entity], first, last


def _entity_of(limits: QuotaLimits, kind: QuotaKind, user: str, client_id: str, address: str) -> str | None:
    # Exempt: no limit holds it back, so it is no evidence for one. Requests are told without an address, and
    # so nothing of rules that name a user or a client id, and an address.
    if limits.exempt.find(user, client_id, address) is not None:
        return None
    if KINDS[kind].scope is Scope.IPS:
        return key_of_address(limits, address) if address else None
    # Without a user: what a full window added up of many, nobody's use; the window is a hole (beats.py).
    return None if address or not user else key_of_client(limits, kind, user, client_id)


def _key(kind: QuotaKind) -> str:
    return f"key_{kind.value}"


def _by_kind(charged: DataFrame, kinds: Iterable[QuotaKind]) -> DataFrame:
    """(number, proxy, window, amount, throttled, throttle_ms, busiest, connections) per row and kind.

    `kinds`: those that somebody has a limit of.
    """
    lanes = _lanes(MEASURES[kind] for kind in kinds)
    columns = ["proxy", "connections"]
    told = ("number", "window", "amount", "throttled", "throttle_ms", "busiest")
    for at, lane in enumerate(lanes):
        suffix = f"_{at}" if len(lanes) > 1 else ""
        columns += [f"{_of(lane, name)} AS {name}{suffix}" for name in told]
    by_kind = charged.selectExpr(*columns)
    if len(lanes) > 1:
        groups = [f"({', '.join(f'{name}_{at}' for name in told)}) AS `{at}`" for at in range(len(lanes))]
        unpivot = "SELECT * EXCEPT (lane) FROM {wide} UNPIVOT INCLUDE NULLS ((%s) FOR lane IN (%s))"
        by_kind = charged.sparkSession.sql(unpivot % (", ".join(told), ", ".join(groups)), wide=by_kind)
    return by_kind.where("number IS NOT NULL AND (amount > 0 OR throttled)")


def _lanes(measures: Iterable[Measure]) -> list[list[Measure]]:
    """In each at most one looks at a row."""
    lanes: list[list[Measure]] = []
    for measure in measures:
        for lane in lanes:
            if measure.api_class is not None and all(
                other.api_class not in {None, measure.api_class} for other in lane
            ):
                lane.append(measure)
                break
        else:
            lanes.append([measure])
    return lanes


def _of(lane: Sequence[Measure], name: str) -> str:
    """What the kind that looks at a row says of it; null: none does."""
    values = [
        {
            "number": _key(measure.kind),
            "window": f"window_start_ms DIV {measure.window_ms}",
            "amount": f"CAST({measure.amount} AS DOUBLE)",
            "busiest": measure.busiest,
            "throttled": f"CAST({measure.throttled} AS BOOLEAN)",
            "throttle_ms": measure.throttle_ms,
        }[name]
        for measure in lane
    ]
    if len(set(values)) == 1 and name != "number":
        return values[0]  # of rows that none looks at, it is left out by its number
    cases = []
    for measure, value in zip(lane, values, strict=True):
        own = f"= '{measure.api_class}'" if measure.api_class else f"<> '{CONNECTION_CLASS}'"
        cases.append(f"WHEN api_class {own} THEN {value}")
    return f"CASE {' '.join(cases)} END"


def _offered() -> str:
    """What passed ÷ the share of the time in which it might pass."""
    share = "throttle_ms / (GREATEST(connections, 1) * span_ms)"
    return f"{_RATE} / GREATEST(1D - {share}, {1.0 / INFLATION_MAX!r}D)"
