"""The other side of a connection: brokers, relays and TLS peers that do as they are told."""
