"""Quotas at a server, by Kafka's own API: DescribeClientQuotas (48) and AlterClientQuotas (49), version 1.

The server is a broker, or a proxy that answers these in its place. Blocking: for commands, never the proxy.
Source: KIP-546; DescribeClientQuotasRequest.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.client_properties import ClientSettings
from sluice.proxy.cli.quotas.edit import Changes, Whom
from sluice.proxy.cli.quotas.kafka_server import KafkaServer
from sluice.proxy.cli.quotas.listing import Listing, as_double, described
from sluice.proxy.cli.quotas.remote import (
    UNTOLD,
    RemotePlace,
    names_of,
    refusal,
    split_by_name,
    whom_of_names,
)

_VERSION: Final = 1
_Entry: Final = AlterClientQuotasRequest.EntryData


class QuotaServer(RemotePlace):
    """A place; each step has a connection of its own."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        """`bootstrap`: `host:port,…`, tried in order. Raises ConfigError."""
        self.server = KafkaServer(bootstrap, settings)
        self.name = self.server.name

    @property
    def written(self) -> str:
        """A proxy and a broker answer alike."""
        return (
            f"Taken by {self.name}: of a proxy, written to its quota topic, in force there, and at other "
            "proxies within a second; of a broker, one of the cluster's own quotas."
        )

    def _found(self) -> Listing:
        """Those in force: a proxy leaves out what is in shadow mode, for which the protocol has no field."""
        answer = self.server.ask(DescribeClientQuotasRequest(components=[], strict=False), _VERSION)
        if answer.error_code:
            raise CommandFailed(f"{self.name}: {refusal(answer.error_code, answer.error_message)}")
        limits, unnamable = split_by_name(
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: as_double(value.value) for value in entry.values},
            )
            for entry in answer.entries or []
        )
        return Listing(limits, untold=UNTOLD, has_doubles=True, unnamable=unnamable)

    def _change(self, changes: Mapping[Whom, Changes], *, validate_only: bool) -> list[str]:
        entries = [_Entry(entity=_entity(whom), ops=list(_ops(limits))) for whom, limits in changes.items()]
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        answer = self.server.ask(request, _VERSION)
        return [
            f"{described(_whom(entry.entity))}: {refusal(entry.error_code, entry.error_message)}"
            for entry in answer.entries
            if entry.error_code
        ]


def _whom(entity: list[Any]) -> Whom:
    return whom_of_names({part.entity_type: part.entity_name for part in entity})


def _entity(whom: Whom) -> list[Any]:
    return [_Entry.EntityData(entity_type=key, entity_name=name) for key, name in names_of(whom).items()]


def _ops(changes: Changes) -> Iterator[Any]:
    for key, limit in changes.items():
        yield _Entry.OpData(key=key, value=float(limit or 0.0), remove=limit is None)
