"""Committed runs of benchmarks, as their tables in the documentation."""
