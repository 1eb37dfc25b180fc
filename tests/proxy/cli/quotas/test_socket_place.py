"""`sluice quotas …` at a proxy's admin socket: it tells all that is in force, and changes what Kafka has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sluice.proxy.quota_store.client_quotas import Alteration, Result
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.scheduled import limits_at
from testkit.proxy.served_limits import served_limits
from testkit.proxy.sluice_command import Sluice

OPEN_UNIX_S = 1_795_050_000.0  # a day on which the window of EVERYTHING is open
EVERYTHING = """\
tenants:
  - {name: team-a, members: [bob, carol]}
exempt:
  - {user: backup, address: 10.1.2.3}
quotas:
  - tenant: team-a
    producer_byte_rate: 700000
    schedule:
      - {days: [sun, mon, tue, wed, thu, fri, sat], producer_byte_rate: 900000}
  - {user: alice, client-id-prefix: etl-, consumer_byte_rate: 5}
  - {user: alice, producer_byte_rate: 1000, over_budget: refuse, consumer_byte_rate: 6,
     shadow: [consumer_byte_rate]}
  - {ip: <default>, connection_creation_rate: 9}
"""
AT = ("--admin-socket", "admin.sock")


class Kept:
    """A store that keeps what it is told, and takes it all."""

    def __init__(self) -> None:
        self.kept: list[Alteration] = []

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        if not validate_only:
            self.kept += alterations
        return [Result(alteration.parts, 0, None) for alteration in alterations]


@pytest.fixture
def store(folder: Path) -> Iterator[Kept]:
    """Of a proxy that runs, the window being open."""
    (folder / "quotas.yaml").write_text(EVERYTHING)
    store = Kept()
    limits = limits_at(parse_quotas(EVERYTHING, "quotas.yaml"), OPEN_UNIX_S).limits
    assert limits.scheduled
    with served_limits(folder / "admin.sock", limits, store):
        yield store


@pytest.mark.usefixtures("store")
def test_the_file_that_is_in_force_differs_in_nothing(sluice: Sluice) -> None:
    assert sluice("quotas", "diff", "quotas.yaml", *AT) == (0, "", "")


@pytest.mark.usefixtures("store")
def test_an_export_is_a_file_that_says_all_that_is_in_force(folder: Path, sluice: Sluice) -> None:
    code, out, err = sluice("quotas", "export", *AT)
    assert (code, err) == (0, "")
    (folder / "export.yaml").write_text(out)
    assert sluice("quotas", "diff", "export.yaml", "-q", "quotas.yaml") == (0, "", "")


@pytest.mark.usefixtures("store")
def test_what_differs_of_tenants_rules_and_schedules_is_told(folder: Path, sluice: Sluice) -> None:
    text = EVERYTHING.replace("carol", "dave").replace("10.1.2.3", "10.1.2.0/24").replace("sun, ", "")
    (folder / "other.yaml").write_text(text.replace("rate: 700000", "rate: 800000"))
    code, out, err = sluice("quotas", "diff", "other.yaml", *AT)
    assert (code, err) == (1, "")
    assert [line[: line.index(":")] for line in out.splitlines()] == [
        "~ tenant 'team-a'",
        "~ tenant 'team-a'",
        "- tenants",
        "+ tenants",
        "- exempt",
        "+ exempt",
    ]
    assert "producer_byte_rate=800000 → 700000" in out


def test_what_only_the_proxys_file_has_stays_when_another_is_applied(
    store: Kept, folder: Path, sluice: Sluice
) -> None:
    """A file of Kafka's entities alone, such as one that was exported from a broker."""
    (folder / "kafkas.yaml").write_text(
        "quotas: [{user: alice, producer_byte_rate: 2000, over_budget: refuse}]"
    )
    code, out, err = sluice("quotas", "apply", "kafkas.yaml", *AT)
    assert (code, err) == (0, "")
    assert "tenant" not in out
    assert {alteration.parts for alteration in store.kept} == {(("user", "alice"),), (("ip", None),)}


def test_a_tenant_that_is_not_there_is_refused_by_name(store: Kept, folder: Path, sluice: Sluice) -> None:
    (folder / "more.yaml").write_text(EVERYTHING.replace("carol", "dave"))
    code, _, err = sluice("quotas", "apply", "more.yaml", *AT)
    assert code == 2
    assert "tenants: " in err
    assert "only a quota file can have that" in err
    assert not store.kept


def test_who_is_really_called_default_is_told_and_is_not_the_default(folder: Path, sluice: Sluice) -> None:
    """Kafka's own clients can set a limit for such a name, and a proxy takes it."""
    entries = [
        (QuotaEntity(user="<default>"), {"producer_byte_rate": 77}),
        (QuotaEntity(user=DEFAULT), {"producer_byte_rate": 5}),
    ]
    with served_limits(folder / "admin.sock", QuotaLimits(entries), Kept()):
        described = sluice("configs", "--describe", "--entity-type", "users", *AT)[1]
        assert described.splitlines() == [
            "Quota configs for the default user-principal are producer_byte_rate=5.0",
            "Quota configs for user-principal '<default>' are producer_byte_rate=77.0 "
            "(not the default, but really called so)",
        ]
        assert "77" not in sluice("configs", "--describe", "--user", "alice", *AT)[1]
        code, exported, told = sluice("quotas", "export", *AT)
        assert (code, "77" in exported) == (1, False)
        its = "no quota file can name it: user-principal '<default>': producer_byte_rate=77"
        assert told == f"left out, {its}\n"
        code, _, told = sluice("quotas", "diff", "-", *AT, stdin=exported)
        assert (code, told) == (0, f"not compared, admin.sock has it: {its}\n")
        code, _, told = sluice("quotas", "apply", "-", *AT, stdin=exported)
        assert (code, told) == (0, f"stays as it is at admin.sock: {its}\n")
