"""A quota file that an editor begins with a byte order mark, as some on Windows do."""

from __future__ import annotations

from pathlib import Path

from sluice.proxy.cli.quotas.edit import with_section
from sluice.proxy.cli.quotas.places import QuotaFilePlace

TEXT = "\ufeffquotas:\n  - user: alice  # she\n    producer_byte_rate: 1000\n"


def test_it_is_edited_as_any_other(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(TEXT, encoding="utf-8")
    QuotaFilePlace(file).alter({(("user", "alice"),): {"producer_byte_rate": 2_000.0}})
    assert file.read_text(encoding="utf-8") == TEXT.replace("1000", "2000")


def test_a_section_is_put_into_its_place() -> None:
    with_exempt = TEXT + "exempt: []\n"
    after = with_section(with_exempt, "f", "exempt", [{"user": "bob"}])
    assert after == TEXT + 'exempt: [{"user": "bob"}]\n'
