"""A storm of new producer ids against a broker with a small heap."""
