"""The quota file → limits, or every problem with its key and line."""
