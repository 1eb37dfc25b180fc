"""Followers behind an inter-broker listener: their fetch sessions, mirrored and paced."""
