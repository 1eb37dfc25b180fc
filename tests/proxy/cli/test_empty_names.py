"""An option whose shell variable is empty (`--user "$USER_NAME"`) names nobody: never everybody instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.proxy.sluice_command import Sluice

CHANGE = ("configs", "-q", "quotas.yaml", "--alter", "--add-config", "producer_byte_rate=1")
SHOWN = ("configs", "-q", "quotas.yaml", "--describe")
EXPLAINED = ("quotas", "explain", "-q", "quotas.yaml")
AT_ALICE = (*EXPLAINED, "--user", "alice")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ((*CHANGE, "--user", "", "--client", "app"), "--user"),
        ((*CHANGE, "--user", "alice", "--client", ""), "--client"),
        ((*CHANGE, "--user=", "--client-defaults"), "--user"),
        ((*CHANGE, "--ip", ""), "--ip"),
        ((*CHANGE, "--entity-type", "users", "--entity-name", ""), "--entity-name"),
        ((*CHANGE, "--entity-type", "topics", "--entity-name", ""), "--entity-name"),
        ((*SHOWN, "--user", ""), "--user"),
        ((*SHOWN, "--client", "", "--user", "alice"), "--client"),
        ((*SHOWN[:1], *SHOWN[3:], "--bootstrap-server", "", "-c", "sluice.yaml"), "--bootstrap-server"),
        ((*EXPLAINED, "--user", ""), "--user"),
        ((*AT_ALICE, "--address", ""), "--address"),
        ((*AT_ALICE, "--at", ""), "--at"),
        ((*AT_ALICE, "--bootstrap-server", ""), "--bootstrap-server"),
        ((*AT_ALICE, "--bootstrap-server", "127.0.0.1:1", "--broker-user", ""), "--broker-user"),
        (("top", "--once", "--user", ""), "--user"),
        (("top", "--once", "--url", ""), "--url"),
        (("connections", "--user", ""), "--user"),
        (("connections", "--url", ""), "--url"),
    ],
)
def test_it_is_refused(folder: Path, sluice: Sluice, arguments: tuple[str, ...], option: str) -> None:
    before = (folder / "quotas.yaml").read_text()
    code, out, err = sluice(*arguments)
    assert (code, out) == (2, "")
    assert f"'{option}'" in err
    assert "must not be empty" in err
    assert (folder / "quotas.yaml").read_text() == before


def test_a_client_without_an_id_is_explained(sluice: Sluice) -> None:
    """Kafka takes an empty client id, and the default's limit is for it, too."""
    assert sluice(*AT_ALICE, "--client-id", "")[0] == 0
