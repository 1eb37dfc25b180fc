"""How well nightly limits fit demands that are known."""
