"""What our code is compared with: Kafka's own classes, and models of brokers and followers."""
