"""The quota file: what it may say, and that errors name key and line."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from sluice.proxy.quota_store.file_watch import QuotaFile
from sluice.proxy.quota_store.schema import quotas_schema
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.load import load_quotas
from sluice.quotas.files.quota_file import parse_quotas, parse_quotas_in_steps
from sluice.quotas.files.yaml_lines import parse_yaml, parse_yaml_in_steps
from sluice.quotas.kinds import KIND_BY_KEY, QuotaKind
from sluice.quotas.limits.scheduled import limits_at, limits_at_in_steps
from testkit.proxy.quota_texts import BAD, GOOD

RATE = "producer_byte_rate"


def errors_of(text: str) -> list[str]:
    with pytest.raises(QuotaFileError) as caught:
        parse_quotas(text, "q")
    return str(caught.value).splitlines()


def test_each_entry_becomes_the_limits_of_its_entity() -> None:
    assert parse_quotas(GOOD, "q").entries == {
        QuotaEntity("alice", "app-1"): {"producer_byte_rate": 1048576},
        QuotaEntity(DEFAULT, None): {"consumer_byte_rate": 1000000},
        QuotaEntity(None, DEFAULT): {"producer_byte_rate": 5000, "consumer_byte_rate": 6000},
    }


@pytest.mark.parametrize(
    ("shadow", "keys"),
    [("true", {RATE, "consumer_byte_rate"}), (f"[{RATE}]", {RATE}), ("false", set())],
)
def test_an_entry_or_some_of_its_limits_can_be_in_shadow_mode(shadow: str, keys: set[str]) -> None:
    limits = parse_quotas(
        f"quotas:\n  - user: a\n    {RATE}: 1\n    consumer_byte_rate: 1\n    shadow: {shadow}\n", "q"
    )
    assert limits.entries == {QuotaEntity("a"): {RATE: 1, "consumer_byte_rate": 1}}
    assert limits.shadow.get(QuotaEntity("a"), set()) == keys


EXEMPT = """\
quotas: []
exempt:
  - user: backup
  - address: 10.1.0.0/16
    client-id: replicator
  - user: ops
    address: ::ffff:10.2.0.1
