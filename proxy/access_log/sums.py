"""A window of the access log's roll-up: its requests' columns → a row for each key, added up by Arrow.

For the encoder's thread. What takes time runs without the interpreter's lock; what needs it (limits of
clients that come for the first time, the fold of a full window) is done in small pieces.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
from pyarrow import compute

from sluice.proxy.access_log.busiest import SECOND_BITS, Seconds, bytes_in_busiest_second
from sluice.proxy.access_log.runs import (
    Pause,
    are_distinct,
    differences,
    ends_of_runs,
    in_order,
    no_pause,
    take,
    totals,
)
from sluice.usage.access_record import LIMIT_KEYS, MOST, ROLLUP_COLUMNS, STEPS_PER_MS, ColumnType
from sluice.usage.flow import Key
from sluice.usage.index import API_CLASS, CLIENT_ID, OTHER, USER, FlowCost, may_have_another, most_of_user
from sluice.usage.rollup import Chunk, Limits, LimitsOf, Window

PIECE: Final = 128
"""places that are looked at at once: some 0.3 ms of the interpreter's lock"""
_UNKNOWN: Final = -1
_OWN: Final = 0
"""for the bucket of a place without a limit of its bytes; those of others begin with 1"""
_MOST_BUCKETS: Final = 1_000
"""that are known, and twice as many as there are places: else those of all who ever came would be kept"""
_DOUBLES: Final = frozenset(column.name for column in ROLLUP_COLUMNS if column.type is ColumnType.DOUBLE)
_MOST: Final = {column.name: MOST[column.type] for column in ROLLUP_COLUMNS if column.type in MOST}
_BYTES: Final = frozenset({"request_bytes", "response_bytes"})
_NO_COST: Final = FlowCost(0.0, 0.0, 0.0)
Find: TypeAlias = Callable[[Sequence[Key]], Iterable[int]]
Others: TypeAlias = Mapping[int, Mapping[str, float]]


@dataclass(slots=True)
class Sums:
    """The rows of a window, in no order."""

    places: pa.Array
    """int32: whose"""
    columns: dict[str, pa.Array]
    """of the roll-up, int64 or double; one that is not there is 0 all over"""
    folded: int
    """connections without a row of their own"""


class ByPlace:
    """A number for each place, found once."""

    def __init__(self) -> None:
        self._numbers = array("i")

    def of(self, places: pa.Array, keys: Sequence[Key], find: Find, pause: Pause) -> pa.Array:
        """int32, one for each of `places`; `find` tells those of keys whose numbers are not known."""
        numbers = self._numbers
        numbers.extend([_UNKNOWN] * (len(keys) - len(numbers)))
        found = int32_array(bytes(numbers)).take(places)
        unknown = places.filter(compute.equal(found, _UNKNOWN))
        if not len(unknown):
            return found
        for begin in range(0, len(unknown), PIECE):
            piece = unknown.slice(begin, PIECE).to_pylist()
            for place, number in zip(piece, find([keys[place] for place in piece]), strict=True):
                numbers[place] = number
            pause()
        return int32_array(bytes(numbers)).take(places)

    def forget(self, places: Iterable[int]) -> None:
        """They may be others' from now on."""
        for place in places:
            if place < len(self._numbers):
                self._numbers[place] = _UNKNOWN

    def clear(self) -> None:
        """Forget the numbers of all places."""
        self._numbers = array("i")


