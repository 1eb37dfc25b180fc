"""The producer-id quota (KIP-936): stores, buckets, admission, snapshot."""
