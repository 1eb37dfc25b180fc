"""Bytes ↔ meaning: Kafka's wire format as of 4.3.1. Knows nothing of quotas, sockets or time."""
