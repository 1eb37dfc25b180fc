"""Replication throttles of one process: made from its configuration, put before the right listener."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from sluice.proxy.config_listener import ListenerOptions
from sluice.proxy.config_replication import ReplicationOptions
from sluice.proxy.policy import SessionPolicy
from sluice.proxy.replication import Replication
from sluice.proxy.replication_watch import ReplicationWatch
from sluice.quotas.replication_throttle import NATIVE_SHARE


class ReplicationSetup:
    """Raises ConfigError for a file that cannot be used."""

    def __init__(self, options: ReplicationOptions | None) -> None:
        self._options = options
        self.replication: Replication | None = None
        """None: no listener has followers that are throttled"""
        self._watch: ReplicationWatch | None = None
        if options is not None:
            self.replication = Replication(
                options.leader_id,
                rate_share=NATIVE_SHARE,
                users=frozenset(options.users) or None,
                window_num=options.window_num,
                window_size_s=options.window_size_s,
            )
            self._watch = ReplicationWatch(options, self.replication)

    def told(self, policy: SessionPolicy, listener: ListenerOptions) -> SessionPolicy:
        """The policy of a listener, with its followers' replication."""
        if self._options is None or listener.name != self._options.listener:
            return policy
        return replace(policy, replication=self.replication)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs beside the listeners."""
        return [] if self._watch is None else [self._watch.run()]
