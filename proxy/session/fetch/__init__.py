"""Fetches of clients: whose turn it is, what goes in the place of one without, what answers cost."""
