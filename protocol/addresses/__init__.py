"""Where brokers' addresses stand in responses, and responses with other addresses in their place."""
