"""The proxy as a Kafka client (control plane): aiokafka's connections, kafka-python's requests."""
