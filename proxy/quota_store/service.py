"""The one place that is asked about quotas and told to change them: through Kafka's API, or locally.

Who may ask is decided here; what is found and what an alteration comes to in client_quotas.py; where a change
is kept is the store's. Nothing here takes longer than a millisecond or so at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from sluice.protocol.apis import ApiKey, ErrorCode
from sluice.proxy.quota_store.client_quotas import (
    Alteration,
    Component,
    QuotaApiError,
    Result,
    checked_filter,
    in_force,
    matching,
)
from sluice.proxy.quota_store.entities import MAX_NAME_BYTES, Parts, has_too_long_name, parts_of
from sluice.proxy.quota_store.refused_alter import alter_refused_in_steps
from sluice.proxy.quota_store.wire import (
    DescribeRequest,
    altered,
    describe_refused,
    described_in_steps,
    read_request,
)
from sluice.proxy.runtime.log import LineBudget, get_logger
from sluice.proxy.runtime.tasks import in_turns
from sluice.proxy.session.errors import RequestTooLarge
from sluice.proxy.session.local_responses import QuotaQuestion
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.steps import at_once

Listed = tuple[QuotaEntity, Mapping[str, float], frozenset[str], bool]
"""an entity, its limits, which of them are in shadow mode, and whether it has `over_budget: refuse`"""
_ENTRIES_PER_STEP: Final = 250
"""about a millisecond"""
_SMALL_BYTES: Final = 4_096
"""of an admin, decoded at once, in some 15 ms; what is larger in a thread"""
_REFUSED_AT_ONCE_BYTES: Final = 1_024
"""an alteration of who may not, in a millisecond at most"""
MOST_REFUSALS_DUE: Final = 64
"""longer ones of all connections that wait, of up to 64 KiB each"""
_SHOWN: Final = 80
"""characters of a name"""
_ENTITIES_SHOWN: Final = 5
_REFUSALS_PER_S: Final = 5
"""log lines"""
LOCAL: Final = "local admin"
"""who made a change through the machine itself"""

_log = get_logger()


class QuotaStore(Protocol):
    """Where changes are kept."""

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        """Returns when they are kept, or cannot be: a result for each entity. Raises QuotaApiError."""


class FileStore:
    """The quota file, which only its owner changes."""

    def __init__(self, file: Path) -> None:
        self._message = f"the quotas of this proxy come from the file {file}; change them there"

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        """Refuses: POLICY_VIOLATION, with a message that names the file."""
        raise QuotaApiError(ErrorCode.POLICY_VIOLATION, self._message)


class QuotaDesk:
    """Answers questions about the quotas of one process, and changes them."""

    def __init__(
        self, limits: Callable[[], QuotaLimits], store: QuotaStore, admins: frozenset[str] = frozenset()
    ) -> None:
        """`limits`: those in force. `admins`: principals who may ask and change."""
        self._limits = limits
        self._store = store
        self.admins = admins
        self._refused_changes = LineBudget(_REFUSALS_PER_S)
        self._refused_describes = LineBudget(_REFUSALS_PER_S)  # apart: who asks often hides no change
        self._refusing = asyncio.Lock()
        self._refusals_due = 0
        self._left_out: frozenset[QuotaEntity] = frozenset()

    async def describe(
        self, principal: str | None, components: Sequence[Component], *, strict: bool
    ) -> list[tuple[Parts, Mapping[str, float]]]:
        """The limits in force that a filter matches: Kafka's API has no word for shadow mode. Left out, and
        named in the log, are those for a name with which no client could read the answer.

        `principal`: who asks; None: the machine's own administrator. Raises QuotaApiError: who asks may not,
        or the filter is none.
        """
        self._check(principal)
        checked_filter(components)
        limits = self._limits()
        entries = list(limits.entries.items())
        found: list[tuple[Parts, Mapping[str, float]]] = []
        left_out: set[QuotaEntity] = set()
        for start in range(0, len(entries), _ENTRIES_PER_STEP):
            step = entries[start : start + _ENTRIES_PER_STEP]
            too_long = {entity for entity, _ in step if has_too_long_name(entity)}
            if too_long:
                left_out |= too_long
                step = [one for one in step if one[0] not in too_long]
            found += matching(in_force(step, limits.shadow), components, strict=strict)
            await asyncio.sleep(0)
        self._log_left_out(frozenset(left_out))
        return found

    async def listed(self, *, only_kafkas: bool = True) -> tuple[QuotaLimits, list[Listed]]:
        """For the machine's own administrator: the limits in force, and each of them, also in shadow mode.

        `only_kafkas`: of entities that Kafka has, too.
        """
        limits = self._limits()
        found: list[Listed] = []
        for number, (entity, its_limits) in enumerate(limits.entries.items()):
            if number % _ENTRIES_PER_STEP == 0:
                await asyncio.sleep(0)
            if its_limits and not (only_kafkas and parts_of(entity) is None):
                shadow = limits.shadow.get(entity, frozenset())
                found.append((entity, its_limits, shadow, entity in limits.refusing))
        return limits, found

    async def alter(
        self, principal: str | None, alterations: Sequence[Alteration], *, validate_only: bool = False
    ) -> Sequence[Result]:
        """Change limits, or only tell what would become of it. Returns when the change is kept.

        `principal`: who asks; None: the machine's own administrator. Raises QuotaApiError as a whole; what is
        wrong with one entity stands in its result.
        """
        self._check(principal)
        by = LOCAL if principal is None else principal
        return await self._store.alter(alterations, validate_only=validate_only, by=by)

    async def alter_locally(
        self, alterations: Sequence[Alteration], *, validate_only: bool = False
    ) -> Sequence[Result]:
        """As `alter`, by the machine's own administrator; a refusal is logged."""
        try:
            return await self.alter(None, alterations, validate_only=validate_only)
        except QuotaApiError as error:
            self._log_refused("quota_change_refused", self._refused_changes, error, user=LOCAL)
            raise

    async def answer(self, question: QuotaQuestion, peer: str) -> bytes:
        """The answer to a client's request, size included. `peer`: its address, for the log.

        Raises ProtocolError for a request that is none.
        """
        key, version, correlation_id = question.api_key, question.version, question.correlation_id
        if question.user not in self.admins:
            return await self._refusal(question, peer)
        if len(question.frame) <= _SMALL_BYTES:
            request = read_request(key, version, question.frame)
        else:
            request = await asyncio.to_thread(read_request, key, version, question.frame)
        if isinstance(request, DescribeRequest):
            try:
                found = await self.describe(question.user, request.components, strict=request.strict)
            except QuotaApiError as error:
                return describe_refused(version, correlation_id, error.code, error.message)
            return await in_turns(described_in_steps(version, correlation_id, found))
        try:
            results = await self.alter(
                question.user, request.alterations, validate_only=request.validate_only
            )
        except QuotaApiError as error:
            self._log_refused("quota_change_refused", self._refused_changes, error, **_who(question, peer))
            results = _all_refused(request.alterations, error)
        if len(results) <= _ENTRIES_PER_STEP:
            return altered(version, correlation_id, results)
        return await asyncio.to_thread(altered, version, correlation_id, results)

    async def _refusal(self, question: QuotaQuestion, peer: str) -> bytes:
        """The answer to one who may not ask. Raises ProtocolError as `answer`, and where so many wait for
        theirs that they would be kept without bound.

        A long one is read in steps, one at a time: who may not is not to have others wait, many of him
        neither, nor what else runs in threads.
        """
        version, correlation_id, error = question.version, question.correlation_id, _not_admin(question.user)
        if question.api_key == ApiKey.DESCRIBE_CLIENT_QUOTAS:
            self._log_refused(
                "quota_describe_refused", self._refused_describes, error, **_who(question, peer)
            )
            return describe_refused(version, correlation_id, error.code, error.message)
        steps = alter_refused_in_steps(version, correlation_id, question.frame, error.code, error.message)
        if len(question.frame) <= _REFUSED_AT_ONCE_BYTES:
            answer = at_once(steps)
        else:
            if self._refusals_due >= MOST_REFUSALS_DUE:
                raise RequestTooLarge(
                    f"refused, as {MOST_REFUSALS_DUE} others that are read one after another"
                )
            self._refusals_due += 1
            try:
                async with self._refusing:
                    answer = await in_turns(steps)
            finally:
                self._refusals_due -= 1
        self._log_refused("quota_change_refused", self._refused_changes, error, **_who(question, peer))
        return answer

    def _log_refused(self, event: str, lines: LineBudget, error: QuotaApiError, **who: str) -> None:
        """One who may not, or the wrong place to try it: worth a line, not a flood of them.

        Kafka's tools and ours describe before they alter: who may not is seen when he describes.
        """
        if lines.take(monotonic() * 1000.0):
            _log.warning(event, **who, reason=str(error), lines_suppressed=lines.suppressed())

    def _log_left_out(self, entities: frozenset[QuotaEntity]) -> None:
        """Once, not with each answer."""
        new, self._left_out = entities - self._left_out, entities
        if new:
            some = sorted(str(entity)[:_SHOWN] for entity in new)[:_ENTITIES_SHOWN]
            _log.error("quota_name_too_long", entities=some, count=len(new), longest=MAX_NAME_BYTES)

    def _check(self, principal: str | None) -> None:
        if principal is not None and principal not in self.admins:
            raise _not_admin(principal)


def _not_admin(principal: str) -> QuotaApiError:
    message = f"Cluster authorization failed: {principal} is not in quotas.admins of this proxy."
    return QuotaApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)


def _who(question: QuotaQuestion, peer: str) -> dict[str, str]:
    """Who asked, as the log tells it."""
    return {"user": question.user, "client_id": question.client_id, "peer": peer}


def _all_refused(alterations: Sequence[Alteration], error: QuotaApiError) -> list[Result]:
    """An AlterClientQuotas has no error but those of its entities."""
    each = dict.fromkeys(alteration.parts for alteration in alterations)
    return [Result(parts, error.code, error.message) for parts in each]
