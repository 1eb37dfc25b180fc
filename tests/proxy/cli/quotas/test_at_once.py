"""Two commands on one quota file: what the one decides on is what it looked at under its lock."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.proxy.cli.quotas.edit import whom_of
from sluice.proxy.cli.quotas.listing import differences, listing_of, merged
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.replication.limits import FOLLOWER_RATE, LEADER_RATE
from testkit.proxy.sluice_command import Sluice

FILE = "quotas:\n- user: alice\n  producer_byte_rate: 10\nexempt: [{user: backup}]\n"
ALICE = whom_of({"user": "alice"})
Change = Callable[[Path], object]


def also_fetches(file: Path) -> None:
    QuotaFilePlace(file).alter({ALICE: {"consumer_byte_rate": 5}})


def exempts(file: Path) -> None:
    place = QuotaFilePlace(file)
    now = place.listing()
    wanted = merged(now, listing_of("quotas: []\nexempt: [{user: auditor}]\n", "f"))
    place.become(wanted, list(differences(now, wanted)))


def goes(file: Path) -> None:
    QuotaFilePlace(file).alter({ALICE: {"producer_byte_rate": None}})


OTHERS = [
    pytest.param("{user: alice, producer_byte_rate: 20}", also_fetches, id="another key of the same entity"),
    pytest.param(
        "{user: alice, producer_byte_rate: 10, shadow: true}", also_fetches, id="an entry written anew"
    ),
    pytest.param(
        "{user: alice, consumer_byte_rate: 20}\nexempt: [{user: mirror}]", exempts, id="exempt rules"
    ),
    pytest.param("{user: alice, producer_byte_rate: 20}", goes, id="the entry itself"),
]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has another command done all of its work just before the first lock is asked for."""

    def set_up(other: Callable[[], object]) -> None:
        flock = fcntl.flock
        done: list[bool] = []

        def after_other(handle: int, how: int) -> None:
            if not done:
                done.append(True)
                other()
            flock(handle, how)

        monkeypatch.setattr(fcntl, "flock", after_other)

    return set_up


@pytest.mark.parametrize(("wanted", "other"), OTHERS)
def test_what_another_command_wrote_while_one_waited_for_it_stays(
    wanted: str,
    other: Change,
    folder: Path,
    sluice: Sluice,
    meanwhile: Callable[[Callable[[], object]], None],
) -> None:
    """It was lost untold, also with --keep, or the command ended in a traceback after it had written."""
    file, after_other = folder / "quotas.yaml", folder / "other.yaml"
    file.write_text(FILE)
    after_other.write_text(FILE)
    other(after_other)
    said = f"quotas:\n- {wanted}\n"
    (folder / "wanted.yaml").write_text(said)
    meanwhile(lambda: other(file))
    code, out, err = sluice("quotas", "apply", "wanted.yaml", "-q", "quotas.yaml", "--keep")
    theirs = QuotaFilePlace(after_other).listing()
    ours = merged(theirs, listing_of(said, "f"))
    told = "".join(f"{one}\n" for one in differences(theirs, ours))
    assert (code, err) == (0, "")
    assert out == f"{told}quotas.yaml: {told.count(chr(10))} change{'s' * (told.count(chr(10)) != 1)}.\n"
    assert list(differences(QuotaFilePlace(file).listing(), ours)) == []


@pytest.mark.parametrize(("wanted", "other"), OTHERS)
def test_what_an_editor_has_changed_since_the_look_is_not_written_over(
    wanted: str, other: Change, tmp_path: Path
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(FILE)
    place = QuotaFilePlace(file)
    now = place.listing()
    said = merged(now, listing_of(f"quotas:\n- {wanted}\n", "f"))
    found = list(differences(now, said))
    other(file)
    theirs = file.read_text()
    with pytest.raises(
        QuotaFileError, match=r"quotas\.yaml: has been changed while it was compared; nothing is"
    ):
        place.become(said, found)
    assert file.read_text() == theirs


def test_both_throttles_of_a_broker_are_of_one_command(
    folder: Path, sluice: Sluice, meanwhile: Callable[[Callable[[], object]], None]
) -> None:
    file = folder / "quotas.yaml"
    rates = "quotas: []\nreplication: {{brokers: [{{id: 1, {0}: {1}, {2}: {3}}}]}}\n".format
    file.write_text(rates(LEADER_RATE, 1, FOLLOWER_RATE, 0))
    meanwhile(lambda: file.write_text(rates(LEADER_RATE, 5, FOLLOWER_RATE, 7)))
    alter = ("configs", "-q", "quotas.yaml", "--alter", "--entity-type", "brokers", "--entity-name", "1")
    assert sluice(*alter, "--add-config", f"{LEADER_RATE}=1,{FOLLOWER_RATE}=2")[0] == 0
    text = rates(LEADER_RATE, 1, FOLLOWER_RATE, 2)
    assert QuotaFilePlace(file).listing() == listing_of(text, "f")


def test_nobody_waits_while_what_is_to_be_applied_is_still_read_from_a_pipe(
    folder: Path, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "quotas.yaml"
    file.write_text(FILE)
    monkeypatch.setattr("sluice.proxy.cli.whole_file._WAIT_S", 0.1)

    def read_piped(*_: object) -> str:
        also_fetches(file)
        return "quotas: [{user: bob, producer_byte_rate: 3}]\n"

    monkeypatch.setattr("sluice.proxy.cli.quotas.places.read_piped", read_piped)
    code, out, _ = sluice("quotas", "apply", "-", "-q", "quotas.yaml", "--keep")
    assert (code, out.splitlines()[-1]) == (0, "quotas.yaml: 1 change.")
    assert QuotaFilePlace(file).listing().limits[ALICE] == {
        "producer_byte_rate": 10,
        "consumer_byte_rate": 5,
    }
