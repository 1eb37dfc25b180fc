"""The examples of deploy/examples as they stand: their broker, their proxies, their commands."""
