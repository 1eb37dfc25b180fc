"""Sockets ↔ session: one client connection's data path, life and share of what all connections share."""
