"""The proxy as a Kafka client (control plane): aiokafka's connections, requests of our own codec."""
