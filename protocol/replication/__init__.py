"""A follower's Fetch and its answer, read and rewritten."""
