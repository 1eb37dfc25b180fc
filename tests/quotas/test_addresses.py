"""An address has one form in limits, which is that of the clients that connect from it."""

from __future__ import annotations

import pytest

from sluice.proxy.cli.quotas.edit import canonical
from sluice.quotas.addresses import usual_address
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.quota_file import parse_quotas
from sluice.quotas.limits.limits import QuotaError, QuotaLimits

RATE = "connection_creation_rate"


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("0:0::1", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::FFFF:7f00:1", "127.0.0.1"),
        ("::127.0.0.1", "::7f00:1"),
    ],
)
def test_an_address_is_brought_to_the_form_of_the_clients_that_have_it(text: str, usual: str) -> None:
    assert usual_address(text) == usual
    assert canonical("ip", text) == usual
    limits = QuotaLimits([(QuotaEntity(ip=text), {RATE: 5})])
    assert limits.ip_limit(usual) == (5, "ip", False)


@pytest.mark.parametrize("text", ["fe80::1%lo", "::ffff:10.0.0.1%eth0", "fe80::1%", "nowhere", ""])
def test_what_is_no_address_by_itself_has_no_limit(text: str) -> None:
    with pytest.raises(ValueError, match=r"zone|address"):
        usual_address(text)
    with pytest.raises(QuotaError):
        QuotaLimits([(QuotaEntity(ip=text), {RATE: 5})])


def test_a_quota_file_names_an_address_with_a_zone_as_none() -> None:
    with pytest.raises(QuotaFileError, match=r"must be an address such as 10\.1\.2\.3, is 'fe80::1%lo'"):
        parse_quotas(f"quotas:\n  - {{ip: 'fe80::1%lo', {RATE}: 5}}\n", "q.yaml")


def test_two_spellings_of_an_ipv4_address_are_one_entity_in_a_quota_file() -> None:
    text = f"quotas:\n  - {{ip: '::ffff:10.0.0.1', {RATE}: 5}}\n  - {{ip: 10.0.0.1, {RATE}: 6}}\n"
    with pytest.raises(QuotaFileError, match="has limits already, on line 2"):
        parse_quotas(text, "q.yaml")
