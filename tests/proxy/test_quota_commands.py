"""`sluice configs`: the limits that are asked for, at their place in the file, and nothing else changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.proxy.cli import main
from sluice.proxy.config_error import QuotaFileError
from sluice.proxy.quota_commands import alter, changes_of, described, edited
from sluice.proxy.quota_file import DEFAULT_NAME, parse_quotas
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


def with_ids(text: str, user: str, per_hour: float | None) -> str:
    return edited(text, "quotas.yaml", user, {"producer_ids_rate": per_hour})


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
    without = edited(FILE, "f", "alice", {"producer_byte_rate": None})
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
    assert alter(file, DEFAULT_NAME, {"producer_ids_rate": 50})
    assert file.read_bytes() == FILE.replace("rate: 100 ", "rate: 50 ").replace("\n", "\r\n").encode()


KEYS = st.sampled_from(["producer_byte_rate", "consumer_byte_rate", "producer_ids_rate"])
NAMES = st.sampled_from(["alice", DEFAULT_NAME, "bob", "null", 'a "quoted": name', "Ünï #c", "12", "- x"])


@given(st.lists(st.tuples(NAMES, KEYS, st.none() | st.integers(1, 10**9)), max_size=12), st.booleans())
def test_any_sequence_of_changes_says_what_was_asked_for(
    changes: list[tuple[str, str, int | None]], starts_empty: bool
) -> None:
    text = "quotas: []\n" if starts_empty else FILE
    wanted: dict[tuple[str, str], int] = {}
    if not starts_empty:
        wanted = {
            ("alice", "producer_byte_rate"): 1000,
            ("alice", "consumer_byte_rate"): 2000,
            (DEFAULT_NAME, "producer_ids_rate"): 100,
        }
    for user, key, limit in changes:
        text = edited(text, "f", user, {key: limit})
        if limit is None:
            wanted.pop((user, key), None)
        else:
            wanted[user, key] = limit
    found = {
        (DEFAULT_NAME if not isinstance(entity.user, str) else entity.user, key): limit
        for entity, limits in parse_quotas(text, "f").entries.items()
        if entity.client_id is None
        for key, limit in limits.items()
    }
    assert found == wanted
    if not starts_empty:
        assert "# Who may do what" in text
        assert "# the end" in text


def test_a_limit_that_shadow_names_is_not_removed_from_under_it(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "quotas:\n  - user: a\n    producer_byte_rate: 1\n"
        "    producer_ids_rate: 2\n    shadow: [producer_ids_rate]\n"
    )
    before = file.read_text()
    with pytest.raises(QuotaFileError, match="is no limit of this entry"):
        alter(file, "a", {"producer_ids_rate": None})
    assert file.read_text() == before


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
        assert alter(link, "bob", {"producer_ids_rate": 1})
        assert reader.read() == FILE  # whoever reads sees all of one state
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.listdir(tmp_path / "real") == ["quotas.yaml"]
    assert not alter(link, "bob", {"producer_ids_rate": 1})


@pytest.mark.parametrize("value", ["0", "-5", "many", "", "nan", "true", "[1"])
def test_what_is_no_positive_number_is_refused_with_the_key_named(value: str) -> None:
    with pytest.raises(QuotaFileError, match=r"^--add-config: producer_ids_rate: Quota producer_ids_"):
        changes_of(f"producer_ids_rate={value}", "")


def test_an_unknown_key_is_refused_with_what_was_meant() -> None:
    with pytest.raises(QuotaFileError) as caught:
        changes_of("producer_id_rate=5,producer_byte_rate=7", "consumer")
    assert str(caught.value).splitlines() == [
        "--add-config: producer_id_rate: unknown key; did you mean producer_ids_rate?",
        "--delete-config: consumer: unknown key; did you mean consumer_byte_rate?",
    ]


def test_what_is_described_is_what_users_have(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    assert described(file, None) == [
        "Quota configs for user 'alice' are producer_byte_rate=1000, consumer_byte_rate=2000",
        "Quota configs for the default user are producer_ids_rate=100",
    ]
    assert len(described(file, "alice")) == 1
    assert described(file, "nobody") == []


@pytest.mark.parametrize(
    ("whom", "user"),
    [
        (["--entity-name", "user1"], "user1"),
        (["--entity-name", "User:user1"], "user1"),
        (["--entity-default"], "anybody"),
        ([], "anybody"),  # as the KIP writes it
    ],
)
def test_the_command_sets_a_rate_for_a_user_or_for_all_others(
    whom: list[str], user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("quotas: []\n")
    rest = ["--alter", "--add-config", "producer_ids_rate=50", "--entity-type", "users"]
    assert run_command(monkeypatch, "-q", str(file), *rest, *whom) == 0
    assert limit_of(file.read_text(), user) == 50
    assert (limit_of(file.read_text(), "somebody else") is None) == (user == "user1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--alter", "--add-config", "producer_ids_rate=0", "--entity-type", "users"],
        ["--alter", "--add-config", "producer_ids_rate=5", "--entity-type", "clients"],
        ["--alter", "--entity-type", "users"],
        ["--alter", "--describe", "--entity-type", "users"],
        ["--describe", "--entity-type", "users", "--entity-name", "a", "--entity-default"],
    ],
)
def test_the_command_refuses_what_makes_no_sense_and_leaves_the_file(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    assert run_command(monkeypatch, "-q", str(file), *arguments) == 2
    assert file.read_text() == FILE


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["sluice", "configs", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return code
