"""Kafka's message JSON → `protocol/_tables.py` and `protocol/codec/_schemas.py`."""
