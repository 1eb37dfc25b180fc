"""The access log of a date, read and compacted."""
