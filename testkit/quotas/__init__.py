"""Quotas alone: managers with limits in force, and the door that producer ids come through."""
