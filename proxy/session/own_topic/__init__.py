"""Keeps clients from reading and writing the proxy's own quota topic."""
