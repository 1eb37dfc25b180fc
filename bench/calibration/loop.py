"""Nights in a closed loop, each way by itself: each night's limits shape what the next day's log can show."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from bench.calibration.entities import NIGHTS, PROXIES, Array, Entity, need
from bench.calibration.log import as_logged, is_incomplete, is_missing
from bench.calibration.night import FIRST_DAY, KEY, WAYS, Broker
from bench.calibration.traffic import day_state, pass_day
from sluice.recalibration.policy.plan import POOLED, EntityDay

OVERSUBSCRIPTION = 1.3


@dataclass(slots=True)
class Outcome:
    """A run. Arrays are days × entities; `limits` has a row more, the limits after the last night."""

    entities: Sequence[Entity]
    room: float
    need: Array
    """of each day by itself, at the proxy that needs most; judged at one second"""
    limits: dict[str, Array] = field(default_factory=dict)
    waited: dict[str, Array] = field(default_factory=dict)
    """share of the day's bytes that waited for more than 100 ms"""
    frozen_nights: int = 0
    """unattended, the log whole: there were changes to make that need no review, and none was made"""
    cuts_on_incomplete: int = 0
    """unattended: limits cut on nights that lack rows of the last seven dates"""
    refusals: list[str] = field(default_factory=list)


def run(entities: Sequence[Entity], nights: int = NIGHTS) -> Outcome:
    """All ways side by side; each day's demand is drawn once."""
    columns = [
        (index, number, share)
        for index, entity in enumerate(entities)
        for number, share in enumerate(PROXIES.get(entity.kind, (1.0,)))
    ]
    of_column = np.array([index for index, _, _ in columns])
    shares = np.array([share for _, _, share in columns])
    first, needs = _needs(entities, nights)
    room = float(np.ceil(1.15 * needs.max(axis=0).sum() * OVERSUBSCRIPTION))
    brokers = {
        way: Broker({entity.name: limit for entity, limit in zip(entities, first, strict=True)}, room)
        for way in WAYS
    }
    abusers = {entity.name: entity.is_abuser for entity in entities}
    outcome = Outcome(entities, room, needs)
    limits = {way: [np.array(first)] for way in WAYS}
    waited: dict[str, list[Array]] = {way: [] for way in WAYS}
    queue = np.zeros((len(WAYS), len(columns)))
    tokens = np.stack([limits[way][0][of_column] for way in WAYS])
    for day in range(nights):
        demand = np.stack([entity.demand(day) for entity in entities], axis=1)[:, of_column] * shares
        now = np.stack([limits[way][-1][of_column] for way in WAYS])
        passed = pass_day(demand, now, queue, tokens)
        total = np.bincount(of_column, demand.sum(axis=0))
        for number, (way, act) in enumerate(WAYS.items()):
            broker = brokers[way]
            late = np.bincount(of_column, passed.waited[number])
            waited[way].append(late / np.maximum(total, 1.0))
            _log(broker, entities, columns, passed.rate[:, number], passed.throttled[:, number], day)
            before = limits[way][-1]
            if way != "static" and not is_missing(day):
                plan = broker.plan_of(day)
                act(broker, plan, day, abusers)
            after = np.array([broker.limits[entity.name] for entity in entities])
            limits[way].append(after)
            if way == "unattended":
                _note(outcome, broker, before, after, day)
    outcome.limits = {way: np.array(found) for way, found in limits.items()}
    outcome.waited = {way: np.array(found) for way, found in waited.items()}
    return outcome


def _needs(entities: Sequence[Entity], nights: int) -> tuple[list[float], Array]:
    """(first limits, need of each day and entity)."""
    first, needs = [], []
    for entity in entities:
        share = max(PROXIES.get(entity.kind, (1.0,)))
        # What counts of abuse is what the abuser needs without it.
        own = [need(entity.demand(day)) * share for day in range(nights)]
        if entity.is_abuser:
            own = [each / entity.level(day) for day, each in enumerate(own)]
        needs.append(own)
        ordinary = max(own[:8]) or max(own)
        first.append(float(np.ceil(1.15 * ordinary * entity.first_limit_factor)))
    return first, np.array(needs).T


def _log(
    broker: Broker,
    entities: Sequence[Entity],
    columns: Sequence[tuple[int, int, float]],
    rate: Array,
    throttled: Array,
    day: int,
) -> None:
    by_entity: dict[int, list[tuple[Array, Array]]] = {}
    for column, (index, proxy, _) in enumerate(columns):
        logged = as_logged(rate[:, column], day, proxy)
        shown = as_logged(throttled[:, column].astype(np.float32), day, proxy) > 0
        by_entity.setdefault(index, []).append((logged, shown))
        hours = {int(window) // 360 for window in np.nonzero(logged)[0]}
        if hours:
            when = FIRST_DAY + timedelta(days=day)
            broker.seen.setdefault(when, {}).setdefault(f"proxy-{proxy}", set()).update(hours)
    for index, parts in by_entity.items():
        seen = [(f"proxy-{number}", *part) for number, part in enumerate(parts)]
        if len(seen) > 1:
            together = np.logical_or.reduce([shown for _, _, shown in seen])
            seen.append((POOLED, np.sum([logged for _, logged, _ in seen], axis=0), together))
        for where, logged, shown in seen:
            state = day_state(logged, shown)
            if state is not None:
                broker.states.setdefault(entities[index].name, []).append(EntityDay(where, day, state))


def _note(outcome: Outcome, broker: Broker, before: Array, after: Array, day: int) -> None:
    if is_incomplete(day):
        outcome.cuts_on_incomplete += int((after < before).sum())
        return
    could = any(entry.is_change for entry in broker.plan if entry.key == KEY)
    if could and (after == before).all():
        outcome.frozen_nights += 1
        outcome.refusals.append(f"night {day}: {broker.refused}")
