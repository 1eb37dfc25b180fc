"""Limits set in a quota file: what is asked for, at its place in the file, and nothing else changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.cli.quotas.edit import Whom, edited, whom_of
from sluice.proxy.cli.quotas.listing import (
    Listing,
    differences,
    java_double,
    kafka_line,
    listing_of,
    merged,
    without_place,
    yaml_of,
)
from sluice.proxy.cli.quotas.places import QuotaFilePlace, lines_of
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import DEFAULT_NAME, parse_quotas
from sluice.quotas.kinds import QuotaKind

FILE = """\
# Who may do what
quotas:
  - user: alice  # the shop
    producer_byte_rate: 1000  # as agreed
    # hers too
    consumer_byte_rate: 2000

  - user: <default>
    producer_ids_rate: 100  # an hour
  - user: alice
    client-id: app
    producer_byte_rate: 7
# the end
exempt: []
"""


def user_of(name: str) -> Whom:
    return whom_of({"user": name})


def with_ids(text: str, user: str, per_hour: float | None) -> str:
    return edited(text, "quotas.yaml", {user_of(user): {"producer_ids_rate": per_hour}})


def limit_of(text: str, user: str) -> float | None:
    match = parse_quotas(text, "quotas.yaml").resolve(QuotaKind.PRODUCER_IDS, user, "")
    return None if match is None else match.limit


def test_a_limit_that_is_there_is_exchanged_and_its_comment_stays() -> None:
    assert with_ids(FILE, DEFAULT_NAME, 50) == FILE.replace("rate: 100 ", "rate: 50 ")


def test_a_limit_joins_its_users_entry() -> None:
    after = with_ids(FILE, "alice", 0.5)
    assert after == FILE.replace("rate: 2000\n", "rate: 2000\n    producer_ids_rate: 0.5\n")


def test_another_user_gets_an_entry_behind_the_last_one() -> None:
    after = with_ids(FILE, "bob", 9)
    entry = '  - user: "bob"\n    producer_ids_rate: 9\n'
    assert after == FILE.replace("# the end", f"{entry}# the end")


def test_a_limit_goes_and_with_the_last_one_its_entry() -> None:
    assert with_ids(FILE, DEFAULT_NAME, None) == FILE.replace(
        "  - user: <default>\n    producer_ids_rate: 100  # an hour\n", ""
    )
    without = edited(FILE, "f", {user_of("alice"): {"producer_byte_rate": None}})
    assert without == FILE.replace("    producer_byte_rate: 1000  # as agreed\n", "")


def test_a_file_without_entries_and_one_that_becomes_so() -> None:
    one = with_ids("quotas: []  # none yet\n", "bob", 3)
    assert (limit_of(one, "bob"), "# none yet" in one) == (3, True)
    assert limit_of(with_ids(one, "bob", None), "bob") is None
    block = "quotas:\n- user: bob\n  producer_ids_rate: 3\n"
    assert parse_quotas(with_ids(block, "bob", None), "f").entries == parse_quotas("quotas: []", "f").entries


def test_json_stays_json() -> None:
    text = '{"quotas": [{"user": "alice", "producer_byte_rate": 5}, {"user": "bob", "producer_ids_rate": 5}]}'
    assert with_ids(text, "alice", 2) == text.replace("5}, ", '5, "producer_ids_rate": 2}, ')
    assert with_ids(text, "bob", None) == '{"quotas": [{"user": "alice", "producer_byte_rate": 5}]}'
    assert with_ids(text, "carol", 1) == text.replace("5}]", '5}, {"user": "carol", "producer_ids_rate": 1}]')


def test_ends_of_lines_stay_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_bytes(FILE.replace("\n", "\r\n").encode())
    assert QuotaFilePlace(file).alter({user_of(DEFAULT_NAME): {"producer_ids_rate": 50}})
    assert file.read_bytes() == FILE.replace("rate: 100 ", "rate: 50 ").replace("\n", "\r\n").encode()


KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
NAMES = st.sampled_from(["alice", DEFAULT_NAME, "bob", "null", 'a "quoted": name', "Ünï #c", "12", "- x"])
WHOMS = st.one_of(
    NAMES.map(user_of),
    NAMES.map(lambda name: whom_of({"client-id": name})),
    st.tuples(NAMES, NAMES).map(lambda names: whom_of({"user": names[0], "client-id": names[1]})),
)
ROUNDS = st.lists(
    st.dictionaries(WHOMS, st.dictionaries(KEYS, st.none() | st.integers(1, 10**9), max_size=3), max_size=4),
    max_size=6,
)
LAYOUTS = {
    "empty": "quotas: []\n",
    "block": FILE,
    "flat": "quotas:\n- user: alice\n  producer_byte_rate: 1\n"
    "- client-id: app  # why\n  producer_byte_rate: 2",
    "json": '{"quotas": [{"producer_byte_rate": 5, "user": "alice", "consumer_byte_rate": 6}, '
    '{"user": "bob", "producer_byte_rate": 5}]}',
    "mixed": "quotas:\n  - {producer_byte_rate: 4, user: alice}\n  - producer_byte_rate: 7\n"
    "    consumer_byte_rate: 8\n    user: bob\n    request_percentage: 9\n",
}


def limits_of(text: str) -> dict[Whom, dict[str, float]]:
    return {whom: dict(limits) for whom, limits in listing_of(text, "f").limits.items()}


@pytest.mark.parametrize("layout", LAYOUTS)
@given(rounds=ROUNDS)
def test_any_sequence_of_changes_says_what_was_asked_for(
    layout: str, rounds: list[dict[Whom, dict[str, int | None]]]
) -> None:
    text = LAYOUTS[layout]
    wanted = limits_of(text)
    for changes in rounds:
        text = edited(text, "f", changes)
        for whom, limits in changes.items():
            now = {**wanted.get(whom, {}), **limits}
            wanted[whom] = {key: limit for key, limit in now.items() if limit is not None}
    assert limits_of(text) == {whom: limits for whom, limits in wanted.items() if limits}
    if layout == "block":
        assert "# Who may do what" in text
        assert "# the end" in text


def test_an_entry_is_added_behind_one_whose_last_line_goes() -> None:
    text = "quotas:\n  - user: alice\n    producer_byte_rate: 1\n# the end\n"
    changes: dict[Whom, dict[str, float | None]] = {
        user_of("alice"): {"producer_byte_rate": None, "consumer_byte_rate": 2},
        user_of("bob"): {"consumer_byte_rate": 3},
    }
    assert edited(text, "f", changes) == (
        "quotas:\n  - user: alice\n    consumer_byte_rate: 2\n"
        '  - user: "bob"\n    consumer_byte_rate: 3\n# the end\n'
    )


def test_many_changes_are_made_at_once_each_at_its_place() -> None:
    changes: dict[Whom, dict[str, float | None]] = {
        user_of("alice"): {"producer_byte_rate": 5, "consumer_byte_rate": None, "request_percentage": 25},
        user_of(DEFAULT_NAME): {"producer_ids_rate": None},
        whom_of({"ip": "10.0.0.1"}): {"connection_creation_rate": 3},
    }
    assert (
        edited(FILE, "f", changes)
        == """\
