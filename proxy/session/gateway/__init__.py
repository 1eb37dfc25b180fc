"""A gateway's brokers, and answers rewritten so that no broker address passes."""
