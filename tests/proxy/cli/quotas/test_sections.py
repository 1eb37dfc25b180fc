"""`sluice quotas …` and the section `replication:`: from file to file, and where there is no place for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.proxy.cli.quotas.listing import Listing, compared, listing_of, without_place
from sluice.proxy.cli.quotas.remote import UNTOLD
from sluice.quotas.files.quota_file import replication_of
from sluice.quotas.limits.limits import QuotaLimits
from testkit.proxy.served_limits import served_limits
from testkit.proxy.sluice_command import Sluice

LEADER, FOLLOWER = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
REPLICAS = "leader.replication.throttled.replicas"
FILE = f"""\
# kept by hand
quotas: []
replication:
  brokers:
    - id: 1
      {LEADER}: 5000
    - id: 1
      {FOLLOWER}: "6000"
    - {{id: <default>, {LEADER}: 700}}
  topics:
    - name: orders
      {REPLICAS}: "0:1, 1:2"
"""
OTHER = f"""\
quotas: []
replication:
  brokers:
    - {{id: 1, {LEADER}: 9999999}}
    - {{id: <default>, {LEADER}: 700}}
  topics:
    - {{name: orders, {REPLICAS}: "1:2,0:1"}}
    - {{name: bills, {REPLICAS}: "*"}}