# Who may do what
quotas:
  - user: alice  # the shop
    producer_byte_rate: 5  # as agreed
    request_percentage: 25
    # hers too

  - user: alice
    client-id: app
    producer_byte_rate: 7
  - ip: "10.0.0.1"
    connection_creation_rate: 3
# the end
exempt: []
"""
    )


def test_an_address_is_found_in_whatever_spelling_it_stands() -> None:
    text = "quotas:\n  - ip: '2001:DB8:0::1'\n    connection_creation_rate: 3\n"
    after = edited(text, "f", {whom_of({"ip": "2001:db8::1"}): {"connection_creation_rate": 4}})
    assert after == text.replace("rate: 3", "rate: 4")


def test_a_limit_that_shadow_names_is_not_removed_from_under_it(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "quotas:\n  - user: a\n    producer_byte_rate: 1\n"
        "    producer_ids_rate: 2\n    shadow: [producer_ids_rate]\n"
    )
    before = file.read_text()
    with pytest.raises(QuotaFileError, match="is no limit of this entry"):
        QuotaFilePlace(file).alter({user_of("a"): {"producer_ids_rate": None}})
    assert file.read_text() == before


def test_what_is_over_budget_goes_with_the_limit_that_it_is_of(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "quotas:\n  - user: a\n    producer_byte_rate: 1\n    producer_ids_rate: 2\n    over_budget: refuse\n"
    )
    place = QuotaFilePlace(file)
    assert lines_of(place.listing(), [user_of("a")])[0].endswith(" (over budget: refuse)")
    assert place.alter({user_of("a"): {"producer_byte_rate": 3}})
    assert place.listing().refusing == {user_of("a")}
    assert place.alter({user_of("a"): {"producer_byte_rate": None}})
    assert file.read_text() == "quotas:\n  - user: a\n    producer_ids_rate: 2\n"


def test_a_layout_that_cannot_be_edited_is_refused() -> None:
    text = "quotas:\n  -\n    user: a\n    producer_ids_rate: 1\n  - user: b\n    producer_ids_rate: 2\n"
    with pytest.raises(QuotaFileError, match="change it by hand"):
        with_ids(text, "a", None)


def test_the_file_is_exchanged_at_once_and_keeps_its_rights_and_its_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "quotas.yaml", tmp_path / "quotas.yaml"
    real.write_text(FILE)
    real.chmod(0o640)
    link.symlink_to(real)
    with open(real, encoding="utf-8") as reader:
        assert QuotaFilePlace(link).alter({user_of("bob"): {"producer_ids_rate": 1}})
        assert reader.read() == FILE  # whoever reads sees all of one state
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(tmp_path / "real") == ["quotas.yaml"]
    assert not QuotaFilePlace(link).alter({user_of("bob"): {"producer_ids_rate": 1}})


# Lists ------------------------------------------------------------------------------------------------------

EVERYTHING = """\
quotas:
  - user: alice
    client-id: "<default>"
    producer_byte_rate: 1048576
    request_percentage: 12.5
    shadow: ["request_percentage"]
  - ip: "<default>"
    connection_creation_rate: 10
    shadow: true
  - tenant: "team"
    client-id-prefix: "etl-"
    producer_byte_rate: 7
