"""A real Kafka: its jars, nodes, clusters and tools."""
