"""The texts of the access log's files: a number stands for each in rows, and most come again in the next.

So that nothing need be looked up for a key of the roll-up that an earlier file had, numbers stay; a file
takes those names along that its rows have (columns.py).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final

import pyarrow as pa
from pyarrow import compute

from sluice.proxy.access_log.runs import Pause, inverse
from sluice.proxy.access_log.sums import ByPlace, int32_array
from sluice.usage.access_record import Value
from sluice.usage.flow import Key

KEY_COLUMNS: Final = ("broker", "user", "client_id", "address", "api_class", "topic")
"""in a Key's order"""
_NAME_BYTES: Final = 170
"""about what is needed around a name: its object and its entry in Python's dictionary, Arrow's offsets and
its rank"""
_ONE: Final = pa.scalar(1, pa.int32())
_NAMES_AT_ONCE: Final = 1000
"""some 0.1 ms of the interpreter's lock"""


class ColumnNames:
    """The texts of one column, in whatever table: each distinct text once."""

    def __init__(self) -> None:
        self._number: defaultdict[Value, int] = defaultdict(count(0).__next__)
        """in the order of their numbers"""
        self._knows_others = False
        """values that are no texts have numbers as well, which are in no row"""
        self._ordered = pa.array((), pa.string())
        """texts, in their order"""
        self._ranks = pa.array((), pa.int32())
        """of each number, where its text is there"""
        self.size_bytes = 0
        """of memory, about"""

    def numbers(self, values: Sequence[Value]) -> Sequence[int]:
        """Raises TypeError for what is no text."""
        known = len(self._number)
        numbers = list(map(self._number.__getitem__, values))
        if len(self._number) > known:
            for name in islice(reversed(self._number), len(self._number) - known):
                if isinstance(name, str):
                    self.size_bytes += 2 * len(name) + _NAME_BYTES
                else:
                    self._knows_others = True
        if self._knows_others:
            for value in values:
                if not isinstance(value, str):
                    raise TypeError(f"a text was expected, not {type(value).__name__}")
        return numbers

    def in_order(self, pause: Pause) -> tuple[pa.Array, pa.Array]:
        """(the texts in their order, of each number the place of its text among them).

        Sorted anew only if some have come. What is no text is in no row; an empty one stands for it.
        """
        new = len(self._number) - len(self._ranks)
        if new:
            names = list(islice(reversed(self._number), new))[::-1]
            pieces = [self._ordered.take(self._ranks)]
            for begin in range(0, new, _NAMES_AT_ONCE):
                pieces.append(_texts(names[begin : begin + _NAMES_AT_ONCE]))
                pause()
            texts = pa.concat_arrays(pieces)
            order = compute.sort_indices(texts).cast(pa.int32())
            self._ordered = texts.take(order)
            self._ranks = inverse(order, len(order))
        return self._ordered, self._ranks


def among_those_used(ranks: pa.Array, ordered: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(of each of `ranks`, or null, its place among those that are there; their texts, in order)."""
    is_used = inverse(ranks, len(ordered)).is_valid()
    place = compute.subtract(compute.cumulative_sum(is_used.cast(pa.int32())), _ONE)
    return place.take(ranks), ordered.filter(is_used)


def _texts(values: Sequence[Value]) -> pa.Array:
    texts = [value if isinstance(value, str) else "" for value in values]
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # a lone surrogate is no Unicode; it must not cost the file
        as_bytes = [text.encode("utf-8", "backslashreplace") for text in texts]
        return pa.array(as_bytes, pa.binary()).cast(pa.string())


class FileNames:
    """The texts of files that are filled one after another. Grows with each new text. For one thread."""

    def __init__(self) -> None:
        self._columns: dict[str, ColumnNames] = {}
        self._whose = ByPlace()
        self._keys = {name: array("i") for name in KEY_COLUMNS}
        """numbers of texts, by the numbers that `_whose` has of places"""

    @property
    def size_bytes(self) -> int:
        """Memory that they take, about. Keys that come and go with the same texts add to it, too."""
        keys = sum(numbers.itemsize * len(numbers) for numbers in self._keys.values())
        return keys + sum(column.size_bytes for column in self._columns.values())

    def column(self, name: str) -> ColumnNames:
        """The texts of a column."""
        return self._columns.setdefault(name, ColumnNames())

    def of_places(self, places: pa.Array, keys: Sequence[Key], pause: Pause) -> dict[str, pa.Array]:
        """Numbers of their keys' texts, by column. `keys`: by the numbers of places."""
        whose = self._whose.of(places, keys, self._new_keys, pause)
        return {name: int32_array(bytes(numbers)).take(whose) for name, numbers in self._keys.items()}

    def forget(self, places: Iterable[int]) -> None:
        """Their numbers may stand for others from now on."""
        self._whose.forget(places)

    def _new_keys(self, keys: Sequence[Key]) -> range:
        begin = len(self._keys[KEY_COLUMNS[0]])
        for (name, numbers), texts in zip(self._keys.items(), zip(*keys, strict=True), strict=True):
            numbers.extend(self.column(name).numbers(texts))
        return range(begin, begin + len(keys))