tenants:
  - name: "team"
    members: ["bob", "carol"]
exempt:
  - user: "backup"
    address: "10.0.0.0/8"
"""


def test_an_export_says_what_the_file_says() -> None:
    listing = listing_of(EVERYTHING, "f")
    assert yaml_of(listing) == EVERYTHING.replace("user: alice", 'user: "alice"')
    assert listing_of(yaml_of(listing), "again") == listing
    assert yaml_of(listing_of("quotas: []", "f")) == "quotas: []\n"


def test_two_lists_are_compared_entity_by_entity_and_key_by_key() -> None:
    other = (
        EVERYTHING.replace("1048576", "5")
        .replace("    shadow: true\n", "")
        .replace('request_percentage: 12.5\n    shadow: ["request_percentage"]', "consumer_byte_rate: 7")
        .replace("backup", "mirror")
    )
    found = [str(one) for one in differences(listing_of(EVERYTHING, "a"), listing_of(other, "b"))]
    who = "user-principal 'alice', the default client-id"
    assert found == [
        f"~ {who}: producer_byte_rate=1048576 → 5",
        f"- {who}: request_percentage=12.5 (shadow)",
        f"+ {who}: consumer_byte_rate=7",
        "~ the default ip: connection_creation_rate=10 (shadow) → 10",
        '- exempt: {"address": "10.0.0.0/8", "user": "backup"}',
        '+ exempt: {"address": "10.0.0.0/8", "user": "mirror"}',
    ]


def test_a_source_without_a_place_for_exempt_rules_is_not_told_that_it_lacks_them() -> None:
    server = Listing({})
    file = listing_of("quotas: []\nexempt: [{user: backup}]", "f")
    assert list(differences(file, server)) == []
    assert without_place(file, server) == ['exempt: {"user": "backup"}']
    assert without_place(file, file) == without_place(server, server) == []


LIMITS = st.dictionaries(KEYS, st.integers(1, 10**6), min_size=1, max_size=3)


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    limits = draw(st.dictionaries(WHOMS, LIMITS, max_size=5))
    shadow = {}
    for whom, keys in limits.items():
        some = draw(st.frozensets(st.sampled_from(sorted(keys))))
        if some:
            shadow[whom] = some
    windows = {
        whom: draw(st.lists(st.sampled_from(sorted(keys)), max_size=2)) for whom, keys in limits.items()
    }
    schedules = {
        whom: tuple({"days": ["sat"], "from": "01:00", key: 7} for key in keys)
        for whom, keys in windows.items()
        if keys
    }
    exempt = tuple({"user": name} for name in draw(st.sets(st.sampled_from("abc"))))
    names = draw(st.sets(st.sampled_from("xyz")))
    tenants = tuple({"name": name, "members": [f"{name}1", f"{name}2"]} for name in sorted(names))
    refusable = sorted(whom for whom, keys in limits.items() if "producer_byte_rate" in keys)
    refusing = draw(st.frozensets(st.sampled_from(refusable))) if refusable else frozenset()
    return Listing(limits, shadow, {"tenants": tenants, "exempt": exempt}, schedules, refusing)


@given(listings(), listings())
def test_a_file_becomes_what_another_says(
    tmp_path_factory: pytest.TempPathFactory, a: Listing, b: Listing
) -> None:
    file = tmp_path_factory.mktemp("quotas") / "quotas.yaml"
    file.write_text(f"# mine\n{yaml_of(a)}")
    place = QuotaFilePlace(file)
    place.become(b, list(differences(place.listing(), b)))
    assert list(differences(place.listing(), b)) == []
    assert file.read_text().startswith("# mine\n")
    both = merged(a, b)
    assert all(difference.left is None for difference in differences(b, both))
    assert not [one for one in differences(a, both) if one.right is None]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1024.0, "1024.0"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (10_485_760.0, "1.048576E7"),
        (123456789012.0, "1.23456789012E11"),
        (2.0**63, "9.223372036854776E18"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (0.00012345, "1.2345E-4"),
        (1e22, "1.0E22"),
        (12.5, "12.5"),
    ],
)
def test_numbers_are_shown_as_java_shows_them(value: float, shown: str) -> None:
    assert java_double(value) == shown


def test_an_entity_is_described_in_the_words_of_kafkas_tool(tmp_path: Path) -> None:
    assert kafka_line(whom_of({"user": "a", "client-id": "<default>"}), {"producer_byte_rate": 10485760}) == (
        "Quota configs for user-principal 'a', the default client-id are producer_byte_rate=1.048576E7"
    )
    file = tmp_path / "quotas.yaml"
    file.write_text(EVERYTHING)
    listing = QuotaFilePlace(file).listing()
    assert lines_of(listing, list(listing.limits)) == [
        "Quota configs for user-principal 'alice', the default client-id are producer_byte_rate=1048576.0, "
        "request_percentage=12.5 (in shadow mode: request_percentage)",
        "Quota configs for the default ip are connection_creation_rate=10.0 "
        "(in shadow mode: connection_creation_rate)",
        "Quota configs for tenant 'team', client-id-prefix 'etl-' are producer_byte_rate=7.0",
    ]


def test_the_first_entries_of_a_file_are_written_an_entry_a_line() -> None:
    first, second = whom_named("alice", "reports"), whom_named("bob", None)
    text = edited(
        "quotas: []\n", "f", {first: {"producer_byte_rate": 5.0}, second: {"consumer_byte_rate": 7.0}}
    )
    assert text == (
        'quotas:\n  - user: "alice"\n    client-id: "reports"\n    producer_byte_rate: 5\n'
        '  - user: "bob"\n    consumer_byte_rate: 7\n'
    )


def whom_named(user: str, client_id: str | None) -> Whom:
    return (("user", user), *((("client-id", client_id),) if client_id is not None else ()))
