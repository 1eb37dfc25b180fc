"""Tenants and client-id prefixes in the quota file: what it may say, and that errors name key and line."""

from __future__ import annotations

import jsonschema
import pytest

from sluice.proxy.quota_store.schema import quotas_schema
from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, Tenant
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas, parse_quotas_in_steps
from sluice.quotas.files.yaml_lines import parse_yaml

RATE = "producer_byte_rate"
GOOD = f"""\
tenants:
  - name: team-a
    members: [alice, bob]
  - name: team-b
    members: []
quotas:
  - tenant: team-a
    {RATE}: 1
  - tenant: team-a
    client-id: <default>
    {RATE}: 2
  - tenant: team-b
    client-id-prefix: app-
    {RATE}: 3
  - user: <default>
    client-id-prefix: app-
    shadow: true
    {RATE}: 4
  - client-id-prefix: app-
    {RATE}: 5
"""
TEAM = Tenant("team-a")


def errors_of(text: str) -> list[str]:
    with pytest.raises(QuotaFileError) as caught:
        parse_quotas(text, "q")
    return str(caught.value).splitlines()


def test_groups_stand_in_the_place_of_a_user_and_of_a_client_id() -> None:
    limits = parse_quotas(GOOD, "q")
    assert {entity: values[RATE] for entity, values in limits.entries.items()} == {
        QuotaEntity(TEAM): 1,
        QuotaEntity(TEAM, DEFAULT): 2,
        QuotaEntity(Tenant("team-b"), Prefix("app-")): 3,
        QuotaEntity(DEFAULT, Prefix("app-")): 4,
        QuotaEntity(None, Prefix("app-")): 5,
    }
    assert limits.tenants == {"team-a": ("alice", "bob"), "team-b": ()}
    assert limits.shadow[QuotaEntity(DEFAULT, Prefix("app-"))] == {RATE}


WRONG_TENANTS = [
    ("team-a", "2: [0]", "must be a mapping such as `name: team-a`, is 'team-a'"),
    ("name: a", "2: [0]", "has no members"),
    ("members: []", "2: [0]", "has no name"),
    ("name:\n    members: []", "2: [0].name", "must not be blank"),
    ("name: 5\n    members: []", "2: [0].name", "must be a text, is 5; write it in quotes: '5'"),
    ("name: <default>\n    members: []", "2: [0].name", "must name one name, not <default>"),
    ("name: a\n    members: alice", "3: [0].members", "must be a list such as [alice, bob], is 'alice'"),
    ("name: a\n    members: [alice, 5]", "3: [0].members[1]", "must be the name of one user, is 5"),
    (
        "name: a\n    members:\n      - <default>",
        "4: [0].members[0]",
        "must be the name of one user, is '<default>'",
    ),
    ("name: a\n    members: [x, User:alice]", "3: [0].members[1]", "write it without its type: alice"),
    ("name: a\n    members: []\n    user: x", "4: [0].user", "unknown key; known here: members, name"),
    (
        "name: a\n    members: []\n  - name: a\n    members: []",
        "4: [1].name",
        "'a' is there already, on line 2",
    ),
    (
        "name: a\n    members: [x, alice]\n  - name: b\n    members:\n      - y\n      - alice",
        "7: [1].members[1]",
        "'alice' is a member already, on line 3; a user has one tenant at most",
    ),
]


@pytest.mark.parametrize(("tenant", "place", "message"), WRONG_TENANTS, ids=[row[2] for row in WRONG_TENANTS])
def test_a_tenant_that_is_wrong_is_refused_with_its_line(tenant: str, place: str, message: str) -> None:
    line, where = place.split(": ")
    assert f"q:{line}: tenants{where}: {message}" in errors_of(f"tenants:\n  - {tenant}\nquotas: []\n")


def test_tenants_must_be_a_list() -> None:
    assert errors_of("quotas: []\ntenants:\n") == [
        "q:2: tenants: is blank; leave it out where there are none"
    ]
    assert errors_of("quotas: []\ntenants: {}\n") == [
        "q:2: tenants: must be a list of tenants (each begins with `- `); leave it out where there are none"
    ]


