"""Every client library at work under quotas that bite, each record numbered and read back from the broker."""
