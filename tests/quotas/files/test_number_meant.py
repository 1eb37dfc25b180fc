"""What is meant by a text where a number must be."""

from __future__ import annotations

import pytest

from sluice.quotas.files.config_error import measure_of, number_meant

MEANT = [
    ("1MB", "bytes", "1000000 (1 MB) or 1048576 (1 MiB)"),
    ("1k", "bytes", "1000 (1 kB) or 1024 (1 KiB)"),
    ("1.5g", "bytes", "1500000000 (1.5 GB) or 1610612736 (1.5 GiB)"),
    ("2 TBytes/s", "bytes", "2000000000000 (2 TB) or 2199023255552 (2 TiB)"),
    ("1 MiB/s", "bytes", "1048576"),
    ("2 kibytes", "bytes", "2048"),
    ("7 B", "bytes", "7"),
    ("512 bytes", "bytes", "512"),
    ("1048576", "bytes", "1048576"),
    ("1,048,576", "bytes", "1048576"),
    ("1_000_000", "", "1000000"),
    ("10k", "", "10000"),
    ("8s", "s", "8"),
    ("500ms", "s", "0.5"),
    ("5m", "s", "300"),
    ("2 s", "ms", "2000"),
    ("50%", "%", "50"),
    ("\uff11\uff10\uff10\uff10", "bytes", "1000"),  # as a Japanese keyboard writes it
    ("\u0663", "bytes", "3"),
]


@pytest.mark.parametrize(("text", "measure", "number"), MEANT)
def test_a_number_with_a_unit_or_separators_is_told_as_it_is_written(
    text: str, measure: str, number: str
) -> None:
    assert number_meant(text, measure) == f"; write {number}"


@pytest.mark.parametrize(
    ("value", "measure"),
    [
        ("soon", "s"),
        ("1MB", "s"),
        ("8s", "bytes"),
        ("8s", ""),
        ("10Mbps", "bytes"),
        ("5 ib", "bytes"),
        ("10kB", ""),
        ("1,5", ""),
        ("9" * 5_000, ""),
        (5, ""),
        ("", "s"),
    ],
)
def test_what_could_mean_anything_is_guessed_at_by_nobody(value: object, measure: str) -> None:
    assert number_meant(value, measure) == ""


@pytest.mark.parametrize(
    ("key", "measure"),
    [("producer_byte_rate", "bytes"), ("max_buffered_bytes", "bytes"), ("rate_bytes_per_s", "bytes"),
     ("deadline_s", "s"), ("wait_ms", "ms"), ("max_connections", ""), ("handshakes_per_s", "")],
)  # fmt: skip
def test_a_key_tells_its_measure(key: str, measure: str) -> None:
    assert measure_of(key) == measure
