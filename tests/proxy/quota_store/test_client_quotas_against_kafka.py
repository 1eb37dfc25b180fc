"""The same questions to a real broker and to the proxy: the same entries, results, codes and messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from time import monotonic
from typing import Any

import pytest

from sluice.proxy.quota_store.client_quotas import Alteration, Result, alter
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import decoded, request
from testkit.frames.wire import Wire, dial
from testkit.kafka.node import KafkaNode
from testkit.peers.fault_broker import FaultBroker, never_reads
from testkit.proxy.local_proxy import LocalProxy

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka]
DESCRIBE, ALTER = 48, 49
Ops = dict[str, float | str | None]
Parts = dict[str, str | None]
_REPLICATED_WITHIN_S = 5.0


class Memory:
    """A store that keeps what it is told in the limits in force."""

    def __init__(self) -> None:
        self.proxy: LocalProxy | None = None

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        assert self.proxy is not None
        quotas = self.proxy.shared.quotas
        outcome = alter(quotas.limits.entries, alterations)
        if not validate_only:
            entries = {**quotas.limits.entries, **outcome.changes}
            kept = [(entity, limits) for entity, limits in entries.items() if limits]
            quotas.reload(QuotaLimits(kept), 0.0)
        return outcome.results


class Both:
    """One connection to the broker, one to the proxy."""

    def __init__(self, broker: Wire, proxy: Wire) -> None:
        self._sides = (broker, proxy)

    async def ask(self, api_key: int, body: Any, version: int) -> tuple[Any, Any]:
        """(the broker's answer, the proxy's), order apart."""
        found = []
        for side in self._sides:
            await side.send(request(api_key, version, body))
            found.append(decoded("response", api_key, version, await side.frame()).body)
        return found[0], found[1]

    async def alter(self, *entries: tuple[Parts, Ops], validate_only: bool = False, version: int = 1) -> None:
        """Both must answer the same."""
        body = {"entries": [alteration(*entry) for entry in entries], "validateOnly": validate_only}
        theirs, ours = await self.ask(ALTER, body, version)
        assert results_of(ours) == results_of(theirs)

    async def describe(
        self, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
    ) -> None:
        """Both must tell the same, once the broker has taken in what its controller was told."""
        body = {
            "components": [
                {"entityType": entity_type, "matchType": match_type, "match": match}
                for entity_type, match_type, match in components
            ],
            "strict": strict,
        }
        deadline_s = monotonic() + _REPLICATED_WITHIN_S
        while True:
            theirs, ours = await self.ask(DESCRIBE, body, version)
            if described(ours) == described(theirs) or monotonic() > deadline_s:
                break
            await asyncio.sleep(0.05)
        assert described(ours) == described(theirs)


def alteration(parts: Parts, ops: Ops) -> dict[str, Any]:
    return {
        "entity": [{"entityType": kind, "entityName": name} for kind, name in parts.items()],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in ops.items()
        ],
    }


def entity_of(entry: Any) -> frozenset[tuple[str, str | None]]:
    return frozenset((part["entityType"], part["entityName"]) for part in entry["entity"])


def results_of(body: Any) -> set[Any]:
    entries = body["entries"]
    found = {(entity_of(entry), entry["errorCode"], entry["errorMessage"]) for entry in entries}
    assert len(found) == len(entries)
    return found


def described(body: Any) -> tuple[int, str | None, Any]:
    entries = body["entries"]
    told = None if entries is None else {
        entity_of(entry): {value["key"]: value["value"] for value in entry["values"]} for entry in entries
    }  # fmt: skip
    return body["errorCode"], body["errorMessage"], told


@pytest.fixture(scope="module")
def node() -> Iterator[KafkaNode]:
    """Its own: its quotas are no other test's."""
    with KafkaNode() as node:
        yield node


