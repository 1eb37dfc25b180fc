"""Replication throttles in the quota file are followed as its limits are: as a whole, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluice.proxy.replication.section_file import SectionFile
from sluice.quotas.files.config_error import Problem, QuotaFileError
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.replication.limits import LEADER_RATE

RATE = "replication:\n  brokers: [{id: 1, leader.replication.throttled.rate: 5000000}]\n"
GOOD = f"quotas: [{{user: alice, producer_byte_rate: 9}}]\n{RATE}"
FASTER = GOOD.replace("5000000", "50000000")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.yaml"
    file.write_text(GOOD)
    return file


def leader_rate(followed: SectionFile) -> float | None:
    """That of broker 1, after one more look at the file."""
    return asyncio.run(followed.read()).rates.get(LEADER_RATE, {}).get(1)


@pytest.mark.parametrize(
    "refused",
    [
        "",
        FASTER[: FASTER.index("quotas") + 3],
        RATE.replace("5000000", "50000000"),
        FASTER.replace("producer_byte_rate: 9", "producer_byte_rat: 9"),
        FASTER + "exempt: [{user: alice, team: a}]\n",
        FASTER.replace("leader.", "leder."),
    ],
    ids=[
        "empty",
        "cut off",
        "no quotas",
        "misprint in quotas",
        "misprint in exempt",
        "misprint in the section",
    ],
)
def test_a_file_that_is_refused_leaves_the_throttles_that_were_there(file: Path, refused: str) -> None:
    followed = SectionFile(file)
    file.write_text(refused)
    for _ in range(2):
        assert leader_rate(followed) == 5e6
    file.write_text(FASTER)
    assert leader_rate(followed) == 5e7


def test_a_file_that_is_gone_for_a_while_leaves_the_throttles_that_were_there(file: Path) -> None:
    followed = SectionFile(file)
    file.unlink()
    assert leader_rate(followed) == 5e6
    file.write_text("quotas: []\n")
    assert leader_rate(followed) is None


def test_at_the_start_a_file_that_cannot_be_used_is_refused(file: Path) -> None:
    file.write_text(FASTER.replace("producer_byte_rate: 9", "producer_byte_rat: 9"))
    with pytest.raises(QuotaFileError, match="producer_byte_rat"):
        SectionFile(file)


def test_a_file_that_only_the_quotas_refuse_leaves_the_throttles_that_were_there(file: Path) -> None:
    """As one that says what the quota topic has the say of."""

    def refuses_limits(limits: QuotaLimits) -> None:
        if limits.entries:
            raise QuotaFileError([Problem("has limits, which are in the topic", source=str(file))])

    file.write_text(f"quotas: []\n{RATE}")
    followed = SectionFile(file, refuses_limits)
    assert leader_rate(followed) == 5e6
    file.write_text(FASTER)
    assert leader_rate(followed) == 5e6
