"""The proxy's own login at the brokers: credentials, the exchange, re-authentication (KIP-368)."""
