"""Replication throttles of one process: made from its configuration, put before the right listener.

The client libraries that ask the brokers are imported where they are needed: 10 MiB and 0.1 s of a start.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from sluice.protocol.errors import ProtocolError
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.quotas import QuotaOptions
from sluice.proxy.config.replication import ReplicationOptions
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.runtime.supervision import Work
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.replication.checks import LEFT_BEHIND_AFTER_S, Finding, findings
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.replication.throttle import NATIVE_SHARE

if TYPE_CHECKING:
    from sluice.proxy.replication.watch import ReplicationWatch

KNOWN_WITHIN_S: Final = 3.0


class BrokersNotAsked(Exception):
    """None of the brokers answered, or none would. Says which and why."""


def check_cluster(options: ReplicationOptions) -> list[Finding]:
    """What is not as it should be with the cluster's throttles now; the brokers are asked. Blocking.

    What producers write is not known here, so the safe band is not looked at. Raises BrokersNotAsked if
    the brokers cannot be asked.
    """
    from aiokafka.errors import KafkaError

    from sluice.proxy.kafka_client.clients import TopicRefused
    from sluice.proxy.replication.watch import ReplicationWatch

    watch = ReplicationWatch(options, Replication(options.leader_id))
    try:
        state = asyncio.run(watch.look_once())
    except (KafkaError, ProtocolError, TopicRefused, OSError, TimeoutError) as error:
        reason = words_of(error)
        raise BrokersNotAsked(f"{', '.join(options.bootstrap)}: {reason}") from None
    window_s = options.window_num * options.window_size_s
    return list(findings(state, window_s=window_s, idle_s=LEFT_BEHIND_AFTER_S))


class ReplicationSetup:
    """Raises ConfigError for a file that cannot be used."""

    def __init__(self, options: ReplicationOptions | None, quotas: QuotaOptions) -> None:
        """`quotas`: of the same configuration; the throttles may stand in its file."""
        self._options = options
        self.replication: Replication | None = None
        """None: no listener has followers that are throttled"""
        self._watch: ReplicationWatch | None = None
        if options is not None:
            from sluice.proxy.quota_store.source import refuse_both
            from sluice.proxy.replication.watch import ReplicationWatch

            self.replication = Replication(
                options.leader_id,
                rate_share=NATIVE_SHARE if options.source == "cluster" else 1.0,
                users=frozenset(options.users) or None,
                window_num=options.window_num,
                window_size_s=options.window_size_s,
            )
            check = partial(refuse_both, quotas)
            self._watch = ReplicationWatch(options, self.replication, quotas.file, check)

    def told(self, policy: SessionPolicy, listener: ListenerOptions) -> SessionPolicy:
        """The policy of a listener, with its followers' replication."""
        if self._options is None or listener.name != self._options.listener:
            return policy
        return replace(policy, replication=self.replication)

    async def until_known(self) -> None:
        """Until the throttles are known, but for KNOWN_WITHIN_S at most: a follower that comes before would
        be held by the broker's own throttle alone."""
        if self._watch is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(KNOWN_WITHIN_S):
                    await self._watch.known.wait()

    def work(self) -> list[Work]:
        """What runs beside the listeners."""
        return [] if self._watch is None else [self._watch.run]
