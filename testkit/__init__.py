"""What tests, benchmarks, deployment checks and tools share. Not shipped in the wheel."""