"""
DIFFERENCES = f"""\
~ replication: broker 1: {LEADER}=5000 → 9999999
- replication: broker 1: {FOLLOWER}=6000
+ replication: topic bills: {REPLICAS}=*
"""
LEFT_OUT = f"replication: broker 1: {LEADER}=5000; replication: broker 1: {FOLLOWER}=6000"


@pytest.fixture(autouse=True)
def files(folder: Path) -> Path:
    """`quotas.yaml` and `other.yaml`."""
    (folder / "quotas.yaml").write_text(FILE)
    (folder / "other.yaml").write_text(OTHER)
    return folder


def test_files_that_differ_in_replication_throttles_differ(sluice: Sluice) -> None:
    assert sluice("quotas", "diff", "quotas.yaml", "-q", "other.yaml") == (1, DIFFERENCES, "")
    assert sluice("quotas", "diff", "other.yaml", "-q", "other.yaml") == (0, "", "")


def test_an_export_has_replication_throttles(files: Path, sluice: Sluice) -> None:
    code, out, err = sluice("quotas", "export", "-q", "quotas.yaml")
    assert (code, err) == (0, "")
    assert replication_of(out, "out") == replication_of(FILE, "file")
    assert sluice("quotas", "diff", "-", "-q", "quotas.yaml", stdin=out) == (0, "", "")


@pytest.mark.parametrize("command", ["apply", "import"])
def test_a_file_is_made_to_have_the_replication_throttles_of_another(
    command: str, files: Path, sluice: Sluice
) -> None:
    call = ("quotas", command, "other.yaml", "-q", "quotas.yaml")
    assert sluice(*call, "--dry-run") == (
        0, f"{DIFFERENCES}quotas.yaml: 3 changes not made (--dry-run).\n", ""
    )  # fmt: skip
    assert (files / "quotas.yaml").read_text() == FILE
    assert sluice(*call) == (0, f"{DIFFERENCES}quotas.yaml: 3 changes.\n", "")
    text = (files / "quotas.yaml").read_text()
    assert text.startswith("# kept by hand\n")
    assert replication_of(text, "quotas.yaml") == replication_of(OTHER, "other.yaml")
    assert sluice(*call) == (0, "quotas.yaml: 0 changes.\n", "")


def test_a_new_file_has_the_replication_throttles_too(files: Path, sluice: Sluice) -> None:
    code, out, _ = sluice("quotas", "apply", "quotas.yaml", "-q", "new.yaml")
    assert (code, out.splitlines()[-1]) == (0, "new.yaml: 4 changes.")
    assert replication_of((files / "new.yaml").read_text(), "new") == replication_of(FILE, "file")


def test_throttles_of_which_the_file_does_not_speak_go_and_with_keep_stay(
    files: Path, sluice: Sluice
) -> None:
    (files / "none.yaml").write_text("quotas: []\n")
    call = ("quotas", "apply", "none.yaml", "-q", "quotas.yaml")
    assert sluice(*call, "--keep") == (0, "quotas.yaml: 0 changes.\n", "")
    assert (files / "quotas.yaml").read_text() == FILE
    code, out, _ = sluice(*call)
    assert (code, out.count("- replication: ")) == (0, 4)
    assert replication_of((files / "quotas.yaml").read_text(), "f").is_empty


def test_with_keep_each_setting_of_a_broker_stands_for_itself(files: Path, sluice: Sluice) -> None:
    code, out, _ = sluice("quotas", "apply", "other.yaml", "-q", "quotas.yaml", "--keep")
    assert code == 0
    assert out.splitlines()[:-1] == [line for line in DIFFERENCES.splitlines() if line[0] != "-"]
    assert replication_of((files / "quotas.yaml").read_text(), "f").rates == {
        LEADER: {1: 9_999_999.0, None: 700.0},
        FOLLOWER: {1: 6_000.0},
    }


def test_a_server_has_no_place_for_them_which_is_said() -> None:
    file = listing_of(FILE, "file")
    server = Listing({}, untold=UNTOLD)
    found, left_out = compared(file, server)
    assert found == []
    assert "; ".join(left_out).startswith(LEFT_OUT)
    assert without_place(file, server) == left_out
    assert without_place(server, file) == []


def test_nor_has_a_proxys_admin_socket_which_is_said(files: Path, sluice: Sluice) -> None:
    at = ("--admin-socket", "admin.sock")
    with served_limits(files / "admin.sock", QuotaLimits()):
        code, out, err = sluice("quotas", "diff", "quotas.yaml", *at)
        assert (code, out) == (0, "")
        assert err.startswith(f"not compared, admin.sock cannot tell it: {LEFT_OUT}")
        code, out, err = sluice("quotas", "apply", "quotas.yaml", *at)
        assert (code, out) == (0, "admin.sock: 0 changes.\n")
        assert err.startswith(f"left out, admin.sock has no place for it: {LEFT_OUT}")


def test_a_broker_that_stands_in_two_items_is_shown_and_changed_as_one(files: Path, sluice: Sluice) -> None:
    of_broker = ("configs", "-q", "quotas.yaml", "--entity-type", "brokers", "--entity-name", "1")
    code, out, _ = sluice(*of_broker, "--describe")
    assert code == 0
    assert out.splitlines()[1:] == [f"  {LEADER}=5000", f"  {FOLLOWER}=6000"]
    assert sluice(*of_broker, "--alter", "--add-config", f"{FOLLOWER}=8000")[0] == 0
    rates = replication_of((files / "quotas.yaml").read_text(), "f").rates
    assert (rates[LEADER][1], rates[FOLLOWER][1]) == (5_000.0, 8_000.0)


@pytest.mark.parametrize("section", ["5", "[]", "{brokers: 5}", "{brokers: [{}]}"])
def test_a_file_whose_section_is_wrong_is_told_by_key_and_line(
    section: str, files: Path, sluice: Sluice
) -> None:
    (files / "quotas.yaml").write_text(f"quotas: []\nreplication: {section}\n")
    code, out, err = sluice("configs", "-q", "quotas.yaml", "--describe", "--entity-type", "brokers")
    assert (code, out) == (2, "")
    assert err.startswith("quotas.yaml:2: replication")


@pytest.mark.parametrize(
    "text",
    [
        '{"quotas": []}',
        f'{{"quotas": [], "replication": {{"brokers": [{{"id": 7, "{LEADER}": 5}}]}}, "exempt": []}}',
        "quotas: []",
        FILE.replace("\n", "\r\n") + "# end\r\nexempt: []\r\n",
        f"\ufeff{FILE}",
        f"replication:\n{FILE[FILE.index('  brokers') :]}quotas: []\n",
    ],
)
def test_the_section_is_replaced_in_files_of_any_layout(text: str, files: Path, sluice: Sluice) -> None:
    (files / "quotas.yaml").write_bytes(text.encode())
    assert sluice("quotas", "apply", "other.yaml", "-q", "quotas.yaml")[0] == 0
    assert sluice("quotas", "diff", "other.yaml", "-q", "quotas.yaml") == (0, "", "")
    assert sluice("quotas", "apply", "-", "-q", "quotas.yaml", stdin="quotas: []\n")[0] == 0
    assert sluice("quotas", "diff", "-", "-q", "quotas.yaml", stdin="quotas: []\n") == (0, "", "")


@pytest.mark.parametrize("end", ["...\n", "...", "# the end\n...  # kept\n# é\n"])
def test_a_section_stands_before_the_end_of_a_document(end: str, files: Path, sluice: Sluice) -> None:
    file = files / "ended.yaml"
    file.write_text(f"---\nquotas:\n  - user: é\n    producer_byte_rate: 1\n{end}")
    wanted = "tenants:\n  - {name: t, members: [x]}\nquotas:\n  - {tenant: t, producer_byte_rate: 5}\n"
    code, _, err = sluice("quotas", "apply", "-", "-q", "ended.yaml", "--keep", stdin=wanted)
    assert (code, err) == (0, "")
    assert sluice("quotas", "apply", "-", "-q", "ended.yaml", "--keep", stdin=wanted)[1].endswith(
        ": 0 changes.\n"
    )
    assert file.read_text().endswith(end[end.index("...") :])
