"""Sluice for tests and benchmarks: as a process, in the test's own loop, or as a session alone."""