class WindowSums:
    """Sums of one process' windows, one after another; remembers what limits and buckets a place has."""

    def __init__(self) -> None:
        self._limits_of: LimitsOf | None = None
        self._limits: dict[Limits, int] = {}
        self._limits_by_place = ByPlace()
        self._buckets: dict[tuple[str, Hashable], int] = {}
        """by the API class of their limit"""
        self._bucket_by_place = ByPlace()

    def forget(self, places: Iterable[int]) -> None:
        """They may be others' from now on."""
        self._limits_by_place.forget(places)
        self._bucket_by_place.forget(places)

    def sum_up(self, window: Window, pause: Pause = no_pause) -> Sums:
        """Its rows. `pause` is called between pieces of work: Arrow lets go of the interpreter's lock for so
        short a time that who waits for it may find it taken again and again, until 5 ms are over."""
        index = window.index
        others: Others = window.others
        place_of, owner_of, cost_of = map(int32_array, index.columns())
        requests = _requests(window.chunks)
        pause()
        flows, seconds = _by_flow(requests, pause)
        flows["request_cost_ms"] = _costs(flows, cost_of, index.costs)
        pause()
        flow = flows.pop("flow")
        places, owners = place_of.take(flow), owner_of.take(flow)
        if len(places) + len(others) > most_of_user(window.max_keys):  # else nobody has more than his share
            kept = _kept(places, others, index.keys, window.max_keys, pause)
            places, others = kept.take(places), _folded(others, kept, pause)
        self._begin(window)
        buckets = self._buckets_of(window, places, pause)
        flows["peak_bytes_1s"] = bytes_in_busiest_second(seconds, flow, buckets, len(place_of), pause)
        if are_distinct(places, len(index.keys)):  # as nearly always: a connection each
            rows = flows
            rows["connections"] = _same(1, len(places))
        else:
            rows = _by_place(flows, places, owners)
            places = rows.pop("place")
            pause()
        _round(rows)
        folded = compute.sum(rows["connections"].filter(compute.equal(places, OTHER))).as_py() or 0
        if others:
            places = _add_others(rows, places, others, pause)
        _bound(rows)
        rows |= self._limits_in_force(window, places, pause)
        return Sums(places, rows, folded)

    def _begin(self, window: Window) -> None:
        """Forget what is not so any more, or would be too much to keep."""
        limits_of = window.limits_of
        are_too_many = len(self._buckets) > _MOST_BUCKETS + 2 * len(window.index.keys)
        if limits_of is not self._limits_of or are_too_many:
            self._limits_of = limits_of
            self._limits.clear()
            self._buckets.clear()
            self._limits_by_place.clear()
            self._bucket_by_place.clear()

    def _buckets_of(self, window: Window, places: pa.Array, pause: Pause) -> pa.Array:
        """int32, a number for each of `places`: the same for those whose bytes one limit counts, for each of
        the others one of its own."""
        keys, known, bucket_of = window.index.keys, self._buckets, window.limits_of.bucket_of

        def find(keys: Sequence[Key]) -> list[int]:
            return [number_of(bucket_of(key[USER], key[CLIENT_ID], key[API_CLASS]), key) for key in keys]

        def number_of(bucket: Hashable | None, key: Key) -> int:
            return _OWN if bucket is None else known.setdefault((key[API_CLASS], bucket), len(known) + 1)

        numbers = self._bucket_by_place.of(places, keys, find, pause)
        # Those of limits first: they are few mostly, and low numbers are put in order sooner.
        behind = compute.add(places, pa.scalar(len(known) + 1, pa.int32()))
        return compute.if_else(compute.equal(numbers, _OWN), behind, numbers)

    def _limits_in_force(self, window: Window, places: pa.Array, pause: Pause) -> dict[str, pa.Array]:
        known, limits_of = self._limits, window.limits_of

        def find(keys: Sequence[Key]) -> list[int]:
            return [known.setdefault(limits_of(key[USER], key[CLIENT_ID]), len(known)) for key in keys]

        rows = self._limits_by_place.of(places, window.index.keys, find, pause)
        if not known:
            return {}
        columns = zip(*known, strict=True)
        return {
            name: pa.array(column, pa.float64()).take(rows)
            for name, column in zip(LIMIT_KEYS, columns, strict=True)
        }


def warm_up_sums() -> None:
    """Have pyarrow load what adds up."""
    _grouped({"place": int32_array(bytes(4))}, "place", ["place"], ("place", "count"))


def int32_array(packed: bytes) -> pa.Array:
    """An Arrow array of packed numbers, without a copy."""
    return _array(packed, pa.int32(), 4)


