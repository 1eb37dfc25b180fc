"""A plan of the nightly job, applied by `sluice quotas apply` as users call it: at a quota file, and back."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from sluice.proxy.cli.main import main
from sluice.proxy.cli.plan.apply import apply_unattended, read_plan
from sluice.proxy.cli.plan.choice import PlanRefused
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.config_error import ConfigError

QUOTAS = """\
# Who may do what
quotas:
  - user: alice  # the shop
    producer_byte_rate: 1000  # as agreed
  - user: bob
    producer_byte_rate: 5000
    consumer_byte_rate: 300
    shadow: [producer_byte_rate]  # until June
  - user: <default>
    producer_byte_rate: 9000
    request_percentage: 50
  - tenant: team
    consumer_byte_rate: 700
tenants:
  - {name: team, members: [carol]}
"""


class Sluice(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error) of `quotas apply … -q quotas.yaml`"""


@pytest.fixture
def sluice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sluice:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SLUICE_CONFIG", raising=False)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["sluice", "quotas", "apply", *arguments, "-q", "quotas.yaml"])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return call


def entry(proposed: float, current: float = 1_000, **values: Any) -> dict[str, Any]:
    """Of alice's produce."""
    return {
        "key": "producer_byte_rate",
        "entity": '{"user": "alice"}',
        "current": current,
        "proposed": proposed,
        "reason": "demand",
        "needs_review": False,
    } | values


def of(user: str, proposed: float, current: float, **values: Any) -> dict[str, Any]:
    return entry(proposed, current, entity=json.dumps({"user": user}), **values)


def write_plan(folder: Path, *entries: dict[str, Any], age_days: int = 1, **values: Any) -> Path:
    today = datetime.now(UTC).date()  # as the command asks it: a run of the tests may go past midnight
    document = {
        "version": 1,
        "date": (today - timedelta(days=age_days)).isoformat(),
        "policy": {"max_step_up": 2.0, "max_step_down": 0.7},
        "damaged_files": {},
        "entries": list(entries),
    } | values
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Raises alice, cuts bob in shadow mode, gives dave, who has the default's limit, one of his own."""
    return write_plan(
        tmp_path / "plan",
        entry(1_500),
        of("bob", 4_000, 5_000),
        of("dave", 18_000, 9_000),
        entry(900, 700, entity='{"tenant": "team"}', key="consumer_byte_rate"),
        of("bob", 300, 300, key="consumer_byte_rate"),
    )


def test_a_plan_is_written_into_the_quota_file_in_place_and_applying_it_again_changes_nothing(
    plan: Path, sluice: Sluice, tmp_path: Path
) -> None:
    code, out, err = sluice("plan")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "~ user-principal 'alice': producer_byte_rate=1000 → 1500",
        "~ user-principal 'bob': producer_byte_rate=5000 (shadow) → 4000 (shadow)",
        "~ tenant 'team': consumer_byte_rate=700 → 900",
        "+ user-principal 'dave': producer_byte_rate=18000",
        "quotas.yaml: 4 changes.",
    ]
    expected = QUOTAS.replace("rate: 1000 ", "rate: 1500 ").replace(": 5000", ": 4000")
    expected = expected.replace("rate: 700\n", 'rate: 900\n  - user: "dave"\n    producer_byte_rate: 18000\n')
    assert (tmp_path / "quotas.yaml").read_text() == expected
    assert sluice("plan/plan.json") == (0, "quotas.yaml: 0 changes.\n", "")


def test_what_was_replaced_is_put_back_and_what_somebody_changed_since_stays(
    plan: Path, sluice: Sluice, tmp_path: Path
) -> None:
    file = tmp_path / "quotas.yaml"
    sluice("plan")
    file.write_text(file.read_text().replace("rate: 900\n", "rate: 950\n"))
    code, out, _ = sluice("plan", "--rollback", "--dry-run")
    assert (code, "3 changes not made" in out) == (0, True)
    code, out, err = sluice("plan", "--rollback")
    assert (code, err) == (0, "")
    assert "tenant 'team': consumer_byte_rate is 950 now, not 900; left as it is" in out
    assert file.read_text() == QUOTAS.replace("rate: 700\n", "rate: 950\n")
    code, out, _ = sluice("plan", "--rollback")
    assert (code, out.endswith("quotas.yaml: 0 changes.\n"), "is 950 now" in out) == (0, True, True)
    file.write_text(file.read_text().replace("rate: 950\n", "rate: 900\n"))
    assert sluice("plan", "--rollback")[0] == 0
    assert file.read_text() == QUOTAS
    code, _, err = sluice("plan", "--rollback")
    assert (code, "nothing of this plan is on record" in err) == (1, True)
    assert not (plan / "rollback.json").exists()


