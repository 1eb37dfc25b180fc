"""The texts of quota files: a good one, another, and one with an error."""

from __future__ import annotations

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
