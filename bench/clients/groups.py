"""The broker's log → how often a group was rebalanced beyond its first join. Pure.

Counted at the broker, for each client has words of its own for it, and some have none. Source: Kafka 4.3,
GroupMetadataManager: "Preparing to rebalance group …" (classic), "Bumped … group epoch to …" (KIP-848 and
KIP-1071).
"""

from __future__ import annotations

from collections.abc import Iterable

DAY_MS = 24 * 3600 * 1000


def rebalances(lines: Iterable[str], group: str, members: int, closing_ms: int | None) -> int:
    """Those before `closing_ms` (a time of day; None: all), when the members began to leave.

    Not counted: a classic group's first, and one for each further member that comes late to it; in a group
    with epochs one for each member that joins. Lines begin with their time of day, HH:MM:SS.mmm.
    """
    classic = f"Preparing to rebalance group {group} "
    late, epochs, others = 0, 0, 0
    for line in lines:
        if group not in line or (closing_ms is not None and _is_later(line, closing_ms)):
            continue
        if classic in line and "with old generation 0 " not in line:
            if "Adding new member" in line and not others:
                late += 1
            else:
                others += 1
        elif f"[GroupId {group}]" in line and "Bumped" in line and "group epoch to" in line:
            epochs += 1
    return others + max(late - (members - 1), 0) + max(epochs - members, 0)


def reasons(lines: Iterable[str], group: str, closing_ms: int | None) -> list[str]:
    """What the broker says of each classic rebalance before `closing_ms`, the first apart."""
    classic = f"Preparing to rebalance group {group} "
    found = []
    for line in lines:
        is_counted = classic in line and "with old generation 0 " not in line
        if is_counted and (closing_ms is None or not _is_later(line, closing_ms)):
            found.append(line.partition("(reason: ")[2].rpartition(")")[0])
    return found


def time_of_day_ms(text: str) -> int:
    """`HH:MM:SS.mmm` → milliseconds since midnight. Raises ValueError if it is none."""
    hours, minutes, seconds = text.split(":")
    return round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1000)


def _is_later(line: str, closing_ms: int) -> bool:
    try:
        passed_ms = (time_of_day_ms(line.split(" ", 1)[0]) - closing_ms) % DAY_MS
    except ValueError:  # the second line of a message
        return False
    return passed_ms < DAY_MS / 2  # a run takes less than half a day, midnight or not