WRONG_ENTRIES = [
    ("tenant: team-x", "2: tenant", "'team-x' is not in `tenants:`"),
    ("tenant:", "2: tenant", "must not be blank"),
    ("tenant: <default>", "2: tenant", "must name one tenant, not <default>"),
    ("user: a\n    tenant: team-a", "3: tenant", "stands in the place of user; leave one of them out"),
    (
        "client-id-prefix: a\n    client-id: ab",
        "2: client-id-prefix",
        "stands in the place of client-id; leave one of them out",
    ),
    ("client-id-prefix: ''", "2: client-id-prefix", "must not be blank"),
    (
        "client-id-prefix: <default>",
        "2: client-id-prefix",
        "must name one client-id-prefix, not <default>; write client-id for every other client id",
    ),
    (
        "client-id-prefix: app-*",
        "2: client-id-prefix",
        "is how client ids begin, to the letter; leave the * out",
    ),
    ("client-id-prefix: 5", "2: client-id-prefix", "must be a text, is 5; write it in quotes: '5'"),
    (
        "ip: 10.0.0.1\n    tenant: team-a\n    client-id-prefix: x",
        "2: ip",
        "stands alone; leave tenant and client-id-prefix out of this entry",
    ),
    (
        "tenant: team-a\n    producer_ids_rate: 5",
        "3: producer_ids_rate",
        "producer_ids_rate is for users, whose ids are known apart; give it to the tenant's members "
        "or to <default>",
    ),
    (
        "user: a\n    client-id-prefix: x\n    producer_ids_rate: 5",
        "4: producer_ids_rate",
        "producer_ids_rate is for users; leave client-id-prefix out",
    ),
]
TENANTS = "tenants: [{name: team-a, members: [alice]}]\n"


@pytest.mark.parametrize(("entry", "place", "message"), WRONG_ENTRIES, ids=[row[0] for row in WRONG_ENTRIES])
def test_an_entry_of_a_group_that_is_wrong_is_refused_with_its_line(
    entry: str, place: str, message: str
) -> None:
    line, key = place.split(": ")
    assert f"q:{line}: quotas[0].{key}: {message}" in errors_of(f"quotas:\n  - {entry}\n{TENANTS}")


def test_one_entity_of_a_group_twice_is_refused_with_both_lines() -> None:
    text = f"{TENANTS}quotas:\n  - tenant: team-a\n    {RATE}: 1\n  - tenant: team-a\n    {RATE}: 2\n"
    assert errors_of(text) == [
        "q:5: quotas[1]: tenant 'team-a' has limits already, on line 3; put them together"
    ]


def test_a_large_tenant_is_read_in_many_small_steps() -> None:
    members = ", ".join(f"user-{index}" for index in range(20_000))
    text = f"tenants: [{{name: a, members: [{members}]}}]\nquotas: []\n"
    small = "tenants: [{name: a, members: [x]}]\nquotas: []\n"
    steps, of_yaml = (sum(1 for _ in parse_quotas_in_steps(one, "q")) for one in (text, small))
    assert steps - of_yaml > 20_000 / 200 + 20, "beyond those of the YAML, at 200 events a step"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        TENANTS + "quotas: []",
        "tenants: []\nquotas: []",
        "tenants: [{name: a}]\nquotas: []",
        "tenants: [{name: '', members: []}]\nquotas: []",
        "tenants: [{name: a, members: [x, x]}]\nquotas: []",
        "tenants: [{name: a, members: x}]\nquotas: []",
        f"{TENANTS}quotas: [{{user: a, tenant: team-a, {RATE}: 1}}]",
        f"quotas: [{{client-id: a, client-id-prefix: b, {RATE}: 1}}]",
        f"quotas: [{{client-id-prefix: b, {RATE}: 1}}]",
    ],
)
def test_the_json_schema_accepts_what_the_reader_accepts(text: str) -> None:
    accepted = jsonschema.Draft202012Validator(quotas_schema()).is_valid(parse_yaml(text, "q").value)
    try:
        parse_quotas(text, "q")
    except QuotaFileError:
        assert not accepted
    else:
        assert accepted