@asynccontextmanager
async def both(node: KafkaNode) -> AsyncIterator[Both]:
    store = Memory()
    async with (
        FaultBroker(never_reads) as nobody,
        LocalProxy(nobody.port, QuotaLimits(), admins=frozenset({"ANONYMOUS"}), store=store) as proxy,
    ):
        store.proxy = proxy
        port = int(node.bootstrap.rpartition(":")[2])
        with await dial(port) as broker, await proxy.client() as client:
            sides = Both(broker, client)
            yield sides
            theirs, _ = await sides.ask(DESCRIBE, {"components": [], "strict": False}, 1)
            gone: list[Any] = [
                {
                    "entity": entry["entity"],
                    "ops": [{"key": value["key"], "value": 0.0, "remove": True} for value in entry["values"]],
                }
                for entry in theirs["entries"]
            ]
            await sides.ask(ALTER, {"entries": gone, "validateOnly": False}, 1)


@pytest.mark.parametrize("version", [0, 1])
async def test_what_is_set_is_told_by_every_filter(node: KafkaNode, version: int) -> None:
    everything: list[tuple[Parts, Ops]] = [
        ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
        ({"user": "<default>"}, {"producer_byte_rate": 9.0}),
        ({"user": None}, {"consumer_byte_rate": 2000.0, "controller_mutation_rate": 0.5}),
        ({"user": "alice", "client-id": "app"}, {"producer_byte_rate": 3.0}),
        ({"user": "alice", "client-id": None}, {"producer_byte_rate": 4.0}),
        ({"user": None, "client-id": None}, {"producer_byte_rate": 5.0}),
        ({"client-id": "app"}, {"consumer_byte_rate": 6.0}),
        ({"client-id": None}, {"consumer_byte_rate": 7.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 8.0}),
        ({"ip": None}, {"connection_creation_rate": 2147483647.0}),
    ]
    names: dict[str, list[tuple[int, str | None]]] = {
        "user": [(0, "alice"), (0, "nobody"), (0, "<default>"), (0, ""), (1, None), (2, None)],
        "client-id": [(0, "app"), (1, None), (2, None)],
        "ip": [(0, "10.0.0.1"), (1, None), (2, None)],
    }
    async with both(node) as sides:
        await sides.alter(*everything, version=version)
        for strict in (False, True):
            await sides.describe(strict=strict, version=version)
            for kind, matches in names.items():
                for match in matches:
                    await sides.describe((kind, *match), strict=strict, version=version)
            for user in names["user"]:
                for client_id in names["client-id"]:
                    filters = (("user", *user), ("client-id", *client_id))
                    await sides.describe(*filters, strict=strict, version=version)
        await sides.alter(
            ({"user": "alice"}, {"producer_byte_rate": None, "request_percentage": 1.0}),
            ({"client-id": "app"}, {"consumer_byte_rate": None}),
            ({"user": "nobody"}, {"consumer_byte_rate": None}),
        )
        await sides.describe()


async def test_filters_that_are_none_are_refused_in_the_same_words(node: KafkaNode) -> None:
    async with both(node) as sides:
        for version in (0, 1):
            for components in (
                [("", 0, "a")],
                [("user", 0, "a"), ("user", 0, "b")],
                [("user", 2, None), ("user", 2, None)],
                [("group", 0, "a")],
                [("user", 0, None)],
                [("user", 1, "a")],
                [("user", 2, "a")],
                [("user", 7, None)],
                [("user", -1, "a")],
                [("ip", 2, None), ("user", 2, None)],
                [("client-id", 0, "a"), ("ip", 1, None)],
            ):
                await sides.describe(*components, version=version)


