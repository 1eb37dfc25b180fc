"""The status page and its JSON API."""
