"""Quotas at a running process: what is asked for is sent, in bounded pieces, and a refusal is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.edit import Changes, Whom, whom_of
from sluice.proxy.cli.quotas.listing import (
    Listing,
    as_double,
    compared,
    described,
    differences,
    listing_of,
    yaml_of,
)
from sluice.proxy.cli.quotas.remote import (
    ENTITIES_AT_ONCE,
    UNTOLD,
    RemotePlace,
    names_of,
    refusal,
    whom_of_names,
)
from sluice.quotas.files.config_error import ConfigError


class Kept(RemotePlace):
    """Keeps limits in memory; refuses users of a certain name."""

    name = "kept"

    def __init__(
        self,
        limits: Mapping[Whom, Mapping[str, float]],
        shadow: Mapping[Whom, frozenset[str]] | None = None,
    ) -> None:
        self.limits = {whom: dict(keys) for whom, keys in limits.items()}
        self.shadow = dict(shadow or {})
        self.sent: list[int] = []
        self.tried: list[int] = []

    @property
    def written(self) -> str:
        return ""

    def _found(self) -> Listing:
        return Listing(self.limits, self.shadow)

    def _change(self, changes: Mapping[Whom, Changes], *, validate_only: bool) -> list[str]:
        (self.tried if validate_only else self.sent).append(len(changes))
        refused = []
        for whom, keys in changes.items():
            if ("user", "nobody") in whom:
                refused.append(f"{described(whom)}: {refusal(42, 'not he')}")
                continue
            if validate_only:
                continue
            now = {**self.limits.get(whom, {}), **keys}
            self.limits[whom] = {key: limit for key, limit in now.items() if limit is not None}
        return refused


def user(name: str) -> Whom:
    return whom_of({"user": name})


def test_what_is_so_already_is_sent_all_the_same_and_told() -> None:
    """A record that is on its way there, or was lost, is not in what the place tells: of an admin who took a
    limit back, or set it again as the documentation tells, nothing was sent."""
    place = Kept({user("a"): {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}})
    assert not place.alter({user("a"): {"producer_byte_rate": 1, "request_percentage": None}})
    assert place.sent == [1]
    assert place.alter({user("a"): {"producer_byte_rate": 1, "consumer_byte_rate": None}})
    assert (place.limits, place.sent) == ({user("a"): {"producer_byte_rate": 1.0}}, [1, 1])


def test_a_limit_that_is_only_tried_is_set_though_its_number_is_the_same() -> None:
    place = Kept({user("a"): {"producer_byte_rate": 1.0}}, {user("a"): frozenset({"producer_byte_rate"})})
    assert place.listing().limits_of(user("a")) == {"producer_byte_rate": (1.0, True)}
    assert place.alter({user("a"): {"producer_byte_rate": 1}})
    assert place.sent == [1]


def test_what_is_in_shadow_mode_there_already_may_stay_so() -> None:
    """Only what would have to be put in shadow mode is refused."""
    place = Kept({user("a"): {"producer_byte_rate": 1.0}}, {user("a"): frozenset({"producer_byte_rate"})})
    now = place.listing()
    wanted = Listing({**now.limits, user("b"): {"producer_byte_rate": 2.0}}, now.shadow)
    place.become(wanted, list(differences(now, wanted)))
    assert place.limits[user("b")] == {"producer_byte_rate": 2.0}
    more = Listing({user("a"): {"producer_byte_rate": 3.0}}, now.shadow)
    with pytest.raises(ConfigError, match="producer_byte_rate is in shadow mode"):
        place.become(more, list(differences(now, more)))


def test_many_entities_are_sent_in_pieces() -> None:
    wanted = Listing(
        {user(f"user-{n}"): {"producer_byte_rate": n + 1} for n in range(2 * ENTITIES_AT_ONCE + 1)}
    )
    place = Kept({user("old"): {"producer_byte_rate": 5.0}})
    place.become(wanted, list(differences(place.listing(), wanted)))
    assert place.tried == place.sent == [ENTITIES_AT_ONCE, ENTITIES_AT_ONCE, 2]
    assert list(differences(place.listing(), wanted)) == []
    assert user("old") not in place.listing().limits


def test_a_refusal_names_place_entity_and_error_and_ends_it() -> None:
    place = Kept({})
    changes = {user(name): {"producer_byte_rate": 1.0} for name in ("a", "nobody")}
    with pytest.raises(CommandFailed) as caught:
        place.alter(changes)
    told = "kept: user-principal 'nobody': error 42 INVALID_REQUEST: not he"
    assert str(caught.value) == f"{told}\nkept: nothing is changed"
    assert (place.limits, place.sent) == ({}, [])


def test_all_that_is_refused_is_told_before_the_first_piece_is_changed() -> None:
    """A key that a broker does not have stood behind 500 others, which were changed."""
    wanted = {user(f"user-{n}"): {"producer_byte_rate": 1.0} for n in range(2 * ENTITIES_AT_ONCE)}
    names = whom_of({"user": "nobody"}), whom_of({"user": "nobody", "client-id": "app"})
    place = Kept({})
    with pytest.raises(CommandFailed) as caught:
        place.alter(wanted | {name: {"producer_ids_rate": 3.0} for name in names})
    assert (place.limits, place.sent) == ({}, [])
    assert [line.count("nobody") for line in str(caught.value).splitlines()] == [1, 1, 0]


def test_one_entity_is_not_tried_first() -> None:
    place = Kept({})
    place.alter({user("a"): {"producer_byte_rate": 1.0}})
    assert (place.tried, place.sent) == ([], [1])


@pytest.mark.parametrize(
    ("whom", "shadow", "message"),
    [
        (user("a"), frozenset({"producer_byte_rate"}), "producer_byte_rate is in shadow mode"),
        (whom_of({"tenant": "team"}), frozenset(), "tenant 'team': is an entity that only Sluice has"),
        (whom_of({"client-id-prefix": "etl-"}), frozenset(), "is an entity that only Sluice has"),
    ],
)
def test_what_only_a_quota_file_can_have_is_refused_before_anything_is_sent(
    whom: Whom, shadow: frozenset[str], message: str
) -> None:
    wanted = Listing(
        {whom: {"producer_byte_rate": 1.0}, user("b"): {"producer_byte_rate": 1.0}}, {whom: shadow}
    )
    place = Kept({})
    with pytest.raises(ConfigError, match=message):
        place.become(wanted, list(differences(place.listing(), wanted)))
    assert place.sent == []


def test_what_is_over_budget_cannot_be_kept_by_kafkas_api() -> None:
    wanted = Listing({user("a"): {"producer_byte_rate": 1.0}}, refusing=frozenset([user("a")]))
    place = Kept({})
    with pytest.raises(ConfigError, match="has over_budget: refuse; only a quota file can have that"):
        place.become(wanted, list(differences(place.listing(), wanted)))
    assert place.sent == []


def test_names_are_those_of_kafkas_api_and_back() -> None:
    names = {"client-id": "app", "user": None}
    whom = whom_of_names(names)
    assert whom == (("user", "<default>"), ("client-id", "app"))
    assert names_of(whom) == names
    assert whom_of_names({"ip": "2001:DB8::0:1"}) == (("ip", "2001:db8::1"),)
    assert whom_of_names({"ip": "a-host"}) == (("ip", "a-host"),)  # which a broker takes


@pytest.mark.parametrize(
    ("set_to", "told"), [(2**63 - 1, 2.0**63), (2**53 + 1, 2.0**53), (2**60 + 1, 2.0**60), (7, 7.0)]
)
def test_a_limit_is_that_of_a_place_that_has_doubles(set_to: int, told: float) -> None:
    file = listing_of(f"quotas: [{{user: a, producer_byte_rate: {set_to}}}]", "file")
    server = Listing({user("a"): {"producer_byte_rate": as_double(told)}}, has_doubles=True)
    assert not list(differences(file, server))
    assert not list(differences(server, file))
    exported = listing_of(yaml_of(server), "export")
    assert not list(differences(exported, server))
    assert [len(list(differences(file, Listing({})))), len(list(differences(Listing({}), server)))] == [1, 1]


def test_where_whole_numbers_are_kept_as_they_are_each_counts() -> None:
    file = listing_of(f"quotas: [{{user: a, producer_byte_rate: {2**53 + 1}}}]", "file")
    assert list(differences(file, Listing({user("a"): {"producer_byte_rate": 2.0**53}})))


def test_a_list_is_in_one_order_wherever_it_comes_from() -> None:
    place = Kept(
        {
            whom_of({"user": "a", "client-id": "x"}): {"producer_byte_rate": 1.0},
            whom_of({"client-id": "x"}): {"producer_byte_rate": 1.0},
            user("<default>"): {"producer_byte_rate": 1.0},
            user("b"): {"producer_byte_rate": 1.0},
            user("empty"): {},
        }
    )
    assert [described(whom) for whom in place.listing().limits] == [
        "user-principal 'b'",
        "the default user-principal",
        "client-id 'x'",
        "user-principal 'a', client-id 'x'",
    ]


def test_what_kafkas_api_cannot_tell_is_left_out_of_a_comparison_and_named() -> None:
    file = listing_of(
        "tenants: [{name: t, members: [bob]}]\n"
        "exempt: [{user: backup}]\n"
        "quotas:\n"
        "  - {tenant: t, producer_byte_rate: 1}\n"
        "  - {user: a, producer_byte_rate: 1, over_budget: refuse}\n"
        "  - {user: b, producer_byte_rate: 2, shadow: true}\n"
        "  - {user: c, producer_byte_rate: 3, schedule: [{days: [sat], producer_byte_rate: 4}]}\n"
        "  - {user: d, producer_byte_rate: 5}\n",
        "file",
    )
    kafkas = {user(name): {"producer_byte_rate": rate} for name, rate in (("a", 1), ("c", 3))}
    found, left_out = compared(file, Listing(kafkas, untold=UNTOLD))
    assert [str(difference) for difference in found] == ["- user-principal 'd': producer_byte_rate=5"]
    assert left_out == [
        "tenant 't': producer_byte_rate=1",
        "user-principal 'a': over_budget=refuse",
        "user-principal 'b': producer_byte_rate=2 (shadow)",
        'user-principal \'c\': schedule=[{"days": ["sat"], "producer_byte_rate": 4}]',
        'tenants: {"members": ["bob"], "name": "t"}',
        'exempt: {"user": "backup"}',
    ]
    found, left_out = compared(file, Listing({user("b"): {"producer_byte_rate": 2}}))
    assert not [one for one in left_out if "user-principal" in one], "what a place can tell is compared"
    assert "~ user-principal 'b': producer_byte_rate=2 (shadow) → 2" in map(str, found)


def test_who_may_not_ask_is_told_which_ways_there_are() -> None:
    told = refusal(31, "Cluster authorization failed: ANONYMOUS is not in quotas.admins of this proxy.")
    assert told.startswith("error 31 CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed: ANONYMOUS ")
    for way in ("--command-config FILE", "--admin-socket FILE", "`sluice top --why`"):
        assert way in told
    assert ".." not in told
    assert "--admin-socket" not in refusal(42, "not he")