def test_of_a_limit_that_two_runs_changed_the_oldest_value_is_put_back(
    sluice: Sluice, tmp_path: Path
) -> None:
    write_plan(tmp_path / "plan", entry(1_500), of("bob", 6_000, 5_000, needs_review=True))
    sluice("plan")
    assert sluice("plan", "--include", "user=bob")[0] == 0
    assert sluice("plan", "--rollback")[1].endswith("quotas.yaml: 2 changes.\n")
    assert (tmp_path / "quotas.yaml").read_text() == QUOTAS


def test_a_dry_run_writes_nothing(plan: Path, sluice: Sluice, tmp_path: Path) -> None:
    code, out, _ = sluice("plan", "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "quotas.yaml: 4 changes not made (--dry-run).")
    assert (tmp_path / "quotas.yaml").read_text() == QUOTAS
    assert not (plan / "rollback.json").exists()


def test_what_needs_review_waits_until_it_is_named_or_all_are_included(
    sluice: Sluice, tmp_path: Path
) -> None:
    write_plan(
        tmp_path / "plan",
        entry(1_500, needs_review=True),
        of("bob", 6_000, 5_000, needs_review=True),
        of("dave", 10_000, 9_000),
    )
    code, out, _ = sluice("plan", "--dry-run")
    assert code == 0
    assert out.splitlines() == [
        "+ user-principal 'dave': producer_byte_rate=10000",
        "left out: user-principal 'bob': producer_byte_rate: needs review",
        "left out: user-principal 'alice': producer_byte_rate: needs review",
        "What waits for review is granted with --include WHOM, or --include-reviews.",
        "quotas.yaml: 1 change not made (--dry-run).",
    ]
    assert "2 changes" in sluice("plan", "--dry-run", "--include", '{"user": "alice"}')[1]
    assert "3 changes" in sluice("plan", "--dry-run", "--include-reviews")[1]
    code, _, err = sluice("plan", "--include", "user=zoe")
    assert (code, "says nothing of user-principal 'zoe'" in err) == (1, True)
    assert sluice("plan", "--include", "zoe")[0] == 2


def test_of_what_needs_review_the_proposal_is_written_and_told_is_above_what_it_waits(
    sluice: Sluice, tmp_path: Path
) -> None:
    needs = {"needs_review": True, "entity": {"user": "alice"}}
    write_plan(
        tmp_path / "plan",
        entry(1_600_000, 1_000_000, up_to=4_500_000, **needs),
        entry(6_000, 4_000, entity={"user": "bob"}, needs_review=True, up_to=9_000),
        version=2,
    )
    (tmp_path / "quotas.yaml").write_text(QUOTAS.replace("1000  #", "1000000  #"))
    code, out, _ = sluice("plan", "--skip-changed")
    assert (code, out.splitlines()) == (
        0,
        [
            "~ user-principal 'alice': producer_byte_rate=1000000 → 1600000",
            "left out: user-principal 'bob': producer_byte_rate: was 4000 when the plan was made, "
            "is 5000 now",
            "waits for review above 1,600,000: user-principal 'alice': producer_byte_rate: up to 4,500,000",
            "What waits for review is granted with --include WHOM, or --include-reviews.",
            "quotas.yaml: 1 change.",
        ],
    )


def test_the_help_says_that_what_needs_review_is_written_within_the_guard(sluice: Sluice) -> None:
    told = " ".join(sluice("--help")[1].replace("│", " ").split())
    assert "Those that need review are among them" in told
    assert "but for what needs review" not in told


MANY = [of(f"u{number}", 6_300, 9_000) for number in range(20)]
REFUSALS = [
    ([], {}, (), "is empty; see whether the proxies write the access log"),
    ([entry(1_500)], {"age_days": 4}, (), "is stale: of .*, 4 days ago, .*raise --max-age-days"),
    ([entry(1_500)], {"age_days": -1}, (), "set the clock"),
    ([entry(1_500, 1_200)], {}, (), "is stale: 1 limit changed since .*'alice'.*--skip-changed"),
    ([entry(2_500)], {}, (), "is suspicious: 1 limit beyond the step of its policy, ×0.7 to ×2 .*again"),
    ([entry(600)], {}, (), "beyond the step"),
    ([entry(2_500, reason="capacity")], {}, (), "beyond the step"),
    (MANY, {}, (), "is suspicious: cuts 20 of 20 limits of producer_byte_rate, more than 50%.*-share"),
    (MANY, {}, ("--max-cut-share", "1"), "together fall by 30%, more than 25%.*--max-total-fall"),
    ([entry(1_500)], {}, ("--max-changes", "0"), "1 change, and --max-changes is 0"),
]


@pytest.mark.parametrize(("entries", "plan_values", "options", "reason"), REFUSALS)
def test_a_plan_that_is_not_to_be_trusted_is_refused_with_what_to_do(
    entries: list[dict[str, Any]],
    plan_values: dict[str, Any],
    options: tuple[str, ...],
    reason: str,
    sluice: Sluice,
    tmp_path: Path,
) -> None:
    folder = write_plan(tmp_path / "plan", *entries, **plan_values)
    code, out, err = sluice("plan", *options)
    assert (code, out) == (1, "")
    assert re.search(reason, err)
    assert (tmp_path / "quotas.yaml").read_text() == QUOTAS
    assert not (folder / "rollback.json").exists()


def test_each_refusal_goes_with_what_it_names(sluice: Sluice, tmp_path: Path) -> None:
    write_plan(tmp_path / "plan", *MANY)
    assert sluice("plan", "--max-cut-share", "1", "--max-total-fall", "0.3", "--dry-run")[0] == 0
    write_plan(tmp_path / "plan", entry(1_500), age_days=4)
    assert sluice("plan", "--max-age-days", "4", "--dry-run")[0] == 0
    write_plan(tmp_path / "plan", entry(1_500, 1_200), of("bob", 4_000, 5_000))
    code, out, _ = sluice("plan", "--skip-changed", "--dry-run")
    assert code == 0
    assert "'alice': producer_byte_rate: was 1200 when the plan was made, is 1000 now" in out
    assert "1 change not made" in out
    write_plan(tmp_path / "plan", entry(500, reason="capacity"), of("bob", 12_000, 5_000, reason="floor"))
    assert "2 changes not made" in sluice("plan", "--dry-run")[1]


def test_a_limit_of_its_own_does_not_take_clients_that_have_theirs_by_a_default(
    sluice: Sluice, tmp_path: Path
) -> None:
    """Users have 9,000 by default; but with client id `app` 100, by a default as well."""
    file = tmp_path / "quotas.yaml"
    file.write_text(QUOTAS + "exempt: []\n")
    text = file.read_text().replace(
        "  - tenant: team\n",
        "  - {user: <default>, client-id: app, producer_byte_rate: 100}\n  - tenant: team\n",
    )
    file.write_text(text)
    app = entry(100, 100, entity='{"client-id": "app", "user": "dave"}')
    write_plan(tmp_path / "plan", of("dave", 10_000, 9_000), app)
    code, out, _ = sluice("plan")
    assert (code, file.read_text()) == (0, text)
    assert "user-principal 'dave': producer_byte_rate: would take" in out
    write_plan(tmp_path / "plan", of("dave", 10_000, 9_000), {**app, "proposed": 120})
    assert "2 changes" in sluice("plan")[1], "its own limit keeps it"


def test_who_is_in_shadow_mode_by_a_default_gets_his_limit_in_shadow_mode(
    sluice: Sluice, tmp_path: Path
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(QUOTAS.replace("    request_percentage: 50\n", "    shadow: true\n"))
    write_plan(tmp_path / "plan", of("dave", 10_000, 9_000))
    assert "+ user-principal 'dave': producer_byte_rate=10000 (shadow)" in sluice("plan")[1]


@pytest.mark.parametrize("user", ["", "<default>", "<overflow>"])
def test_a_bucket_that_no_file_can_name_is_left_out(user: str, sluice: Sluice, tmp_path: Path) -> None:
    write_plan(tmp_path / "plan", of(user, 10_000, 9_000), entry(1_500))
    code, out, _ = sluice("plan")
    assert (code, "left out" in out, "1 change." in out) == (0, True, True)


DAMAGED = [
    ('{"version": 1, "entries": [', "is no whole plan: .*run the night again"),
    ("[]", "must be a JSON object"),
    ({"version": 7}, "version: is 7; this Sluice reads 1"),
    ({"policy": None}, "policy: is not there; make the plan again"),
    ({"policy": {"max_step_up": 2.0, "max_step_down": 0}}, "policy.max_step_down: must be a number above 0"),
    ({"date": "yesterday"}, "date: must be a date"),
    ({"entries": 3}, "entries: must be a list"),
    ({"entries": [entry(1_500), entry(1_500)]}, r"entries\[1\]: producer_byte_rate of .* stands there twice"),
    ({"entries": [entry(-1)]}, r"entries\[0\]: proposed must be a number above 0, is -1"),
    ({"entries": [entry(1.5)]}, "cannot be a fractional value"),
    ({"entries": [entry(True)]}, "is true"),
    ({"entries": [entry(1_500, key="bytes")]}, "'bytes' is no quota"),
    ({"entries": [entry(1_500, entity='{"who": "alice"}')]}, "entity must be JSON such as"),
    ({"entries": [entry(1_500, entity='{"ip": "here"}')]}, "'here'"),
    ({"entries": [entry(1_500, needs_review="no")]}, "needs_review must be there"),
    ('{"version": 1, "date": "2026-11-20", "entries": [NaN]}', "NaN is no number"),
]


@pytest.mark.parametrize(("content", "problem"), DAMAGED)
def test_a_damaged_plan_is_told_with_its_place(content: Any, problem: str, tmp_path: Path) -> None:
    folder = write_plan(tmp_path / "plan", entry(1_500), **(content if isinstance(content, dict) else {}))
    if isinstance(content, str):
        (folder / "plan.json").write_text(content)
    with pytest.raises(ConfigError, match=problem):
        read_plan(folder / "plan.json")


def test_the_newest_plan_of_a_jobs_folder_is_meant_and_a_folder_without_one_is_told(
    sluice: Sluice, tmp_path: Path
) -> None:
    (tmp_path / "out" / "plans").mkdir(parents=True)
    write_plan(tmp_path / "out" / "plans" / "night-2", entry(1_500))
    (tmp_path / "out" / "LATEST").write_text("night-2\n")
    assert "1000 → 1500" in sluice("out", "--dry-run")[1]
    (tmp_path / "empty").mkdir()
    code, _, err = sluice("empty")
    assert (code, "has no plan.json" in err) == (2, True)


def test_options_of_a_plan_do_not_go_with_a_quota_file_nor_its_options_with_a_plan(
    plan: Path, sluice: Sluice
) -> None:
    code, _, err = sluice("quotas.yaml", "--max-changes", "3")
    assert (code, "--max-changes goes with a plan" in err) == (2, True)
    assert sluice("plan", "--keep")[0] == 2


def test_unattended_a_review_is_included_only_by_name(sluice: Sluice, tmp_path: Path) -> None:
    write_plan(tmp_path / "plan", entry(1_500), of("bob", 6_000, 5_000, needs_review=True))
    code, out, _ = sluice("plan", "--unattended")
    assert (code, "1 change." in out, "bob': producer_byte_rate: needs review" in out) == (0, True, True)
    code, out, _ = sluice("plan", "--unattended", "--include", "user=bob")
    assert (code, "1 change." in out, "needs review" in out) == (0, True, False)


def test_unattended_only_a_plan_from_a_whole_log_is_applied_and_no_review(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(QUOTAS)
    folder = write_plan(tmp_path / "plan", entry(1_500), of("bob", 6_000, 5_000, needs_review=True))
    applied = apply_unattended(read_plan(folder / "plan.json"), QuotaFilePlace(file))
    assert (len(applied.found), len(applied.choice.left_out)) == (1, 1)
    write_plan(tmp_path / "plan", entry(1_800, 1_500), damaged_files={"a.parquet": "cut off"})
    with pytest.raises(PlanRefused, match="1 damaged files of the log"):
        apply_unattended(read_plan(folder / "plan.json"), QuotaFilePlace(file))


def test_when_what_was_cannot_be_kept_nothing_is_changed(plan: Path, sluice: Sluice, tmp_path: Path) -> None:
    (plan / "rollback.json").symlink_to(tmp_path / "missing" / "rollback.json")
    code, _, err = sluice("plan")
    assert (code, "rollback.json: cannot be written" in err) == (2, True)
    assert (tmp_path / "quotas.yaml").read_text() == QUOTAS
    assert sluice("plan", "--record", "kept.json")[0] == 0
    assert sluice("plan", "--rollback", "--record", "kept.json")[0] == 0
    assert (tmp_path / "quotas.yaml").read_text() == QUOTAS
