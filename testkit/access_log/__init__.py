"""Access logs for tests: rows, windows, writers, and an S3 that fails as it is told."""
