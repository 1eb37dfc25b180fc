"""Ports, and everything between a client's arrival and its first request; the way to the broker."""