def _array(packed: bytes, type_: pa.DataType, width: int) -> pa.Array:
    return pa.Array.from_buffers(type_, len(packed) // width, [None, pa.py_buffer(packed)])


def _requests(chunks: Sequence[Chunk]) -> dict[str, pa.Array]:
    """All chunks' columns; those that are 0 all over are not there."""
    seconds = b"".join(bytes((chunk.second,)) * chunk.requests for chunk in chunks)
    columns = {
        "second": _array(seconds, pa.uint8(), 1),
        "flow": _array(b"".join(chunk.flows for chunk in chunks), pa.uint32(), 4),
        "request_bytes": _array(b"".join(chunk.request_bytes for chunk in chunks), pa.uint32(), 4),
        "response_bytes": _array(b"".join(chunk.response_bytes for chunk in chunks), pa.uint32(), 4),
        "upstream_ms": _array(b"".join(chunk.upstream_ms for chunk in chunks), pa.float64(), 8),
    }
    if any(chunk.throttle_ms for chunk in chunks):
        for name, parts in (
            ("held_ms", [chunk.held_ms or bytes(8 * chunk.requests) for chunk in chunks]),
            ("throttle_ms", [chunk.throttle_ms or bytes(8 * chunk.requests) for chunk in chunks]),
        ):
            columns[name] = _array(b"".join(parts), pa.float64(), 8)
    if len(set(map(len, columns.values()))) != 1:
        raise ValueError("columns of requests differ in length")
    return columns


def _grouped(
    columns: dict[str, pa.Array], by: str, sums: Iterable[str], *also: tuple[str, str]
) -> dict[str, pa.Array]:
    """`by`, the sums, and COLUMN_FUNCTION of what is asked for also."""
    table = pa.table(columns).group_by(by, use_threads=False)
    found = table.aggregate([*((name, "sum") for name in sums), *also]).combine_chunks()
    return {name.removesuffix("_sum"): _one(found[name]) for name in found.column_names}


def _one(column: pa.ChunkedArray) -> pa.Array:
    array_ = column.combine_chunks()
    return array_.cast(pa.int64()) if array_.type == pa.uint64() else array_


def _by_flow(requests: dict[str, pa.Array], pause: Pause) -> tuple[dict[str, pa.Array], Seconds]:
    """Sums of each flow, and each flow's seconds."""
    second, flow = requests.pop("second").cast(pa.int32()), requests.pop("flow").cast(pa.int32())
    at = compute.bit_wise_or(compute.shift_left(flow, SECOND_BITS), second)
    order = in_order(at, pause)
    at = take(at, order)
    second_ends = ends_of_runs(at)
    at = take(at, second_ends)
    flow = compute.shift_right(at, SECOND_BITS)
    ends_in_seconds = ends_of_runs(flow)
    flow_ends = take(second_ends, ends_in_seconds)
    flows = {
        "flow": take(flow, ends_in_seconds),
        "requests": differences(compute.add(flow_ends.cast(pa.int64()), 1)),
    }
    both_ways = []
    for name, column in requests.items():
        pause()
        ordered = take(column, order)
        if name in _BYTES:
            at_seconds = take(totals(ordered.cast(pa.int64())), second_ends)
            both_ways.append(at_seconds)
            flows[name] = differences(take(at_seconds, ends_in_seconds))
        else:
            flows[name] = differences(take(totals(ordered), flow_ends))
    bytes_ = differences(compute.add(*both_ways))
    pause()
    return flows, Seconds(flow, at, bytes_, ends_in_seconds)


def _costs(flows: dict[str, pa.Array], cost_of: pa.Array, costs: Sequence[FlowCost]) -> pa.Array:
    """What each flow's requests cost: by its API and version."""
    cost = cost_of.take(flows["flow"])
    each_ms, request_byte_ms, response_byte_ms = (
        pa.array(column, pa.float64()).take(cost) for column in zip(*(costs or [_NO_COST]), strict=True)
    )
    before_answer_ms = compute.add(
        compute.multiply(each_ms, flows["requests"]),
        compute.multiply(request_byte_ms, flows["request_bytes"]),
    )
    # Threads cannot have worked longer on them than the client waited.
    return compute.add(
        compute.min_element_wise(before_answer_ms, flows["upstream_ms"]),
        compute.multiply(response_byte_ms, flows["response_bytes"]),
    )


def _by_place(flows: dict[str, pa.Array], places: pa.Array, owners: pa.Array) -> dict[str, pa.Array]:
    """Sums of each place, and how many connections there were: a flow of each stands for it."""
    columns = {**flows, "place": places, "owner": owners}
    rows = _grouped(columns, "place", list(flows), ("owner", "count_distinct"))
    rows["connections"] = rows.pop("owner_count_distinct")
    return rows


def _round(rows: dict[str, pa.Array]) -> None:
    for name, steps in STEPS_PER_MS.items():
        if name in rows:
            rows[name] = compute.divide(compute.round(compute.multiply(rows[name], steps)), steps)


def _bound(rows: dict[str, pa.Array]) -> None:
    """What clients can have written stays within reason; nearly always it is."""
    for name, column in rows.items():
        found = compute.min_max(column).as_py()
        if len(column) and not 0 <= found["min"] <= found["max"] <= _MOST[name]:
            rows[name] = compute.max_element_wise(
                compute.min_element_wise(column, pa.scalar(_MOST[name], column.type)),
                pa.scalar(0, column.type),
            )


def _same(value: int, count: int) -> pa.Array:
    return _array(array("q", (value,)).tobytes() * count, pa.int64(), 8)


def _add_others(rows: dict[str, pa.Array], places: pa.Array, others: Others, pause: Pause) -> pa.Array:
    """What is rare, in rows of its own where there were no requests. Returns whose the rows are then."""
    found = compute.index_in(pa.array(others, pa.int32()), value_set=places).to_pylist()
    row_of = dict(zip(others, found, strict=True))
    new = [place for place, row in row_of.items() if row is None]
    for row, place in enumerate(new, start=len(places)):
        row_of[place] = row
    count = len(places) + len(new)
    for name, column in rows.items():
        rows[name] = pa.concat_arrays([column, pa.array([0] * len(new), column.type)])
    columns: dict[str, array[float]] = {}
    for done, (place, amounts) in enumerate(others.items(), start=1):
        if done % PIECE == 0:
            pause()
        for name, amount in amounts.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = array("d" if name in _DOUBLES else "q", bytes(8 * count))
            steps = STEPS_PER_MS.get(name)
            told = amount if steps is None else round(amount * steps) / steps
            column[row_of[place]] = told if name in _DOUBLES else int(told)
    for name, column in columns.items():
        rows[name] = _array(column.tobytes(), pa.float64() if name in _DOUBLES else pa.int64(), 8)
    return pa.concat_arrays([places, pa.array(new, pa.int32())])


def _kept(places: pa.Array, others: Others, keys: Sequence[Key], max_keys: int, pause: Pause) -> pa.Array:
    """For each place itself, or OTHER: there are `max_keys` rows at most, of one user as `may_have_another`
    says; who comes first has one."""
    seen = compute.unique(pa.concat_arrays([places, pa.array(others, pa.int32())]))
    kept = array("i", bytes(4 * len(keys)))
    of_user: Counter[str] = Counter()
    left = max_keys
    for begin in range(0, len(seen), PIECE):
        for place in seen.slice(begin, PIECE).to_pylist():
            user = keys[place][USER]
            if place != OTHER and may_have_another(of_user[user], left, len(of_user), max_keys):
                of_user[user] += 1
                left -= 1
                kept[place] = place
        pause()
    return int32_array(kept.tobytes())


def _folded(others: Others, kept: pa.Array, pause: Pause) -> Others:
    found: dict[int, dict[str, float]] = {}
    to_places = kept.take(pa.array(others, pa.int32())).to_pylist()
    for done, (place, to) in enumerate(zip(others, to_places, strict=True), start=1):
        if done % PIECE == 0:
            pause()
        amounts = found.setdefault(to, {})
        for name, amount in others[place].items():
            amounts[name] = amounts.get(name, 0) + amount
    return found
