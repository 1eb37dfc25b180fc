"""Replication throttles (KIP-73): limits, and the bucket that followers catch up from."""
