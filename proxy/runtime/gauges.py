"""What is true of all connections at this moment: integers that connections keep and metrics read."""

from __future__ import annotations

from collections import Counter

from sluice.quotas.kinds import KINDS


class Gauges:
    """One per worker; connections add to it and take away what they added."""

    __slots__ = (
        "accepts_delayed",
        "connections",
        "connections_opened",
        "delayed",
        "guests_delayed",
        "guests_s",
        "over_rate",
    )

    def __init__(self) -> None:
        self.connections = 0
        """client connections open now"""
        self.connections_opened = 0
        """client connections accepted since the start; never falls"""
        self.accepts_delayed = 0
        """times that nobody was accepted for a moment, for want of room before authentication; never falls"""
        self.guests_s = 0.0
        """processor time of connections before they authenticated; never falls"""
        self.guests_delayed = 0
        """reads of such connections that had to wait, because their share was used up; never falls"""
        self.over_rate: Counter[tuple[str, bool]] = Counter()
        """connections above their address's rate, by rule and whether that is in shadow mode; never falls"""
        self.delayed = {kind.value: 0 for kind in KINDS}
        """by quota kind: connections that are held or muted now"""