REFUSED: list[tuple[Parts, Ops]] = [
    ({}, {"producer_byte_rate": 1.0}),
    ({"group": "g"}, {"producer_byte_rate": 1.0}),
    ({"": "g"}, {}),
    ({"user": ""}, {"producer_byte_rate": 1.0}),
    ({"client-id": ""}, {"producer_byte_rate": 1.0}),
    ({"ip": ""}, {"connection_creation_rate": 1.0}),
    ({"ip": "not an address"}, {"connection_creation_rate": 1.0}),
    ({"user": "a", "ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
    ({"client-id": "a", "ip": None}, {}),
    ({"user": "a"}, {"nonsense": 1.0}),
    ({"user": "a"}, {"connection_creation_rate": 1.0}),
    ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
    ({"user": "a"}, {"producer_byte_rate": 0.0}),
    ({"user": "a"}, {"producer_byte_rate": -5.0}),
    ({"user": "a"}, {"producer_byte_rate": "-Infinity"}),
    ({"user": "a"}, {"producer_byte_rate": "Infinity"}),
    ({"user": "a"}, {"consumer_byte_rate": 1.5}),
    ({"user": "a"}, {"consumer_byte_rate": 1e19}),
    ({"user": "a"}, {"consumer_byte_rate": 0.5}),
    ({"user": "a"}, {"request_percentage": 0.0}),
    ({"client-id": "a"}, {"controller_mutation_rate": -1.0}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.5}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 2147483648.0}),
    ({"user": "a"}, {"consumer_byte_rate": 1.0, "producer_byte_rate": 0.0}),
]


async def test_what_cannot_be_set_is_refused_in_the_same_words(node: KafkaNode) -> None:
    async with both(node) as sides:
        for entry in REFUSED:
            for version in (0, 1):
                await sides.alter(entry, version=version)
                await sides.alter(entry, version=version, validate_only=True)
        await sides.describe()


async def test_of_several_some_may_be_refused(node: KafkaNode) -> None:
    async with both(node) as sides:
        await sides.alter(
            ({"user": "a"}, {"producer_byte_rate": 0.0}),
            ({"user": "b"}, {"producer_byte_rate": 1.0}),
            ({"user": "c"}, {"nonsense": 1.0}),
            ({"user": "d"}, {}),
        )
        await sides.describe()


async def test_one_entity_named_twice(node: KafkaNode) -> None:
    twins: list[Parts] = [{"user": "a"}, {"user": None}, {"user": "a", "client-id": "b"}, {"ip": "10.0.0.1"}]
    async with both(node) as sides:
        for parts in twins:
            key = "connection_creation_rate" if "ip" in parts else "producer_byte_rate"
            await sides.alter((parts, {key: 1.0}), (dict(reversed(parts.items())), {key: 2.0}))
            await sides.describe()
        ops = [{"key": "producer_byte_rate", "value": value, "remove": False} for value in (1.0, 2.0)]
        entry: Any = {"entity": [{"entityType": "user", "entityName": "z"}], "ops": ops}
        theirs, ours = await sides.ask(ALTER, {"entries": [entry], "validateOnly": False}, 1)
        assert results_of(ours) == results_of(theirs)
        await sides.describe()


async def test_validate_only_changes_nothing(node: KafkaNode) -> None:
    async with both(node) as sides:
        await sides.alter(({"user": "a"}, {"producer_byte_rate": 5.0}))
        await sides.alter(
            ({"user": "a"}, {"producer_byte_rate": 6.0}), ({"user": "b"}, {"producer_byte_rate": 6.0}),
            validate_only=True,
        )  # fmt: skip
        await sides.describe()


async def test_whatever_is_asked_at_random(node: KafkaNode) -> None:
    random = Random(20_260_101)
    kinds: list[list[str]] = [["user"], ["client-id"], ["user", "client-id"], ["ip"], ["group"], []]
    keys = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate", "x"]
    async with both(node) as sides:
        for _ in range(60):
            entries: list[tuple[Parts, Ops]] = []
            for _ in range(random.randint(1, 4)):
                parts: Parts = {
                    kind: random.choice(["10.0.0.1", None] if kind == "ip" else ["a", "b", None])
                    for kind in random.choice(kinds)
                }
                key = random.choice(keys)
                value = random.choice([None, None, 1.0, 2.5, 1000.0, 0.0, -1.0])
                entries.append((parts, {key: value}))
            await sides.alter(*entries, validate_only=random.random() < 0.2)
        await sides.describe()
        await sides.describe(("user", 2, None), ("client-id", 2, None), strict=True)
