"""Configured limits as an immutable snapshot, how one is looked up, and calendars."""
