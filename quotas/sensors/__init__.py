"""The usage of one quota bucket against one limit: smooth, or Kafka's own windowed rate."""
