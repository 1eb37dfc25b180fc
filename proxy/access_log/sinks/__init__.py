"""Where finished files of the access log go: a folder, S3, a Kafka topic."""