"""


def test_rules_say_whom_no_limit_delays() -> None:
    assert parse_quotas(EXEMPT, "q").exempt.rules == (
        ExemptRule("backup"),
        ExemptRule(network=network_of("10.1.0.0/16"), client_id="replicator"),
        ExemptRule("ops", network_of("10.2.0.1")),
    )
    assert parse_quotas("quotas: []\nexempt: []", "q").exempt.rules == ()


WRONG_RULES = [
    ("user: User:backup", "3: .user", "write it without its type: backup"),
    (
        "client-id: x",
        "3: .client-id",
        "a client-id alone exempts whoever uses that name; give user or address with it",
    ),
    (
        "user: ANONYMOUS\n    client-id: x",
        "4: .client-id",
        "user ANONYMOUS is anybody, so this is a client-id alone",
    ),
    (
        "client-id: x\n    address: 0.0.0.0/0",
        "3: .client-id",
        "address 0.0.0.0/0 is every address, so this is a client-id alone",
    ),
    ("{}", "3: ", "names nobody; give user, address or both"),
    ("backup", "3: ", "must be a mapping such as `user: backup`, is 'backup'"),
    ("user: <default>", "3: .user", "must name one user; <default> would exempt every other one"),
    ("user:", "3: .user", "must not be blank; for every other user write <default>"),
    ("users: a", "3: .users", "unknown key; did you mean user?"),
    (
        "address: 10.1.2.3/16",
        "3: .address",
        "must be an address or a network such as 10.1.0.0/16: 10.1.2.3/16 has host bits set",
    ),
    ("address: 10.1", "3: .address", "must be an address or a network such as 10.1.0.0/16: is 10.1"),
]


@pytest.mark.parametrize(("rule", "place", "message"), WRONG_RULES, ids=[row[0] for row in WRONG_RULES])
def test_an_exempt_rule_that_is_wrong_is_refused_with_its_line(rule: str, place: str, message: str) -> None:
    line, key = place.split(": ")
    errors = errors_of(f"quotas: []\nexempt:\n  - {rule}\n")
    assert f"q:{line}: exempt[0]{key}: {message}" in errors


def test_exempt_must_be_a_list() -> None:
    assert errors_of("quotas: []\nexempt:\n") == ["q:2: exempt: is blank; leave it out to exempt nobody"]
    assert errors_of("quotas: []\nexempt: alice\n") == [
        "q:2: exempt: must be a list of rules (each begins with `- `); leave it out to exempt nobody"
    ]


def test_no_limits_at_all_must_be_said() -> None:
    assert not parse_quotas("quotas: []", "q").entries
    for text, line in (("", "q"), ("# soon\n", "q")):
        assert errors_of(text) == [
            f"{line}: must begin with `quotas:`, a list of limits; no limits at all: `quotas: []`"
        ]
    assert errors_of("quotas:\n") == ["q:1: quotas: is blank; no limits at all: `quotas: []`"]
    assert errors_of("quotas: 5\n") == [
        "q:1: quotas: must be a list of entries (each begins with `- `); no limits at all: `quotas: []`"
    ]


@pytest.mark.parametrize(
    ("said", "refuses"), [("", False), ("over_budget: forward", False), ("over_budget: refuse", True)]
)
def test_a_producer_byte_rate_may_refuse_what_is_over_budget(said: str, refuses: bool) -> None:
    text = f"quotas:\n  - user: a\n    {RATE}: 1\n    consumer_byte_rate: 1\n    {said}\n"
    limits = parse_quotas(text, "q")
    assert limits.refusing == ({QuotaEntity("a")} if refuses else set())
    found = [limits.resolve(kind, "a", "app") for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)]
    assert [match is not None and match.refuses for match in found] == [refuses, False]


def test_a_default_that_refuses_does_so_in_the_buckets_that_it_makes_and_while_a_window_is_open() -> None:
    text = (
        f"quotas:\n  - user: <default>\n    client-id: <default>\n    {RATE}: 1\n    over_budget: refuse\n"
        f"    schedule: [{{date: 2026-01-01, {RATE}: 2}}]\n"
    )
    limits = limits_at(parse_quotas(text, "q"), 1_767_225_600.0).limits
    match = limits.resolve(QuotaKind.PRODUCE, "a", "app")
    assert match is not None
    assert (match.limit, match.bucket, match.refuses) == (2, QuotaEntity("a", "app"), True)


WRONG_ENTRIES = [
    (
        f"user: a\n    {RATE}: 1\n    over_budget: wait",
        "4: over_budget",
        "must be forward or refuse, is 'wait'",
    ),
    (
        f"user: a\n    {RATE}: 1\n    over_budget: [refuse]",
        "4: over_budget",
        "must be forward or refuse, is ['refuse']",
    ),
    (
        "user: a\n    consumer_byte_rate: 1\n    over_budget: refuse",
        "4: over_budget",
        "is of producer_byte_rate, which this entry does not have",
    ),
    ("user:", "2: user", "must not be blank; for every other user write <default>"),
    ("user: ' '", "2: user", "must not be blank; for every other user write <default>"),
    ("user: 12", "2: user", "must be a text, is 12; write it in quotes: '12'"),
    (f"user: User:alice\n    {RATE}: 1", "2: user", "write it without its type: alice"),
    ("client-id: true", "2: client-id", "must be a text, is true; write it in quotes: 'true'"),
    (
        "user: a\n    shadow: 1",
        "3: shadow",
        "must be true, or a list of keys such as [producer_byte_rate], is 1",
    ),
    (
        "user: a\n    shadow: []",
        "3: shadow",
        "must be true, or a list of keys such as [producer_byte_rate], is []",
    ),
    (
        f"user: a\n    {RATE}: 1\n    shadow: [consumer_byte_rate]",
        "4: shadow[0]",
        f"'consumer_byte_rate' is no limit of this entry; it has {RATE}",
    ),
    ("user: a\n    shadow: [[1]]", "3: shadow[0]", "[1] is no limit of this entry; it has none"),
    ("client_id: a", "2: client_id", "unknown key; did you mean client-id?"),
    (
        "user: a\n    client-id: b\n    producer_ids_rate: 5",
        "4: producer_ids_rate",
        "producer_ids_rate is for users; leave client-id out",
    ),
    (
        "user: a\n    producer_bite_rate: 1",
        "3: producer_bite_rate",
        "unknown key; did you mean producer_byte_rate?",
    ),
    (f"user: a\n    {RATE}:", f"3: {RATE}", "must not be blank; leave the key out for no limit"),
    (
        f"user: a\n    {RATE}: 0",
        f"3: {RATE}",
        f"Quota {RATE} must be greater than 0; is 0 (bytes per second)",
    ),
    (
        f"user: a\n    {RATE}: 1.5",
        f"3: {RATE}",
        f"{RATE} cannot be a fractional value; is 1.5 (bytes per second)",
    ),
    (
        f"user: a\n    {RATE}: 1MB",
        f"3: {RATE}",
        f"Quota {RATE} must be a whole number, not '1MB' (bytes per second); "
        "write 1000000 (1 MB) or 1048576 (1 MiB)",
    ),
    (
        f"user: a\n    {RATE}: '1048576'",
        f"3: {RATE}",
        f"Quota {RATE} must be a whole number, not '1048576' (bytes per second); write 1048576",
    ),
    (
        "user: a\n    request_percentage: 50%",
        "3: request_percentage",
        "Quota request_percentage must be a number, not '50%' (percent of one broker thread); write 50",
    ),
]


@pytest.mark.parametrize(("entry", "place", "message"), WRONG_ENTRIES, ids=[row[0] for row in WRONG_ENTRIES])
def test_an_error_names_the_key_its_line_and_what_would_be_right(
    entry: str, place: str, message: str
) -> None:
    line, key = place.split(": ")
    assert f"q:{line}: quotas[0].{key}: {message}" in errors_of(f"quotas:\n  - {entry}\n")


def test_an_entry_needs_a_name_and_a_limit() -> None:
    assert errors_of("quotas:\n  - producer_byte_rate: 1\n  - user: a\n  - 5\n") == [
        "q:2: quotas[0]: names nobody; give user or tenant, or client-id or client-id-prefix, "
        "or one of each; or ip",
        f"q:3: quotas[1]: sets no limit; give {' or '.join(KIND_BY_KEY)}",
        "q:4: quotas[2]: must be a mapping such as `user: alice`, is 5",
    ]


def test_one_entity_twice_is_refused_with_both_lines() -> None:
    text = "quotas:\n  - user: a\n    producer_byte_rate: 1\n  - user: a\n    consumer_byte_rate: 1\n"
    assert errors_of(text) == ["q:4: quotas[1]: user 'a' has limits already, on line 2; put them together"]


def test_a_key_twice_in_one_entry_is_refused() -> None:
    text = "quotas:\n  - user: a\n    producer_byte_rate: 1\n    producer_byte_rate: 2\n"
    assert errors_of(text) == [
        "q:4: quotas[0].producer_byte_rate: duplicate key; it stands on line 3 already"
    ]


def test_what_does_not_belong_beside_quotas_is_refused() -> None:
    assert errors_of("quotas: []\nquota: []\n") == ["q:2: quota: unknown key; did you mean quotas?"]


def test_a_large_file_is_read_in_many_small_steps() -> None:
    text = "quotas:\n" + "".join(
        f"  - user: user-{index}\n    producer_byte_rate: {index + 1}\n" for index in range(1000)
    )
    assert sum(1 for _ in parse_quotas_in_steps(text, "q")) > 25
    assert len(parse_quotas(text, "q").entries) == 1000


WINDOWS = "".join(
    f"{{date: 2026-12-{number % 28 + 1:02}, from: '{number // 28:02}:00', to: '20:00', {RATE}: 7}}, "
    for number in range(100)
)

WITH_WINDOWS = "quotas:\n" + "".join(
    f"- {{user: u{index}, {RATE}: 1, schedule: [{WINDOWS}]}}\n" for index in range(20)
)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("quotas: []\nexempt:\n" + "".join(f"- {{user: user-{index}}}\n" for index in range(1_000)), 18),
        (WITH_WINDOWS, 18),
    ],
    ids=["exempt rules", "windows"],
)
def test_what_stands_beside_limits_is_read_in_small_steps_too(text: str, least: int) -> None:
    """Beyond those in which the YAML is read and its lines are freed."""
    steps, of_yaml = (
        sum(1 for _ in read(text, "q")) for read in (parse_quotas_in_steps, parse_yaml_in_steps)
    )
    of_lines = -(-len(parse_yaml(text, "q").lines) // 5_000)
    assert steps - of_yaml - of_lines >= least


def test_many_windows_are_looked_at_in_small_steps_whosever_they_are() -> None:
    limits = parse_quotas(WITH_WINDOWS, "q")
    assert sum(1 for _ in limits_at_in_steps(limits, 0.0)) >= 2_000 / 20 - 1


SHADOW = GOOD.replace("client-id: app-1\n", "client-id: app-1\n    shadow: {}\n")
FURTHER = [
    *(SHADOW.format(value) for value in ("true", "false", f"[{RATE}]", "[]", "[1]", "1", "{}")),
    *(
        f"{GOOD}exempt: {rules}\n"
        for rules in (
            "[]",
            "5",
            "[{}]",
            "[{user: a}]",
            "[{user: 'User:a'}]",
            "[{client-id: a}]",
            "[{users: a}]",
        )
    ),
    EXEMPT,
]


@pytest.mark.parametrize(
    "text", [GOOD, "quotas: []", "quotas:\n  - user: a\n", "quotas: 5", "{}", BAD, *FURTHER]
)
def test_the_json_schema_accepts_what_the_reader_accepts(text: str) -> None:
    def schema_accepts() -> bool:
        return jsonschema.Draft202012Validator(quotas_schema()).is_valid(parse_yaml(text, "q").value)

    try:
        parse_quotas(text, "q")
    except QuotaFileError:
        assert not schema_accepts()
    else:
        assert schema_accepts()


def test_a_missing_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(QuotaFileError, match=r"none\.yaml: cannot read .*: no such file or directory"):
        QuotaFile(tmp_path / "none.yaml").load()
    with pytest.raises(QuotaFileError, match="cannot read the quota file: is a directory"):
        load_quotas(tmp_path)


def test_the_generated_schema_is_json() -> None:
    assert json.loads(json.dumps(quotas_schema()))["required"] == ["quotas"]
