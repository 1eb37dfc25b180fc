"""Rolling restarts and broker kills under idempotent producers."""
