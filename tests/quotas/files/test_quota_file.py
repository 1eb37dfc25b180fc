"""The quota file: what it may say, that errors name key and line, that a reload never loses good limits."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import structlog

from sluice.proxy.quota_store.file_watch import QuotaFile
from sluice.proxy.quota_store.schema import quotas_schema
from sluice.proxy.runtime import watched_file
from sluice.proxy.runtime.watched_file import ReloadOutcome, hash_of
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import load_quotas, parse_quotas, parse_quotas_in_steps
from sluice.quotas.files.yaml_lines import parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits

RATE = "producer_byte_rate"
GOOD = """\
quotas:
  - user: alice
    client-id: app-1
    producer_byte_rate: 1048576
  - user: <default>
    consumer_byte_rate: 1e6
  - client-id: <default>
    producer_byte_rate: 5000
    consumer_byte_rate: 6000
"""
OTHER = GOOD.replace("1048576", "2000000")
BAD = GOOD.replace("1048576", "plenty")


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


WRONG_ENTRIES = [
    ("user:", "2: user", "must not be blank; for every other user write <default>"),
    ("user: ' '", "2: user", "must not be blank; for every other user write <default>"),
    ("user: 12", "2: user", "must be a text, is 12; write it in quotes: '12'"),
    ("client-id: true", "2: client-id", "must be a text, is True; write it in quotes: 'True'"),
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
        f"Quota {RATE} must be a whole number, not '1MB'; is '1MB' (bytes per second)",
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


SHADOW = GOOD.replace("client-id: app-1\n", "client-id: app-1\n    shadow: {}\n")
FURTHER = [
    *(SHADOW.format(value) for value in ("true", "false", f"[{RATE}]", "[]", "[1]", "1", "{}")),
    *(
        f"{GOOD}exempt: {rules}\n"
        for rules in ("[]", "5", "[{}]", "[{user: a}]", "[{client-id: a}]", "[{users: a}]")
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


class Proxy:
    """A quota file that was loaded, and what a proxy that follows it has in force."""

    def __init__(self, path: Path) -> None:
        self.file = QuotaFile(path)
        self.limits = self.file.load()
        self.applied = 0

    def apply(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self.applied += 1

    def look(self) -> ReloadOutcome | None:
        return asyncio.run(self.file.check(self.apply))

    @property
    def rate(self) -> float | None:
        match = self.limits.resolve(QuotaKind.PRODUCE, "alice", "app-1")
        return match.limit if match else None

    def counts(self) -> dict[str, int]:
        return {str(outcome): count for outcome, count in self.file.status.outcomes.items() if count}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(GOOD)
    settle(file, 1)
    return file


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[structlog.typing.EventDict]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def settle(file: Path, when: int) -> None:
    """Make the file look written long ago, at a time of its own."""
    os.utime(file, (when, when))


def rewrite(file: Path, text: str, when: int) -> None:
    file.write_text(text)
    settle(file, when)


def test_a_changed_file_puts_its_limits_in_force(path: Path) -> None:
    proxy = Proxy(path)
    assert proxy.rate == 1048576
    rewrite(path, OTHER, 2)
    assert proxy.look() is ReloadOutcome.SUCCESS
    assert proxy.rate == 2000000
    assert proxy.file.status.hash == hash_of(OTHER)
    assert proxy.counts() == {"success": 2}


def test_an_unchanged_file_is_not_even_read(path: Path) -> None:
    proxy = Proxy(path)
    path.write_text(GOOD.replace("1048576", "1048577"))  # same size; and the same time, inode and path:
    settle(path, 1)
    assert proxy.look() is None
    assert proxy.applied == 0


def test_a_file_written_twice_within_its_clocks_tick_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "SETTLED_S", 3600.0)  # however slow the machine is
    path.write_text(GOOD)
    proxy = Proxy(path)
    before = path.stat()
    path.write_text(GOOD.replace("1048576", "1048577"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert proxy.look() is ReloadOutcome.SUCCESS
    assert proxy.rate == 1048577


def test_a_file_written_anew_with_the_content_in_force_is_counted_but_changes_nothing(path: Path) -> None:
    proxy = Proxy(path)
    since_s = proxy.file.status.last_success_unix_s
    settle(path, 2)
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNCHANGED, None]
    assert proxy.applied == 0
    assert proxy.counts() == {"success": 1, "unchanged": 1}
    assert proxy.file.status.last_success_unix_s > since_s


def test_a_young_file_is_read_again_but_its_state_is_counted_once(path: Path) -> None:
    path.write_text(GOOD)
    proxy = Proxy(path)
    assert [proxy.look(), proxy.look()] == [None, None]
    path.write_bytes(b"\xff")
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNREADABLE, None]
    assert proxy.counts() == {"success": 1, "unreadable": 1}


def test_each_new_trouble_is_counted(path: Path) -> None:
    proxy = Proxy(path)
    rewrite(path, BAD, 2)
    outcomes = [proxy.look()]
    path.unlink()
    outcomes.append(proxy.look())
    rewrite(path, BAD, 3)
    outcomes.append(proxy.look())
    assert outcomes == [ReloadOutcome.INVALID, ReloadOutcome.UNREADABLE, ReloadOutcome.INVALID]


def test_a_swapped_configmap_link_is_noticed(tmp_path: Path) -> None:
    # As the kubelet does it: quotas.yaml -> ..data/quotas.yaml, ..data -> ..<time>, and ..data is exchanged.
    for version, text in (("..1", GOOD), ("..2", OTHER)):
        (tmp_path / version).mkdir()
        rewrite(tmp_path / version / "quotas.yaml", text, 1)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "quotas.yaml").symlink_to("..data/quotas.yaml")
    proxy = Proxy(tmp_path / "quotas.yaml")
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert proxy.look() is ReloadOutcome.SUCCESS
    assert proxy.rate == 2000000


def test_a_bad_file_keeps_the_last_good_limits_and_is_counted_and_logged_once(
    path: Path,
    log_lines: list[structlog.typing.EventDict],
) -> None:
    proxy = Proxy(path)
    rewrite(path, BAD, 2)
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.INVALID, None]
    settle(path, 3)
    assert proxy.look() is None
    assert proxy.rate == 1048576
    assert proxy.counts() == {"success": 1, "invalid": 1}
    assert proxy.file.status.hash == hash_of(GOOD)
    assert "quotas[0].producer_byte_rate" in proxy.file.status.last_error
    assert [line["event"] for line in log_lines] == ["quotas_not_applied"]
    assert "quotas.yaml:4: quotas[0].producer_byte_rate" in log_lines[0]["problems"][0]


def test_a_file_with_very_many_errors_makes_one_bounded_log_line(
    path: Path, log_lines: list[structlog.typing.EventDict]
) -> None:
    proxy = Proxy(path)
    rewrite(path, "quotas:\n" + "  - user:\n    producer_byte_rate: 1\n" * 25, 2)
    proxy.look()
    (line,) = log_lines
    assert (len(line["problems"]), line["problems_not_shown"]) == (20, 5)


def test_a_missing_file_keeps_the_last_good_limits_and_is_counted_once(path: Path) -> None:
    proxy = Proxy(path)
    path.unlink()
    assert [proxy.look(), proxy.look()] == [ReloadOutcome.UNREADABLE, None]
    assert proxy.rate == 1048576
    assert proxy.counts() == {"success": 1, "unreadable": 1}


@pytest.mark.parametrize("trouble", ["missing", "bad"])
def test_the_good_content_come_back_clears_the_error_without_a_reload(path: Path, trouble: str) -> None:
    proxy = Proxy(path)
    path.unlink() if trouble == "missing" else rewrite(path, BAD, 2)
    proxy.look()
    assert proxy.file.status.last_error
    rewrite(path, GOOD, 3)
    assert proxy.look() is ReloadOutcome.UNCHANGED
    assert proxy.file.status.last_error == ""
    assert proxy.applied == 0


def test_the_same_bad_content_after_a_good_one_is_refused_anew(path: Path) -> None:
    proxy = Proxy(path)
    outcomes = []
    for when, text in enumerate((BAD, OTHER, BAD, GOOD), start=2):
        rewrite(path, text, when)
        outcomes.append(str(proxy.look()))
    assert outcomes == ["invalid", "success", "invalid", "success"]
    assert proxy.rate == 1048576


def test_a_file_that_is_not_utf_8_is_unreadable(path: Path) -> None:
    proxy = Proxy(path)
    path.write_bytes(b"\xff\xfe")
    assert proxy.look() is ReloadOutcome.UNREADABLE
    assert "not UTF-8" in proxy.file.status.last_error


def test_the_watch_goes_on_looking_until_it_is_cancelled(path: Path) -> None:
    async def follow() -> float | None:
        proxy = Proxy(path)
        changed = asyncio.Event()

        def apply(limits: QuotaLimits) -> None:
            proxy.apply(limits)
            changed.set()

        watch = asyncio.ensure_future(proxy.file.watch(0.001, apply))
        for when, text in ((2, OTHER), (3, GOOD), (4, OTHER)):
            rewrite(path, text, when)
            await changed.wait()
            changed.clear()
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        return proxy.rate

    assert asyncio.run(follow()) == 2000000


def test_the_event_loop_runs_between_the_steps_of_a_large_file(path: Path) -> None:
    text = "quotas:\n" + "".join(
        f"  - user: user-{index}\n    producer_byte_rate: {index + 1}\n" for index in range(1000)
    )

    async def turns_while_reloading() -> int:
        proxy = Proxy(path)
        rewrite(path, text, 2)
        check = asyncio.ensure_future(proxy.file.check(proxy.apply))
        turns = 0
        while not check.done():
            turns += 1
            await asyncio.sleep(0)
        assert check.result() is ReloadOutcome.SUCCESS
        return turns

    assert asyncio.run(turns_while_reloading()) > 25


def test_the_generated_schema_is_json() -> None:
    assert json.loads(json.dumps(quotas_schema()))["required"] == ["quotas"]
