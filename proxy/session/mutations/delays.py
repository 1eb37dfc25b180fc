"""Delays under `controller_mutation_rate`: mutes and holds bounded as any delay is, and told in answers.

Knows partitions, times and the pace of one connection; no frames (requests.py). What waits here waits for its
entity's debt, not for its connection's: a new connection waits, too. Pure.
Source: wire-semantics 1.5, 1.6 ("reconnecting clears no debt"); KIP-599.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.protocol.mutations.requests import MutationRequest
from sluice.protocol.throttle_field import MAX_THROTTLE_MS
from sluice.proxy.session.mutations.outcome import Outcome
from sluice.proxy.session.read_gate import Pace
from sluice.proxy.session.throttling import Throttling
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind


@dataclass(frozen=True, slots=True)
class HeldMutation:
    """A request of a permissive version that waits for its turn; its bytes are the first that the shell
    keeps."""

    correlation_id: int
    request: MutationRequest
    outcome: Outcome
    begun_ms: float
    until_ms: float
    """the end of the whole delay: of the hold, and of the mute behind it"""


class MutationDelays:
    """The delays of one connection under a controller_mutation_rate."""

    __slots__ = ("_pace", "_throttling")

    def __init__(self, pace: Pace, throttling: Throttling) -> None:
        self._pace = pace
        self._throttling = throttling

    def owe(
        self, sensor: Sensor, api_key: int, charged: int, clears_at_ms: float, now_ms: float, *, refused: bool
    ) -> float:
        """Topics were refused, or changed on credit: mute until clears_at_ms, bounded as any delay is.

        `charged`: partitions. Returns the end of the mute; in shadow mode now_ms, and nothing is done. (A
        strict quota's debt is not waived then: what was refused in earnest would not have been charged
        either.)
        """
        throttling = self._throttling
        if sensor.shadow:
            delay_ms = min(clears_at_ms - now_ms, throttling.delay_limit_ms(api_key))
            throttling.note_mutation(EventKind.SHADOW, sensor, api_key, delay_ms, charged, now_ms)
            if not refused:
                sensor.waive(now_ms)
            return now_ms
        until_ms = min(clears_at_ms, self._pace.latest_ms(throttling.delay_limit_ms(api_key), now_ms))
        kind = EventKind.REFUSAL if refused else EventKind.MUTE
        self._mute(kind, sensor, api_key, charged, until_ms, now_ms)
        return until_ms

    def hold(
        self,
        sensor: Sensor,
        api_key: int,
        charged: int,
        eligible_at_ms: float,
        clears_at_ms: float,
        now_ms: float,
    ) -> float:
        """The entity owed before this request came: nothing more is begun until `eligible_at_ms` > now_ms,
        when that will be paid. Returns the end of the delay, hold and mute together; both are bounded."""
        last_ms = now_ms + self._throttling.delay_limit_ms(api_key)
        eligible_at_ms = min(eligible_at_ms, last_ms)
        self._pace.hold(eligible_at_ms, now_ms, QuotaKind.CONTROLLER_MUTATION)
        hold_ms = eligible_at_ms - now_ms
        self._throttling.note_mutation(EventKind.HOLD, sensor, api_key, hold_ms, charged, now_ms)
        return min(clears_at_ms, last_ms)

    def release(self, held: HeldMutation, now_ms: float) -> None:
        """The held request goes; what is left of its delay is a mute."""
        self._pace.release(held.until_ms)
        if held.until_ms > now_ms:
            outcome = held.outcome
            charged = outcome.charged_partitions
            self._mute(
                EventKind.MUTE,
                outcome.sensor,
                outcome.api_key,
                charged,
                held.until_ms,
                now_ms,
                continues=True,
            )

    def drop(self, held: HeldMutation, now_ms: float) -> None:
        """The held request will never go: its partitions are given back."""
        outcome = held.outcome
        charged = outcome.charged_partitions
        outcome.sensor.refund(charged, now_ms)
        self._throttling.note_mutation(EventKind.DROP, outcome.sensor, outcome.api_key, 0.0, charged, now_ms)

    def told_ms(self, api_key: int, remaining_ms: float) -> float:
        """What an answer tells of a delay that lasts `remaining_ms` more: all of it, for a refused client is
        to come again then; but some clients sleep on it, and would miss the heartbeats of their group. The
        field holds 24 days; a debt may be longer (10⁴ partitions, at one in ten minutes)."""
        remaining_ms = min(max(remaining_ms, 0.0), MAX_THROTTLE_MS)
        throttling = self._throttling
        return min(remaining_ms, throttling.delay_limit_ms(api_key)) if throttling.is_group else remaining_ms

    def _mute(
        self, kind: EventKind, sensor: Sensor, api_key: int, charged: int, until_ms: float, now_ms: float,
        *, continues: bool = False,
    ) -> None:  # fmt: skip
        self._pace.mute(until_ms, now_ms, QuotaKind.CONTROLLER_MUTATION)
        mute_ms = until_ms - now_ms
        self._throttling.note_mutation(kind, sensor, api_key, mute_ms, charged, now_ms, continues=continues)
