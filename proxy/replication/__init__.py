"""Replication throttles (KIP-73), the I/O half: followed at the cluster, put before a listener, shown."""
