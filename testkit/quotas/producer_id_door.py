"""A quota of producer ids and one principal, asked in one line."""

from __future__ import annotations

from sluice.quotas.producer_ids.principal import PrincipalIds, ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.ticket import Ticket

SETTINGS = ProducerIdSettings()


class Door:
    """A quota and one principal, asked in one line."""

    def __init__(self, ids_per_hour: float, settings: ProducerIdSettings = SETTINGS) -> None:
        self.quota = ProducerIdQuota(settings)
        self.ids_per_hour = ids_per_hour

    def principal(self, user: str = "alice", now_ms: float = 0.0) -> PrincipalIds:
        return self.quota.principal(user, self.ids_per_hour, now_ms)

    def ticket(
        self,
        new: tuple[int, ...] = (),
        resumed: tuple[int, ...] = (),
        user: str = "alice",
        partitions: int = 1,
    ) -> Ticket:
        keys = tuple(
            self.quota.pair_keys.key(producer_id, b"t", partition)
            for producer_id in new + resumed
            for partition in range(partitions)
        )
        return Ticket(self.principal(user), new, resumed, keys)

    def ask(
        self, *new: int, now_ms: float = 0.0, user: str = "alice", client: tuple[str, str] = ("", "")
    ) -> Ticket:
        ticket = self.ticket(new, user=user)
        ticket.client = client
        self.quota.ask(ticket, now_ms)
        return ticket

    def admit(self, *new: int, now_ms: float = 0.0) -> None:
        ticket = self.ask(*new, now_ms=now_ms)
        assert ticket.granted
        self.quota.commit(ticket, now_ms)

    def drain(self, now_ms: float = 0.0, user: str = "alice") -> None:
        """Take all tokens of the main bucket."""
        bucket = self.principal(user).main
        while bucket.reserve(1, now_ms):
            bucket.settle(1, 1, now_ms)
