"""A broker's own quotas beside the proxy's: which applies there, and whose rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sluice.proxy.cli.at_broker import BrokerQuotas
from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.edit import Changes, Whom
from sluice.proxy.cli.quotas.listing import Difference, Listing
from sluice.proxy.cli.quotas.remote import whom_of_names
from sluice.quotas.kinds import KINDS, QuotaKind

PRODUCE, FETCH, REQUEST = KINDS[QuotaKind.PRODUCE], KINDS[QuotaKind.FETCH], KINDS[QuotaKind.REQUEST]


class Broker:
    """A place that has limits and takes none."""

    name = "kafka:9092"

    def __init__(self, *entries: tuple[Mapping[str, str | None], Mapping[str, float]]) -> None:
        self._limits = {whom_of_names(whom): limits for whom, limits in entries}

    @property
    def written(self) -> str:
        return ""

    def listing(self) -> Listing:
        return Listing(self._limits)

    def alter(self, changes: Mapping[Whom, Changes]) -> bool:
        raise NotImplementedError

    def become(self, wanted: Listing, found: Sequence[Difference], *, in_part: bool = False) -> None:
        raise NotImplementedError

    def alone(self, *also: Path) -> AbstractContextManager[None]:
        raise NotImplementedError


BROKER = Broker(
    ({"user": "alice"}, {"producer_byte_rate": 500_000.0}),
    ({"user": "alice", "client-id": "app"}, {"consumer_byte_rate": 7.0}),
    ({"client-id": None}, {"request_percentage": 50.0}),
    ({"ip": "a-host"}, {"connection_creation_rate": 5.0}),
    ({"user": "bob"}, {"a_key_of_a_later_version": 5.0}),
)


def asked(user: str = "alice", client_id: str = "app") -> BrokerQuotas:
    return BrokerQuotas.asked(BROKER, user, client_id)


@pytest.mark.parametrize(
    ("ours", "told", "rules"),
    [
        (None, "The proxy delays nobody here: the broker's rules.", "broker"),
        (600_000.0, "Both apply; the lower rules: the broker's, 500,000 bytes per second.", "broker"),
        (400_000.0, "Both apply; the lower rules: the proxy's, 400,000 bytes per second.", "proxy"),
        (500_000.0, "Both apply, and they are the same.", "both"),
    ],
)
def test_both_limits_apply_and_the_lower_rules(ours: float | None, told: str, rules: str) -> None:
    shared = "500,000 bytes per second, shared by user 'alice' (user)"
    begin = f"A limit at the broker kafka:9092 applies, too: {shared}. "
    assert asked().told(PRODUCE, "app", ours) == begin + told
    assert asked().as_json(PRODUCE, "app", ours) == {
        "name": "kafka:9092",
        "user": "alice",
        "limit": 500_000.0,
        "rule": "user",
        "shared_by": {"user": "alice"},
        "rules": rules,
    }


def test_who_has_no_limit_there_is_told_so() -> None:
    assert asked("bob").told(PRODUCE, "app", 5.0) == "At the broker kafka:9092: unlimited."
    answer = asked("bob").as_json(PRODUCE, "app", 5.0)
    assert (answer["limit"], answer["rules"]) == (None, "proxy")
    assert asked("bob").as_json(PRODUCE, "app", None)["rules"] is None


def test_levels_and_defaults_are_looked_up_as_in_the_broker() -> None:
    fetch = asked().match(FETCH, "app")
    assert fetch is not None
    assert (fetch.limit, str(fetch.bucket)) == (7.0, "user 'alice', client-id 'app'")
    assert asked().match(FETCH, "other") is None
    default = asked("carol", "other").match(REQUEST, "other")
    assert default is not None
    assert (default.limit, default.level.value) == (50.0, "default_client")


def test_an_empty_client_id_has_no_default_at_a_broker() -> None:
    """Different from the proxy, which gives it the default (wire-semantics 2)."""
    assert asked("carol", "").match(REQUEST, "") is None
    assert asked("alice", "").match(PRODUCE, "") is not None


def test_a_broker_whose_limits_cannot_be_understood_is_named() -> None:
    broker = Broker(({"user": "alice"}, {"producer_byte_rate": -1.0}))
    with pytest.raises(CommandFailed, match="kafka:9092: "):
        BrokerQuotas.asked(broker, "alice", "")
