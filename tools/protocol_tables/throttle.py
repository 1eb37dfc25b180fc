"""Where `throttle_time_ms` stands in each version of each response, as runs of versions for the hot path.

A 4-byte overwrite needs only a position: from the start of the body, or from the end of the frame, when all
that stands on that side has a fixed size; else the position takes a walk. Source: KIP-124, KIP-219.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol.codec.spec_model import Field, Message, SpecError

KIND_AT_OFFSET: Final = 0
KIND_BEFORE_END: Final = 1
KIND_WALK: Final = 2

Run = tuple[int, int, int, int]


def throttle_runs(response: Message) -> tuple[Run, ...]:
    """(first version, last version, kind, offset), ascending; a version without the field is in no run."""
    runs: list[Run] = []
    for version in range(response.versions.first, response.versions.last + 1):
        place = _place(response, version)
        if place is None:
            continue
        if runs and runs[-1][1] == version - 1 and runs[-1][2:] == place:
            runs[-1] = (runs[-1][0], version, *place)
        else:
            runs.append((version, version, *place))
    return tuple(runs)


def _place(response: Message, version: int) -> tuple[int, int] | None:
    fields = response.present(version)
    names = [field.name for field in fields]
    if "throttleTimeMs" not in names:
        if any(field.name == "throttleTimeMs" and version in field.versions for field in response.fields):
            raise SpecError(f"{response.name} version {version}: throttleTimeMs is a tagged field")
        return None
    index = names.index("throttleTimeMs")
    if fields[index].type != "int32" or fields[index].is_array:
        raise SpecError(f"{response.name} version {version}: throttleTimeMs is not an int32")
    before = _fixed_size(fields[:index])
    if before is not None:
        return KIND_AT_OFFSET, before
    after = _fixed_size(fields[index:])
    # A flexible version ends with tagged fields, which may hold anything.
    if after is not None and version not in response.flexible:
        return KIND_BEFORE_END, after
    return KIND_WALK, 0


def _fixed_size(fields: list[Field]) -> int | None:
    sizes = [field.fixed_size() for field in fields]
    return None if None in sizes else sum(size for size in sizes if size is not None)
