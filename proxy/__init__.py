"""Composes protocol and quotas, and does all the I/O. Its session (one client connection) is pure."""
